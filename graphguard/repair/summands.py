"""Sums in which the specification's summands do not count alike: some twice, some on one rank, some not at all."""

from __future__ import annotations

from graphguard.ir import Var
from graphguard.refine.outcome import SPECIFICATION
from graphguard.relations.weights import Weights
from graphguard.repair.neighbours import Neighbours
from graphguard.repair.search import Search
from graphguard.repair.slices import Site
from graphguard.repair.weighing import Told, uneven


def unevenly_summed(found: Search, around: Neighbours, promise: str) -> tuple[Site, str, str] | None:
    """A tensor made of a specification's tensor's summands where they count otherwise, one from the next or rank from rank: the last on its way."""
    spec = found.capture.spec
    if spec is None:
        return None
    frontier = (place.node for place in found.proof.outcome.specification_frontier if place.graph == SPECIFICATION)
    meant = [out for node in frontier for out in spec.nodes[node].outs]
    meant += [spec.outputs[promise]] if promise in spec.outputs else []
    for first in around.sites.values():
        for var in dict.fromkeys(meant):
            site, told = first, _told(first, var, found)
            while told and (later := [around.sites[number] for number in around.readers.get(site.number, ())]):
                if any(_counts_alike(each, var, found) for each in later):
                    told = None  # one step of a sum to which the rest is added
                elif len(later) == 1 and (next_told := _told(later[0], var, found)):
                    site, told = later[0], next_told
                else:
                    break
            if told:
                return site, *told
    return None


def _told(site: Site, meant: Var, found: Search) -> Told | None:
    """How a site's tensor is made of the summands of one of the specification; None where it is not, or with one factor."""
    return uneven(_weights(site, meant, found))


def _counts_alike(site: Site, meant: Var, found: Search) -> bool:
    """Whether a site's tensors are made of the summands of one of the specification, and count all of them alike."""
    held = _weights(site, meant, found)
    return bool(held) and None not in held.values() and uneven(held) is None


def _weights(site: Site, meant: Var, found: Search) -> dict[int, Weights | None]:
    """How each rank's tensor counts the summands; empty where they can be none of them."""
    capture, spec = found.capture, found.capture.spec
    if spec is None or site.state == "whole" or len(site.tensors) < capture.world_size:
        return {}
    if any(capture.ranks[rank].types[own] != spec.types[meant] for rank, own in site.tensors.items()):
        return {}
    return {rank: found.proof.weights(rank, own, meant) for rank, own in sorted(site.tensors.items())}
