"""What contractions of the specification give, each as an unknown of its own: what stands behind it need not be written out to prove what is made of it.

A padded convolution is in nine pieces; its mean in a square, written out, has too many terms to be compared, while of any tensor in its place the same is quickly seen.  So its result
in the specification is replaced by an unknown, and so is what the ranks have of it, in parts or multiples, wherever normal forms show that it is.  What is proved for all unknowns holds for these.  It need
not be provable: ranks may come by the same results in a way that never has what is hidden, so what none of them had is not hidden in a further attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Final

from graphguard.ir import Node, TensorType, Var
from graphguard.ops import operators
from graphguard.refine.evaluation.shards import Shards
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Kernel, Number, quotient
from graphguard.relations.terms.values import NormalValue

#: Operators that sum products of what they are given.
CONTRACTIONS: Final = operators(lambda op: op.contracts)
_MULTIPLES: Final = 4  # of what is hidden that a value is tried as


class Hidden:
    """What is hidden in one evaluation; the results in ``shown``, by number, are not."""

    def __init__(
        self,
        algebra: NormalForm,
        own: Callable[[NormalValue], NormalValue],
        shards: Shards,
        shown: Collection[int] = (),
    ) -> None:
        self._algebra = algebra
        self._own = own
        self._shards = shards
        self._shown = frozenset(shown)
        self._unknowns: dict[NormalValue, NormalValue] = {}
        self._numbers: dict[NormalValue, int] = {}
        self._count = 0
        self._by_kernel: dict[Kernel, list[NormalValue]] = {}
        self._known: dict[NormalValue, NormalValue] = {}
        self._met: set[int] = set()

    @property
    def unmet(self) -> frozenset[int]:
        """The results that are hidden and that no rank had, by number; those that are shown anyway among them."""
        return frozenset(range(self._count)) - self._met

    def of_specification(
        self, node: Node, types: Mapping[Var, TensorType], results: tuple[NormalValue, ...]
    ) -> tuple[NormalValue, ...]:
        """The results of a call of the specification as the evaluation goes on with them."""
        if node.op not in CONTRACTIONS:
            return results
        return tuple(
            self._unknown(value, types[out].dtype) if value.kind == "float" else value
            for value, out in zip(results, node.outs, strict=True)
        )

    def _unknown(self, value: NormalValue, dtype: str) -> NormalValue:
        if value in self._unknowns:
            return self._unknowns[value]
        number, self._count = self._count, self._count + 1
        kernels = {ref[0] for _, terms in value.pieces for _, ref in terms}
        plain = all(kernel.kind in ("leaf", "one", "number") for kernel in kernels)
        if number in self._shown or plain or any(kernel.infinite for kernel in kernels):
            return value  # what holds for all numbers need not hold for infinity
        unknown = self._own(self._algebra.leaf(f"gg.hidden.{number}", value.shape, "float"))
        if self._algebra.holds(value, dtype):
            self._algebra.hold(unknown, dtype)
        self._unknowns[value], self._numbers[value] = unknown, number
        for kernel in kernels:
            self._by_kernel.setdefault(kernel, []).append(value)
        return unknown

    def of_rank(self, value: NormalValue) -> NormalValue:
        """A rank's value as the evaluation goes on with it."""
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._found(value) or value
        return known

    def _found(self, value: NormalValue) -> NormalValue | None:
        first = next((term for _, terms in value.pieces for term in terms), None)
        if value.kind != "float" or first is None:
            return None
        coefficient, ref = first
        for whole in self._by_kernel.get(ref[0], ()):
            for multiple in _multiples(whole, ref[0], coefficient):
                try:
                    found = self._part(whole, value, multiple)
                except Unsupported:
                    continue  # what cannot be cut out is not hidden
                if found is not None:
                    self._met.add(self._numbers[whole])
                    return found
        return None

    def _part(self, whole: NormalValue, value: NormalValue, multiple: Number) -> NormalValue | None:
        """The part of an unknown that a value is, so many times."""
        once = value if multiple == 1 else self._own(self._algebra.scale(value, quotient(1, multiple)))
        starts = self._shards.starts(whole, once)
        if starts is None:
            return None
        part = self._shards.part(self._unknowns[whole], starts, value.shape)
        return part if multiple == 1 else self._own(self._algebra.scale(part, multiple))


def _multiples(whole: NormalValue, kernel: Kernel, coefficient: Number) -> list[Number]:
    """How often a tensor may be there where a term has this coefficient."""
    found: dict[Number, None] = {}
    for _, terms in whole.pieces:
        for own, ref in terms:
            if ref[0] is kernel and len(found) < _MULTIPLES and isinstance(own, int | Fraction):
                found[quotient(coefficient, own)] = None
    return list(found)
