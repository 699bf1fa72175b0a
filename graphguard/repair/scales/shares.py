"""Means of parts of unequal sizes that are averaged over the ranks: each must count by its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ops import aten, operators
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site

_MEANS = operators(lambda op: op.reduces == "mean")
Factors = Mapping[tuple[int, Var], Fraction]
"""What each tensor of a rank is to be multiplied by."""


def shares(around: Neighbours) -> Iterator[Guess]:
    """One guess for all such means: each is multiplied by its share of what the ranks have together."""
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
