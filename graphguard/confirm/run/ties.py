"""Operators that may take either of two equal elements: which one PyTorch takes is not part of what it promises."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from typing import Final

import torch

from graphguard.confirm.run.elements import FLOATS
from graphguard.confirm.run.operators import call
from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten, traits_of

_SORTS: Final = frozenset((aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable))


def leaves_ties_open(graph: Graph, node: Node) -> bool:
    """Whether a call takes places of elements of which several happen to be equal, without promising which.

    Sorted lines of whole numbers are left out: keys such as the experts of tokens are equal on all inputs, and what depends on their order is wrong on
    all of them.
    """
    if not traits_of(node.op).ties or node.kwargs.get("stable"):
        return False
    operand = node.args[0]
    return node.op not in _SORTS or (isinstance(operand, Var) and graph.types[operand].dtype in FLOATS)


def call_with_other_ties(
    graph: Graph,
    node: Node,
    values: Mapping[Var, torch.Tensor],
    sharp: frozenset[str],
    generator: torch.Generator | None,
) -> tuple[torch.Tensor, ...]:
    """The results of a call that leaves ties open, made on lines in a random order, or without a generator in the reverse one: the same values, and other
    places where elements are equal.
    """
    operand = node.args[0]
    assert isinstance(operand, Var)
    line, dim = values[operand], _dim_of(node)
    count = line.shape[dim] if line.dim() else 1
    order = torch.arange(count).flip(0) if generator is None else torch.randperm(count, generator=generator)
    shuffled = line.index_select(dim, order) if line.dim() else line
    *found, places = call(graph, node, ChainMap({operand: shuffled}, dict(values)), sharp)
    return (*found, order[places])


def has_ties(node: Node, values: Mapping[Var, torch.Tensor]) -> bool:
    """Whether elements among which a call takes some happen to be equal, so that what it takes is open: of the largest ones, they and the next."""
    operand = node.args[0]
    assert isinstance(operand, Var)
    line = values[operand]
    if not line.dim():
        return False
    dim, taken = _dim_of(node), line.shape[_dim_of(node)]
    if node.op == aten.topk.default:
        count, largest = node.args[1], node.args[3] if len(node.args) > 3 else node.kwargs.get("largest", True)
        assert isinstance(count, int)
        taken, ordered = min(taken, count + 1), line.sort(dim, descending=bool(largest)).values
    else:
        ordered = line.sort(dim).values
    ordered = ordered.movedim(dim, -1)[..., :taken]
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def resting_on(graph: Graph, calls: Collection[Node]) -> frozenset[str]:
    """The outputs of a graph that depend on some of its calls."""
    chosen = {id(node) for node in calls}
    moved: set[Var] = set()
    for node in graph.nodes:
        if id(node) in chosen or not moved.isdisjoint(node.operands()):
            moved.update(node.outs)
    return frozenset(name for name, var in graph.outputs.items() if var in moved)


def _dim_of(node: Node) -> int:
    at = traits_of(node.op).dim_at
    given = node.args[at] if at is not None and at < len(node.args) else node.kwargs.get("dim", -1)
    assert isinstance(given, int)
    return given
