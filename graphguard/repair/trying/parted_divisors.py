"""Means of micro-batches whose counts the data decides: every pass of a loop divides by its own count, and the mean of the quotients is not the mean of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from graphguard.ir import Graph, Span, Var
from graphguard.ops import aten, operators
from graphguard.refine.outcome import Location
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.trying.search import Search

_HELD: Final = operators(lambda op: op.casts) | {
    *(aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_min.Tensor, aten.maximum.default)
}  # what is done to a count before it divides
_SAME: Final = (
    "'{what}' is a part of what the specification divides by, and all {passes} passes of the loop divide by it"
)
_OTHERS: Final = (
    "'{what}' is divided by a part of what the specification divides by, another one in each of {passes} passes of the loop:"
    " the mean of such quotients is a mean of means, in which parts of unequal counts count alike"
)


def divided_by_parts(found: Search, around: Neighbours) -> tuple[Location, str] | None:
    """Where passes of a loop divide by parts of a sum that the specification divides by, or where the one part is made that all divide by, and what to say of it; None where there is none."""
    spec = found.capture.spec
    meant = _divisors(spec) if spec is not None else []
    passes = _passes(around) if meant else []
    made = {rank: graph.producers() for rank, graph in enumerate(found.capture.ranks)} if passes else {}
    for sites in passes:
        if any(all(_is_part(site, whole, found, made) for site in sites) for whole in meant):
            rank, index = min(sites[0].position.items())
            divisors = {site.node.args[1] for site in sites}
            own = divisors.pop()
            if not divisors and isinstance(own, Var):
                whole = _count(found.capture.ranks[rank], made[rank], own)
                index = made[rank].get(whole, index)
                return Location(rank, index), _SAME.format(what="{what}", passes=len(sites))
            return Location(rank, index), _OTHERS.format(what="{what}", passes=len(sites))
    return None


def _divisors(graph: Graph) -> list[Var]:
    found = (node.args[1] for node in graph.nodes if node.op == aten.div.Tensor and node.phase == "forward")
    made = graph.producers()
    counts = [_count(graph, made, arg) for arg in found if isinstance(arg, Var)]
    return list(dict.fromkeys(counts))


def _count(graph: Graph, made: Mapping[Var, int], var: Var) -> Var:
    """What a divisor was before it was held at a least number or cast."""
    while var in made and (node := graph.nodes[made[var]]).op in _HELD:
        operand = node.args[0]
        if not isinstance(operand, Var):
            break
        var = operand
    return var


def _passes(around: Neighbours) -> list[list[Site]]:
    """Quotients of tensors that one place of the source computes several times, in their order."""
    graph = around.capture.ranks[0]
    found: dict[tuple[Span, ...], list[Site]] = defaultdict(list)
    for site in around.sites.values():
        if site.node.op == aten.div.Tensor and site.node.phase == "forward" and isinstance(site.node.args[1], Var):
            frames = tuple(frame.span for frame in graph.stack_of(site.node.stack))
            if frames and len(site.position) == around.capture.world_size:
                found[frames].append(site)
    return [sites for sites in found.values() if len(sites) > 1]


def _is_part(site: Site, whole: Var, found: Search, made: Mapping[int, Mapping[Var, int]]) -> bool:
    """Whether every rank divides by some of a sum's summands, each as it is, and not by all."""
    spec = found.capture.spec
    for rank, index in site.position.items():
        graph = found.capture.ranks[rank]
        divisor = graph.nodes[index].args[1]
        own = _count(graph, made[rank], divisor) if isinstance(divisor, Var) else None
        if spec is None or own is None or graph.types[own] != spec.types[whole]:
            return False
        weights = found.proof.weights(rank, own, whole) or ()
        if {weight.factor for weight in weights if weight.high} != {0, 1}:  # beside a sum, how many elements there are
            return False
    return True
