"""In which element types programs have their numbers, while numbers run.

Numbers in narrow types are held unrounded, as reals, and casts round.  What is cast to a type in which it was computed is rounded there already, so such a cast changes
nothing: :mod:`graphguard.relations.prove.precision` says the same of normal forms.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import torch

from graphguard.confirm.run.operators import is_cast
from graphguard.ir import Capture, Graph, Node, Var

_ELEMENTS: Final = 4_000_000  # that are remembered
_CLOSE: Final = 1e-11  # of the largest number: equal but for the order of additions


def cast_types(capture: Capture) -> frozenset[str]:
    """The narrower float types that values are cast to."""
    return frozenset(
        graph.types[node.outs[0]].dtype for graph in capture.graphs for node in graph.nodes if is_cast(graph, node)
    )


@dataclass(slots=True)
class Held:
    """The numbers that there are, by the types that are cast to.

    ``settled``: casts, by identity, that are known to change nothing, or not to; shared by runs on several inputs, as they may look alike on some.  A run that
    disturbs its numbers (``asks`` is off) does what is settled.  ``soft``: no cast changes anything.
    """

    types: frozenset[str]
    settled: dict[int, bool]
    asks: bool = True
    soft: bool = False
    _tensors: dict[str, dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))
    _count: int = 0

    def add(self, graph: Graph, var: Var, value: torch.Tensor) -> None:
        """Take in a tensor."""
        dtype = graph.types[var].dtype
        if (
            not self.soft
            and dtype in self.types
            and value.dtype == torch.float64
            and self._count + value.numel() <= _ELEMENTS
        ):
            self._tensors[dtype].setdefault(id(value), value)
            self._count += value.numel()

    def keeps(self, graph: Graph, node: Node, value: torch.Tensor) -> bool:
        """Whether a cast leaves its operand's value as it is."""
        if self.soft:
            return True
        known = self.settled.get(id(node))
        if known is False or not self.asks:
            return known is True
        held = self._has(value, graph.types[node.outs[0]].dtype)
        self.settled[id(node)] = held
        return held

    def _has(self, value: torch.Tensor, dtype: str) -> bool:
        """Whether every element is, but for noise, one of the type's numbers."""
        left = value.reshape(-1)
        left = left[left.isfinite() & (left != 0)].unique()
        bound = _CLOSE * float(left.abs().max()) if left.numel() else 0.0
        for tensor in self._tensors[dtype].values():
            if not left.numel():
                return True
            if not bool(((tensor - left[0]).abs() <= bound).any()):
                continue
            numbers = tensor.reshape(-1).unique()
            above = torch.searchsorted(numbers, left).clamp(max=numbers.numel() - 1)
            near = torch.minimum((numbers[above] - left).abs(), (numbers[(above - 1).clamp(min=0)] - left).abs())
            left = left[~(near <= bound)]
        return not left.numel()
