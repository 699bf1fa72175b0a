"""Parts that are read from the wrong places: the edits that numbers ask for, and what they say of the ones that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ops import aten
from graphguard.repair.graph.alignment import Alignment
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Joining
from graphguard.repair.graph.neighbours import Guess
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.wanted import Joint, Places, Read, Rereading, rereadings

_SHOWN = 4  # places that are listed one by one


def reread(
    capture: Capture, alignment: Alignment, sites: Mapping[int, Site], broken: tuple[str, ...]
) -> Iterator[Guess]:
    """A guess for each way in which the ranks' reads, and the groups that they gather over, would give what was promised."""
    for found in rereadings(capture, broken, alignment.positions):
        first = min(found.steps)
        if first not in sites:
            continue
        calls: dict[int, dict[int, tuple[Node, ...]]] = {}
        types: dict[int, dict[Var, TensorType]] = {}
        for rank, graph in enumerate(capture.ranks):
            own = {node: _over(graph.nodes[node], group) for node, group in found.groups.get(rank, {}).items()}
            added: dict[Var, TensorType] = {}
            for read in found.reads.get(rank, ()):
                own[read.node] = (
                    _joining(graph, read, added) if isinstance(read, Joint) else read_calls(graph, read, added)
                )
            if own:
                calls[rank], types[rank] = own, added
        rule = "wrong-group" if found.groups else "wrong-shard"
        told = _told(capture, found.reads, found.groups)
        yield rule, OtherCalls(calls, types, told, _joined(found)), sites[first], 0


def _joined(found: Rereading) -> Joining | None:
    """Along which dim all ranks are to join what they gather; None where they are to read something else."""
    reads = [read for own in found.reads.values() for read in own]
    dims = {read.dim if isinstance(read, Joint) else None for read in reads}
    dim = dims.pop() if len(dims) == 1 and not found.groups else None
    return None if dim is None else Joining(dim)


def _over(node: Node, group: tuple[int, ...]) -> tuple[Node, ...]:
    return (replace(node, args=(node.args[0], group, *node.args[2:])),)


def _joining(graph: Graph, joint: Joint, types: dict[Var, TensorType]) -> tuple[Node, ...]:
    """The parts joined, and viewed in the shape that is read; ``types`` gets that of what is new."""
    node, kind, part = graph.nodes[joint.node], graph.types[joint.out], graph.types[joint.parts[0]]
    sizes = [graph.types[each].shape[joint.dim] for each in joint.parts]
    shape = (
        *part.shape[: joint.dim],
        sum(size for size in sizes if isinstance(size, int)),
        *part.shape[joint.dim + 1 :],
    )
    join = replace(node, op=aten.cat.default, args=(joint.parts, joint.dim), kwargs={}, outs=(joint.out,))
    if shape == kind.shape:
        return (join,)
    whole = Var(fresh(graph) + len(types))
    types[whole] = replace(kind, shape=shape)
    return replace(join, outs=(whole,)), replace(join, op=aten.view.default, args=(whole, kind.shape))


def read_calls(graph: Graph, places: Places, types: dict[Var, TensorType]) -> tuple[Node, ...]:
    """The calls that take the needed places, in place of the one that takes others; what else that one gives stays.  ``types`` gets those of what is new."""
    node, kind = graph.nodes[places.node], graph.types[places.out]
    unused = Var(fresh(graph) + len(types))
    calls: list[Node] = []
    if len(node.outs) > 1:
        types[unused] = kind
        calls.append(replace(node, outs=tuple(unused if out == places.out else out for out in node.outs)))
    template = replace(node, kwargs={}, outs=(places.out,))
    source_rank = len(graph.types[places.source].shape)
    if len(kind.shape) < source_rank:
        return (*calls, replace(template, op=aten.select.int, args=(places.source, places.dim, places.needed[0])))
    runs = runs_of(places.needed)
    if len(runs) == 1:
        return (*calls, _slice(template, places, runs[0]))
    pieces = []
    for run in runs:
        piece = Var(fresh(graph) + len(types))
        types[piece] = replace(kind, shape=(*kind.shape[: places.dim], len(run), *kind.shape[places.dim + 1 :]))
        pieces.append(piece)
        calls.append(replace(_slice(template, places, run), outs=(piece,)))
    return (*calls, replace(template, op=aten.cat.default, args=(tuple(pieces), places.dim)))


def _slice(template: Node, places: Places, run: range) -> Node:
    return replace(template, op=aten.slice.Tensor, args=(places.source, places.dim, run.start, run[-1] + 1, run.step))


def runs_of(places: tuple[int, ...]) -> list[range]:
    """Places as ranges, one where their distance is the same throughout, else one for each stretch of neighbours."""
    step = places[1] - places[0] if len(places) > 1 else 1
    if step > 0 and all(later - one == step for one, later in pairwise(places)):
        return [range(places[0], places[-1] + 1, step)]
    found: list[range] = []
    for place in places:
        if found and found[-1].stop == place:
            found[-1] = range(found[-1].start, place + 1)
        else:
            found.append(range(place, place + 1))
    return found


def _told(
    capture: Capture, reads: Mapping[int, tuple[Read, ...]], groups: Mapping[int, Mapping[int, tuple[int, ...]]]
) -> str:
    """What is there, and what is needed, on the first rank where they differ."""
    if groups:
        rank = min(groups)
        node, needed = next(iter(groups[rank].items()))
        now = capture.ranks[rank].nodes[node].args[1]
        assert isinstance(now, tuple)
        return (
            f"'{{name}}' is put together over ranks {', '.join(map(str, now))};"
            f" the parts of one tensor are on ranks {', '.join(map(str, needed))}"
        )
    several = [(rank, read) for rank, own in sorted(reads.items()) for read in own]
    places = next(
        ((rank, read) for rank, read in several if isinstance(read, Places) and read.now != read.needed), None
    )
    if places is None:
        rank, joint = next((rank, read) for rank, read in several if isinstance(read, Joint))
        graph = capture.ranks[rank]
        made = graph.nodes[graph.producers()[joint.now]]
        dim = made.args[1] if len(made.args) > 1 else 0
        other = isinstance(dim, int) and dim % len(graph.types[joint.now].shape) != joint.dim
        joins = made.op == aten.cat.default and other
        how = (
            "the parts of the ranks along the wrong dim"
            if joins
            else "the gathered parts in another way than the specification has them"
        )
        return f"'{{name}}' joins {how}: dim {joint.dim} is needed"
    rank, read = places
    where = f" of dim {read.dim}" if read.dim else ""
    rows = ("row " if len(read.needed) == 1 else "rows ") if not read.dim else ""
    needs = places_text(read.needed)
    if read.now is None:
        return f"'{{name}}' is the wrong part: rank {rank} needs {rows}{needs}{where} of what it is taken from"
    return f"'{{name}}' is the wrong part: rank {rank} reads {rows}{places_text(read.now)}{where}, needs {needs}"


def places_text(places: tuple[int, ...]) -> str:
    """``3``, ``4..7``, ``0, 2, 4``, ``0..1 and 4..5``, or ``none``."""
    if not places:
        return "none"
    runs = runs_of(places)
    if len(runs) == 1 and runs[0].step > 1:
        shown = [str(place) for place in places]
        return ", ".join(shown if len(shown) <= _SHOWN else [*shown[: _SHOWN - 1], "...", shown[-1]])
    texts = [f"{run.start}..{run[-1]}" if len(run) > 1 else str(run.start) for run in runs]
    if len(texts) > _SHOWN:
        texts = [*texts[: _SHOWN - 1], "..."]
        return ", ".join(texts)
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
