"""Numbers that masks are made with, such as the diagonal of a triangle or the start of positions: those that give the specification's rows, found on each rank alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphguard.ir import Capture, Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import aten, operators
from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import Array, Number
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Offset
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.point import Point
from graphguard.repair.shards.written import Write, own_parts, places_of

_TRIANGLES = frozenset({aten.triu.default, aten.tril.default})
_NUMBERED = _TRIANGLES | operators(lambda op: op.symbol in ("+", "-"))
"""Operators whose second argument may be such a number."""
_NUMBER = 1
_MASKED = operators(lambda op: op.mask_at is not None)
_PATH = 12  # calls from a number to what is masked by it
_TRIED = 48  # numbers, of one call


@dataclass(frozen=True, slots=True)
class _Bound:
    """A number at a site of a rank, and the one that is needed there."""

    site: Site
    rank: int
    now: int
    needed: int


def bounds(around: Neighbours, point: Point) -> Iterator[Guess]:
    """A guess for each place of the source whose numbers make other masks than the specification's, where other numbers make those on every rank."""
    spec = around.capture.spec
    made = [out for node in spec.nodes if node.op in _MASKED for out in node.outs] if spec is not None else []
    masked = [point.spec[var].array for var in made if var in point.spec]
    for sites in _by_place(around) if masked else ():
        known = _all_needed(sites, masked, point)
        if any(bound.now != bound.needed for bound in known):
            yield _guess(around.capture, sites, known)


def _all_needed(sites: Sequence[Site], masked: Sequence[Array], point: Point) -> list[_Bound]:
    """The numbers that are needed at some sites; none where one of them is not known."""
    found: list[_Bound] = []
    for site in sites:
        for rank in sorted(site.position):
            bound = _needed(site, rank, masked, point)
            if bound is None:
                return []
            found.append(bound)
    return found


def _by_place(around: Neighbours) -> Iterator[list[Site]]:
    """The sites that have a number, by where they stand in the source, in order."""
    found: dict[object, list[Site]] = {}
    for site in around.sites.values():
        if site.node.op in _NUMBERED and site.node.stack >= 0 and site.node.phase == "forward":
            graph = around.capture.ranks[min(site.position)]
            found.setdefault((site.node.op, graph.stack_of(site.node.stack)), []).append(site)
    yield from found.values()


def _needed(site: Site, rank: int, masked: Sequence[Array], point: Point) -> _Bound | None:
    """The number with which a rank has rows of the specification's masked tensors; None where none of those that are tried is one."""
    graph, index = point.capture.ranks[rank], site.position[rank]
    node, place = graph.nodes[index], _NUMBER
    now = node.args[place] if len(node.args) > place else 0
    path = _path(graph.nodes, index)
    counts = site.node.op in _TRIANGLES or all(graph.types[var].dtype in ("int64", "int32") for var in node.outs)
    if type(now) is not int or not path or not counts:
        return None
    shape = graph.types[path[-1].outs[0]].shape
    rows, columns = shape[-2:] if len(shape) > 1 else (0, 0)
    if not isinstance(rows, int) or not isinstance(columns, int) or rows * columns == 0:
        return None
    own = graph.types[node.outs[0]].shape
    length = own[0] if len(own) == 1 and isinstance(own[0], int) and own[0] else rows
    for number in _tried(now, length, columns):
        changed = replace(node, args=(*node.args[:place], number, *node.args[place + 1 :]))
        values = _along([changed, *path], rank, point)
        if values is not None:
            write = Write(site, rank, len(shape) - 2, np.moveaxis(values, -2, 0), ())
            parts = (part for target in masked for part in own_parts(write, target, point.capture))
            if any(places_of(write, part) is not None for part in parts):
                return _Bound(site, rank, now, number)
    return None


def _tried(now: int, length: int, columns: int) -> list[int]:
    """The number that stands there, then its neighbours and those that are a multiple of a length away from it, from the start or from the end."""
    steps = range(-(columns // length), columns // length + 1)
    far = [base + step * length for base in (0, 1, now, columns) for step in steps]
    return list(dict.fromkeys([now, now - 1, now + 1, *sorted(far, key=lambda number: abs(number - now))]))[:_TRIED]


def _path(nodes: Sequence[Node], index: int) -> list[Node]:
    """The calls from one to the first that masks by what comes of it; none where that is not near, or other ranks take part."""
    touched, path = set(nodes[index].outs), list[Node]()
    for node in nodes[index + 1 :]:
        if touched.isdisjoint(node.operands()):
            continue
        if node.op in COLLECTIVES or len(path) == _PATH:
            return []
        touched.update(node.outs)
        path.append(node)
        if node.op in _MASKED:
            return path
    return []


def _along(path: Sequence[Node], rank: int, point: Point) -> Array | None:
    """What the last of some calls gives on a rank."""
    graph, values = point.capture.ranks[rank], dict[Var, Number](point.ranks[rank])
    try:
        with np.errstate(all="ignore"):
            for node in path:
                values.update(zip(node.outs, point.run.results(node, graph, values), strict=True))
    except (Unsupported, LookupError):
        return None
    return values[path[-1].outs[0]].array


def _guess(capture: Capture, sites: Sequence[Site], found: Sequence[_Bound]) -> Guess:
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    for bound in found:
        index = bound.site.position[bound.rank]
        node, place = capture.ranks[bound.rank].nodes[index], _NUMBER
        args = (*node.args[:place], bound.needed, *node.args[place + 1 :])
        calls.setdefault(bound.rank, {})[index] = (replace(node, args=args),)
    first = next(bound for bound in found if bound.now != bound.needed)
    step = next(step for step, site in enumerate(sites) if site is first.site)
    when = f" in pass {step + 1} of {len(sites)}" if len(sites) > 1 else ""
    alike = len({(bound.now, bound.needed) for bound in found}) == 1
    who = "every rank" if alike else f"rank {first.rank}"
    told = f"'{{name}}' makes a mask that starts at another place: {who} has {first.now}{when}, needs {first.needed}"
    moved = {bound.needed - bound.now for bound in found}
    rule = "wrong-relation" if len(moved) == 1 else "wrong-shard"
    offset = Offset("", moved.pop(), "bound") if len(moved) == 1 else _block(sites, found)
    return rule, OtherCalls(calls, {rank: {} for rank in calls}, told, offset), first.site, 0


def _block(sites: Sequence[Site], found: Sequence[_Bound]) -> Offset | None:
    """The start of a block, where every pass lacks that on every rank."""
    steps = {
        (step, bound.needed - bound.now) for step, site in enumerate(sites) for bound in found if bound.site is site
    }
    length = dict(steps).get(1, 0)
    return Offset("", length, "block") if length > 0 and all(moved == step * length for step, moved in steps) else None
