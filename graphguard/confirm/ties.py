"""Operators that may take either of two equal elements: which one PyTorch takes is not part of what it promises."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Final

import torch

from graphguard.confirm.elements import FLOATS
from graphguard.confirm.operators import call
from graphguard.ir import Graph, Node, Var

# Where an operator's dim stands among its positional arguments.  ``argmax`` and ``max`` promise the first; these promise none.
_DIM_AT: Final = {
    "aten.topk.default": 2,
    "aten.kthvalue.default": 2,
    "aten.sort.default": 1,
    "aten.sort.stable": None,
    "aten.argsort.default": 1,
    "aten.argsort.stable": None,
    "aten.median.dim": 1,
    "aten.nanmedian.dim": 1,
    "aten.mode.default": 1,
}


def leaves_ties_open(graph: Graph, node: Node) -> bool:
    """Whether a call takes places of elements of which several happen to be equal, without promising which.

    Sorted lines of whole numbers are left out: keys such as the experts of tokens are equal on all inputs, and what depends on their order is wrong on
    all of them.
    """
    if node.op not in _DIM_AT or node.kwargs.get("stable"):
        return False
    operand = node.args[0]
    sorts = node.op.split(".")[1] in ("sort", "argsort")
    return not sorts or (isinstance(operand, Var) and graph.types[operand].dtype in FLOATS)


def call_with_other_ties(
    graph: Graph, node: Node, values: Mapping[Var, torch.Tensor], sharp: frozenset[str], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """The results of a call that leaves ties open, made on lines in a random order: the same values, and other places where elements are equal."""
    operand = node.args[0]
    assert isinstance(operand, Var)
    line, dim = values[operand], _dim_of(node)
    order = torch.randperm(line.shape[dim] if line.dim() else 1, generator=generator)
    shuffled = line.index_select(dim, order) if line.dim() else line
    *found, places = call(graph, node, ChainMap({operand: shuffled}, dict(values)), sharp)
    return (*found, order[places])


def has_ties(node: Node, values: Mapping[Var, torch.Tensor]) -> bool:
    """Whether elements among which a call takes some happen to be equal."""
    operand = node.args[0]
    assert isinstance(operand, Var)
    line = values[operand]
    if not line.dim():
        return False
    return bool((line.sort(_dim_of(node)).values.diff(dim=_dim_of(node)) == 0).any())


def _dim_of(node: Node) -> int:
    at = _DIM_AT[node.op]
    given = node.args[at] if at is not None and at < len(node.args) else node.kwargs.get("dim", -1)
    assert isinstance(given, int)
    return given
