"""Sums in which the specification's summands do not count alike: some twice, some on one rank, some not at all."""

from __future__ import annotations

from typing import Final

from graphguard.ir import Graph, Var
from graphguard.ops import REDUCTIONS, aten
from graphguard.refine.outcome import SPECIFICATION
from graphguard.relations.explain.weights import Weights
from graphguard.repair.graph.leaves import leaf_behind
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.weighing import LEFT_OUT, Told, uneven
from graphguard.repair.trying.search import Search
from graphguard.repair.writing.words import listed

_ADDING: Final = frozenset({aten.add.Tensor, aten.sum.default, aten.sum.dim_IntList})
_LAST: Final = 8  # sums of the specification that one is compared with


def unevenly_summed(found: Search, around: Neighbours, promise: str) -> tuple[Site, str, str, Var] | None:
    """A tensor made of a specification's tensor's summands where they count otherwise, one from the next or rank from rank: the last on its way; and the tensor of the specification."""
    spec = found.capture.spec
    if spec is None:
        return None
    frontier = (place.node for place in found.proof.outcome.specification_frontier if place.graph == SPECIFICATION)
    meant = [out for node in frontier for out in spec.nodes[node].outs]
    meant += [spec.outputs[promise]] if promise in spec.outputs else []
    for first in around.sites.values():
        for var in dict.fromkeys([*meant, *_like(first, spec)]):
            site, told = first, _told(first, var, found)
            passed = {first.number}
            while told and (later := around.readers_of(site)):
                if any(_counts_alike(each, var, found) for each in later):
                    told = None  # one step of a sum to which the rest is added
                elif len(later) == 1 and later[0].number not in passed and (following := _told(later[0], var, found)):
                    site, told = later[0], following
                    passed.add(site.number)
                else:
                    break
            if told:
                return site, told[0], _naming(told[1], _of_what(site, var, found)), var
    return None


def _like(site: Site, spec: Graph) -> list[Var]:
    """The last numbers that the specification adds up, where a site adds some up that are none of them."""
    rank = min(site.position)
    if site.state != "off" or site.node.op not in _ADDING | REDUCTIONS or rank not in site.tensors:
        return []
    added = [node.outs[0] for node in spec.nodes if node.op in _ADDING and spec.types[node.outs[0]].shape == ()]
    return added[:-_LAST:-1]


def _naming(text: str, leaves: list[str]) -> str:
    """What is told of terms, with what these are of."""
    if not leaves:
        return text
    terms = f"what {listed(leaves)} {'add' if len(leaves) > 1 else 'adds'} to"
    return (
        text.replace(LEFT_OUT, LEFT_OUT.replace("terms of", terms))
        if LEFT_OUT in text
        else f"{text} ({listed(leaves)})"
    )


def _of_what(site: Site, meant: Var, found: Search) -> list[str]:
    """What the terms are of that no rank adds up, or that count otherwise than they should, as far as that is seen."""
    spec, values = found.capture.spec, [found.proof.value(rank, own) for rank, own in site.tensors.items()]
    whole = found.proof.value(SPECIFICATION, meant)
    if spec is None or whole is None or len(whole.pieces) != 1:
        return []
    held = {term for value in values if value is not None for _, terms in value.pieces for term in terms}
    lost = {term for _, terms in whole.pieces for term in terms} - held
    names = []
    for node in spec.nodes:
        for out in node.outs:
            value = found.proof.value(SPECIFICATION, out)
            if value is not None and len(value.pieces) == 1 and len(value.pieces[0][1]) == 1:
                names += [leaf_behind(spec, out)] if value.pieces[0][1][0] in lost else []
    named = list(dict.fromkeys(filter(None, names)))
    return named if len(named) <= len(lost) else []


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
