"""Where refinement stops holding, seen from both programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphguard.ir import Capture, Graph, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.ignored import counted_apart
from graphguard.refine.found.lookup import Lookup
from graphguard.refine.outcome import SPECIFICATION, Gap, Location

_VISITED = 2000  # nodes a search for a frontier may look at


def specification_frontier(lookup: Lookup, outputs: Iterable[Var]) -> tuple[Location, ...]:
    """The specification's first operators without a relation, though all their operands have one."""
    return _frontier(
        lookup.spec, SPECIFICATION, outputs, lambda var: lookup.relation(var) is not None or _no_number(lookup, var)
    )


def _no_number(lookup: Lookup, var: Var) -> bool:
    value = lookup.specification.get(var)
    return value is not None and (value.kind != "float" or lookup.kernel(value) is None)


def implementation_frontier(lookup: Lookup, outputs: dict[int, list[Var]]) -> tuple[Location, ...]:
    """The ranks' first operators off the relation, though all their operands are on it."""
    found: list[Location] = []
    for rank, wanted in outputs.items():
        graph = lookup.capture.ranks[rank]
        found += _frontier(graph, rank, wanted, lambda var, rank=rank: lookup.on_relation(rank, var))  # type: ignore[misc]
    local = [place for place in found if lookup.capture.ranks[place.graph].nodes[place.node].op not in COLLECTIVES]
    return tuple(sorted(local or found))  # what a collective gives is off where any member's operand is


def _frontier(
    graph: Graph, number: int, outputs: Iterable[Var], related: Callable[[Var], bool]
) -> tuple[Location, ...]:
    producers = graph.producers()
    wanted = [var for var in outputs if var in producers]
    seen: set[int] = set()
    found: list[Location] = []
    roots = set(wanted)
    while wanted and len(seen) < _VISITED:
        var = wanted.pop()
        index = producers.get(var)
        if index is None or index in seen or (related(var) and var not in roots):
            continue
        seen.add(index)
        unrelated = [operand for operand in graph.nodes[index].operands() if not related(operand)]
        if not unrelated and graph.nodes[index].phase != "prelude" and not related(var):
            found.append(Location(number, index))
        wanted += unrelated
    return tuple(sorted(found))


def relevant_gaps(capture: Capture, gaps: dict[Location, Gap], names: Iterable[str]) -> tuple[Gap, ...]:
    """The gaps that an output of one of these names rests on."""
    if not gaps:
        return ()
    found: list[Gap] = []
    graphs = {SPECIFICATION: capture.spec, **dict(enumerate(capture.ranks))}
    wanted = set(names)
    for number, graph in graphs.items():
        if graph is None or not any(gap.graph == number for gap in gaps):
            continue
        needed = {var for name, var in graph.outputs.items() if name in wanted} or set(graph.outputs.values())
        for index in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[index]
            if needed.intersection(node.outs):
                needed.update(node.operands())
                gap = gaps.get(Location(number, index))
                if gap is not None:
                    found.append(gap)
    return tuple(sorted(found, key=lambda gap: gap.where))


def cautions_of(capture: Capture) -> tuple[str, ...]:
    """Equal sizes and counts under which a wrong program could look right."""
    out = []
    for ranks in dict.fromkeys(capture.mesh.values()):
        *axes, last = [f"'{axis}'" for axis, other in capture.mesh.items() if other == ranks]
        if axes and ranks > 1:
            have = "both have" if len(axes) == 1 else "all have"
            out.append(
                f"mesh axes {', '.join(axes)} and {last} {have} size {ranks}: a shard count taken from the wrong one does not show"
            )
    for leaf in capture.leaves:
        if leaf.kind != "input":
            continue
        sizes = [size for size in leaf.type.shape if isinstance(size, int) and size > 1]
        for dim, size in enumerate(leaf.type.shape):
            if isinstance(size, int) and size > 1 and sizes.count(size) > 1 and leaf.type.shape.index(size) == dim:
                out.append(
                    f"input '{leaf.name}' has several dims of extent {size}: one taken for another does not show"
                )
    for leaf, number in counted_apart(capture):
        out.append(
            f"no target in '{leaf.name}' is taken to be ignored ({number}), so that a mean of the ranks' means is the mean;"
            f" a range that holds {number}, as in gg.tensor(..., low={min(number, 0)}, high=...), checks it with ignored ones"
        )
    return tuple(out)
