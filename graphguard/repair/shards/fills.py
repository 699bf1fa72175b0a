"""Numbers that tensors are filled up with: padding before a sum, a maximum or a softmax must be what these leave out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Constant, Graph, Node, TensorType, Var
from graphguard.ops import aten, traits_of
from graphguard.refine.stages.constants import elements
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Filling
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.rules import kind_of

_NEUTRAL = (0.0, float("-inf"), 1.0)


@dataclass(frozen=True, slots=True)
class _Fill:
    """A number at a node of a rank: its argument ``index``, or all of the literal ``var`` that it reads."""

    rank: int
    node: int
    number: float
    index: int
    var: Var | None


def fills(around: Neighbours) -> Iterator[Guess]:
    """A guess for each number that tensors are filled up with, and each that sums, products or maxima leave out: all places of it at once, then each alone."""
    found: dict[float, list[tuple[Site, list[_Fill]]]] = {}
    for site in around.sites.values():
        for number, at in _at(site, around.capture).items():
            found.setdefault(number, []).append((site, at))
    for number, sites in found.items():
        for other in _NEUTRAL:
            if other == number:
                continue
            if len(sites) > 1:
                yield _guess(around.capture, sites, number, other)
            for each in sites:
                yield _guess(around.capture, [each], number, other)


def _guess(capture: Capture, sites: list[tuple[Site, list[_Fill]]], number: float, other: float) -> Guess:
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for fill in (fill for _, at in sites for fill in at):
        graph = capture.ranks[fill.rank]
        calls.setdefault(fill.rank, {})[fill.node] = _with(graph, fill, other, types.setdefault(fill.rank, {}))
    told = f"'{{name}}' is filled up with {number:g}, which counts in what is computed of it; {other:g} does not"
    return "wrong-relation", OtherCalls(calls, types, told, Filling(number, other)), sites[0][0], 0


def _at(site: Site, capture: Capture) -> dict[float, list[_Fill]]:
    """The numbers that a site fills up with, on each rank that does."""
    found: dict[float, list[_Fill]] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        node = graph.nodes[index]
        place = traits_of(node.op).number_at
        number = node.args[place] if place is not None and len(node.args) > place else None
        if isinstance(number, int | float) and place is not None:
            found.setdefault(float(number), []).append(_Fill(rank, index, float(number), place, None))
        for var in node.operands() if node.op == aten.cat.default else ():
            literal = _uniform(graph.constants[var]) if var in graph.constants else None
            if literal is not None:
                found.setdefault(literal, []).append(_Fill(rank, index, literal, 0, var))
    return found


def _uniform(constant: Constant) -> float | None:
    """The one number that all elements of a literal of real numbers are."""
    if constant.data is None or kind_of(constant.type.dtype) != "float":
        return None
    numbers = elements(constant)
    return float(numbers.flat[0]) if numbers.size and (numbers == numbers.flat[0]).all() else None


def _with(graph: Graph, fill: _Fill, number: float, types: dict[Var, TensorType]) -> tuple[Node, ...]:
    """The call with another number, or of another literal."""
    node = graph.nodes[fill.node]
    if fill.var is None:
        return (replace(node, args=(*node.args[: fill.index], number, *node.args[fill.index + 1 :])),)
    literal = Var(fresh(graph) + len(types))
    kind = types[literal] = graph.types[fill.var]
    shape = tuple(size for size in kind.shape if isinstance(size, int))
    whole = replace(node, op=aten.full.default, args=(shape, number), kwargs={}, outs=(literal,))
    operands = node.args[0]
    assert isinstance(operands, tuple)
    changed = tuple(literal if operand == fill.var else operand for operand in operands)
    return whole, replace(node, args=(changed, *node.args[1:]))
