"""Where to point when no repair is known: the likeliest node that a broken output rests on, and the rule that fits it."""

from __future__ import annotations

from graphguard.refine.outcome import Location
from graphguard.repair.dead import dead_collectives
from graphguard.repair.guesses import CASTS, LINEAR
from graphguard.repair.search import Search
from graphguard.repair.slices import Site, backward_slice


def suspect(found: Search, promise: str) -> tuple[str, Location | None]:
    """A rule and a place: a collective without effect, else the first site off the relation whose operands are on it.

    Without either it is the node that makes the output.
    """
    capture, alignment = found.capture, found.alignment
    for node in dead_collectives(capture.ranks[0]):
        return "dead-collective", Location(0, capture.ranks[0].nodes.index(node))
    sites = backward_slice(capture, found.proof, alignment, (promise,))
    frontier = [site for site in sites.values() if site.state == "off" and not _off_operands(site, sites)]
    known = set(found.proof.outcome.implementation_frontier)
    frontier = [site for site in frontier if _location(site) in known] or frontier
    for site in frontier:
        if site.node.op in CASTS:
            return "lower-precision", _location(site)
    for site in frontier:
        operands = [sites[number] for number in site.operands if number in sites]
        if site.node.op not in LINEAR and any(operand.state == "partial" for operand in operands):
            return "nonlinear-on-partial", _location(site)
    if frontier:
        return "wrong-relation", _location(frontier[0])
    last = max(sites, default=None)
    return "wrong-relation", None if last is None else _location(sites[last])


def _off_operands(site: Site, sites: dict[int, Site]) -> bool:
    return any(sites[number].state == "off" for number in site.operands if number in sites)


def _location(site: Site) -> Location:
    rank = min(site.position)
    return Location(rank, site.position[rank])
