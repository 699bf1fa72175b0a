"""Constants in float32 of a program that computes in doubles as well: a call on doubles takes them as float32 has rounded them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from graphguard.confirm.run.elements import rounded
from graphguard.confirm.run.operators import call
from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten
from graphguard.rules.basis.casting import DOUBLES
from graphguard.rules.basis.registry import find_rule

_FILLS: Final = (aten.full.default, aten.scalar_tensor.default)


class Singles:
    """The constants of one graph while it runs.

    Of those that were written down, or moved since, it is known what float32 made of them (``_written``); of others that rest on no unknown (``_fixed``) but for the rounding of each step.
    """

    def __init__(self, graph: Graph, literals: Mapping[Var, torch.Tensor]) -> None:
        self._graph = graph
        self._written = {var: value for var, value in literals.items() if self._is_single(var)}
        self._fixed = set(literals)

    def given(
        self, node: Node, values: Mapping[Var, torch.Tensor], unsure: Callable[[torch.Tensor], torch.Tensor]
    ) -> Mapping[Var, torch.Tensor]:
        """The operands as a call takes them; ``unsure`` disturbs numbers by what float32 rounds away."""
        operands = set(node.operands())
        if not any(self._graph.types[var].dtype in DOUBLES for var in (*operands, *node.outs)):
            return values
        known = {var: self._written[var] for var in operands if var in self._written}
        for var in operands:
            if var in self._fixed and var not in known and self._is_single(var):
                known[var] = unsure(rounded(values[var], "float32"))
        return {var: values[var] for var in operands} | known if known else values

    def note(self, node: Node) -> None:
        """A call was run; those of unknowns make no constants."""
        operands = set(node.operands())
        if node.draw is not None or "empty" in node.op or not operands <= self._fixed:
            return
        self._fixed.update(node.outs)
        rule = find_rule(node.op)
        moved = bool(operands) and operands <= self._written.keys() and rule is not None and rule.gives == "moved"
        if (moved or node.op in _FILLS) and all(map(self._is_single, node.outs)):
            results = call(self._graph, node, self._written, frozenset())
            self._written.update(zip(node.outs, (rounded(value, "float32") for value in results), strict=True))

    def _is_single(self, var: Var) -> bool:
        return self._graph.types[var].dtype == "float32"


def computes_in_both(graph: Graph) -> bool:
    """Whether a graph has numbers in float32 and in doubles."""
    dtypes = {kind.dtype for kind in graph.types.values()}
    return "float32" in dtypes and not DOUBLES.isdisjoint(dtypes)
