"""Where to point when no repair is known: the likeliest node that a broken output rests on, and the rule that fits it."""

from __future__ import annotations

from collections.abc import Mapping

from graphguard.refine.outcome import Location
from graphguard.repair.dead import dead_collectives
from graphguard.repair.guesses import is_nonlinear, narrows
from graphguard.repair.neighbours import Neighbours
from graphguard.repair.search import Search
from graphguard.repair.slices import JOINING, LAYOUT, Site, backward_slice


def suspect(found: Search, promise: str) -> tuple[str, Location | None]:
    """A rule and a place: a collective without effect, else the first site off the relation whose operands are on it.

    Without either it is the node that makes the output.  A gather of the backward pass that nobody reads explains nothing: sharded parameters are gathered for gradients that do
    not ask for them.
    """
    capture, alignment = found.capture, found.alignment
    for node in dead_collectives(capture.ranks[0]):
        if node.op != "gg.all_gather" or node.phase != "backward":
            return "dead-collective", Location(0, capture.ranks[0].nodes.index(node))
    sites = backward_slice(capture, found.proof, alignment, (promise,))
    around = Neighbours.of(capture, sites)
    frontier = [site for site in sites.values() if around.at_frontier(site)]
    known = set(found.proof.outcome.implementation_frontier)
    frontier = [site for site in frontier if _location(site) in known] or frontier
    for site in frontier:
        if narrows(site, capture):
            return "lower-precision", _location(site)
    for site in frontier:
        operands = [sites[number] for number in site.operands if number in sites]
        if is_nonlinear(site) and any(operand.state == "partial" for operand in operands):
            return "nonlinear-on-partial", _location(site)
    if frontier:
        rule = "wrong-shard" if _only_rearranged(frontier[0], sites) else "wrong-relation"
        return rule, _location(frontier[0])
    last = max(sites, default=None)
    return "wrong-relation", None if last is None else _location(sites[last])


def _only_rearranged(site: Site, sites: Mapping[int, Site]) -> bool:
    """Whether a site joins what was gathered, and all that happens from there on is rearrangement: then that is what is wrong."""
    gathers = (sites[number].node.op == "gg.all_gather" for number in site.operands if number in sites)
    later = (each for each in sites.values() if each.state == "off")
    return site.node.op in JOINING and any(gathers) and all(each.node.op in LAYOUT | JOINING for each in later)


def _location(site: Site) -> Location:
    rank = min(site.position)
    return Location(rank, site.position[rank])
