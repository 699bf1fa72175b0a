"""Summands that count unevenly: another factor for each term, and for each rank, as the weights of the specification's summands ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ir.fuel import Fuel, burn
from graphguard.ops import aten, operators
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.proof import Proof
from graphguard.relations.explain.weights import Weights
from graphguard.relations.terms.kernels import Number
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.neighbours import SCALING, Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.weighing import uneven

_TERMS = 32
_WEIGHING = 4  # steps that it takes to weigh a tensor
_MEANS = operators(lambda op: op.reduces == "mean")
_SUMS = operators(lambda op: op.symbol == "+")
Factors = Mapping[tuple[int, Var], Fraction]
"""What each tensor of a rank is to be multiplied by."""


def shares(proof: Proof, around: Neighbours, broken: tuple[str, ...], fuel: Fuel) -> Iterator[Guess]:
    """A guess for each tensor that is made of a tensor of the specification's summands with several factors, and one for means of unequal parts."""
    yield from _means(around)
    spec = proof.capture.spec
    if spec is None:
        return
    frontier = (place.node for place in proof.outcome.specification_frontier if place.graph == SPECIFICATION)
    meant = [out for node in frontier for out in spec.nodes[node].outs]
    meant += [spec.outputs[name] for name in broken if name in spec.outputs]
    for site in reversed(list(around.sites.values())):
        for var in dict.fromkeys(meant):
            if fuel.spent:
                return
            yield from _weighed(site, var, proof, around)


def _weighed(site: Site, meant: Var, proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """The terms of one tensor, or the tensor itself, with the factors that make every summand count once."""
    capture, spec = proof.capture, proof.capture.spec
    full = len(site.tensors) == capture.world_size
    if spec is None or site.state == "whole" or not full or not _like(site, spec.types[meant], capture):
        return
    burn(_WEIGHING * len(site.tensors))
    held = {rank: proof.weights(rank, var, meant) for rank, var in sorted(site.tensors.items())}
    told = uneven(held)
    if told is None or any(not weight.factor for weights in held.values() for weight in weights or ()):
        return
    factors: dict[tuple[int, Var], Fraction] = {}
    for rank, weights in held.items():
        assert weights is not None
        own = {site.tensors[rank]: weights} if len(weights) == 1 else _terms(site, rank, meant, proof)
        for var, found in own.items():
            factor = _factor(_counted(found, weights))
            if factor is None:
                return
            factors[rank, var] = 1 / factor
    rule, text = told
    yield rule, _scaled(capture, factors, text.replace("{what}", "{name}")), _first(factors, around) or site, 0


def _like(site: Site, kind: TensorType, capture: Capture) -> bool:
    return all(capture.ranks[rank].types[var] == kind for rank, var in site.tensors.items())


def _terms(site: Site, rank: int, meant: Var, proof: Proof) -> dict[Var, Weights]:
    """The terms of a sum of a rank, each of whose summands count alike; empty where a term is made of others."""
    graph = proof.capture.ranks[rank]
    producers = graph.producers()
    waiting, found = [site.tensors[rank]], dict[Var, Weights]()
    while waiting:
        var = waiting.pop()
        counted = tuple(weight for weight in proof.weights(rank, var, meant) or () if weight.factor)
        if counted and _factor(counted) is not None:
            found[var] = counted
            continue
        node = graph.nodes[producers[var]] if var in producers else None
        if node is None or node.op not in _SUMS | SCALING or len(found) > _TERMS:
            return {}
        waiting += node.operands()
    return found


def _counted(term: Weights, total: Weights) -> Weights:
    """How a term's summands count in the whole of which it is one; what is no part of a sum is taken to be added up as it is."""
    if not all(weight.high for weight in term):
        return term
    return tuple(weight for weight in total for own in term if weight.low < own.high and own.low < weight.high)


def _factor(weights: Weights) -> Fraction | None:
    """How often all that counts does; None where some count otherwise, or not by a number."""
    factors: set[Number] = {weight.factor for weight in weights}
    return Fraction(factors.pop()) if len(factors) == 1 and not factors & {0} else None


def _means(around: Neighbours) -> Iterator[Guess]:
    """Means of parts of unequal sizes that are averaged over the ranks: each must count by its size."""
    capture = around.capture
    found: dict[tuple[int, Var], Fraction] = {}
    sizes: dict[int, int] = {}
    for site in around.sites.values():
        counted = _counts(site, capture) if site.node.op in _MEANS else {}
        if len(set(counted.values())) > 1 and len(counted) == capture.world_size:
            whole = Fraction(sum(counted.values()), len(counted))
            found |= {(rank, site.tensors[rank]): count / whole for rank, count in counted.items()}
            sizes = sizes or counted
    first = _first(found, around)
    if first is None:
        return
    told = ", ".join(f"{count} on rank {rank}" for rank, count in list(sizes.items())[:4])
    text = f"'{{name}}' counts every rank's mean alike, though they are means of unequal numbers of elements: {told}"
    yield "wrong-scale", _scaled(capture, found, text), first, 0


def _counts(site: Site, capture: Capture) -> dict[int, int]:
    """Of how many elements each rank's mean is."""
    found: dict[int, int] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        before, after = (
            _elements(graph.types[var]) for var in (next(graph.nodes[index].operands()), site.tensors[rank])
        )
        if before and after:
            found[rank] = before // after
    return found


def _elements(kind: TensorType) -> int:
    total = 1
    for size in kind.shape:
        total *= size if isinstance(size, int) else 0
    return total


def _first(factors: Factors, around: Neighbours) -> Site | None:
    """The first site that makes one of some tensors that change."""
    changed = {key for key, factor in factors.items() if factor != 1}
    return next((site for site in around.sites.values() if changed & set(site.tensors.items())), None)


def _scaled(capture: Capture, factors: Factors, told: str) -> OtherCalls:
    """The tensors multiplied where they are made."""
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for (rank, var), factor in factors.items():
        graph = capture.ranks[rank]
        index = graph.producers().get(var)
        if factor != 1 and index is not None:
            added = types.setdefault(rank, {})
            calls.setdefault(rank, {})[index] = _times(graph, index, var, factor, added)
    return OtherCalls(calls, types, told)


def _times(graph: Graph, index: int, var: Var, factor: Fraction, types: dict[Var, TensorType]) -> tuple[Node, ...]:
    node, before = graph.nodes[index], Var(fresh(graph) + len(types))
    types[before] = graph.types[var]
    made = replace(node, outs=tuple(before if out == var else out for out in node.outs))
    times = replace(node, op=aten.mul.Scalar, args=(before, factor.numerator), kwargs={}, outs=(var,), draw=None)
    if factor.denominator == 1:
        return made, times
    between = Var(before.id + 1)
    types[between] = graph.types[var]
    parts = replace(times, op=aten.div.Scalar, args=(between, factor.denominator))
    return made, replace(times, outs=(between,)), parts  # a third is no number of a float type
