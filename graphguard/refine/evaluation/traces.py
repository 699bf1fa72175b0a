"""Roundings of numbers that the specification has nowhere, followed to those that are made of them.

Where the specification has these in a type that is no wider the rounding is meant, as is any other way to compute in it.  Where it has them in wider types alone,
or promises them in such, the ranks' are rounded and the specification's are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphguard.ir import TensorType, Var
from graphguard.refine.outcome import Location
from graphguard.refine.stages.coarse import WIDER_AND_OTHERS
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue


@dataclass(frozen=True, slots=True)
class Rounding:
    """A result of a call that is computed in a narrower type than ``wide``, in which the specification has it or what is made of it.

    ``known``: the specification has the rounded numbers too.  ``doubted``: these, but the rank may have rounded more than once.
    """

    index: int
    wide: str
    known: bool
    doubted: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the rank is seen to have what the specification has."""
        return self.known and not self.doubted


@dataclass(frozen=True, slots=True)
class Origin:
    """A result of a rank's call that is rounded to a type, of numbers that the specification has nowhere."""

    where: Location
    index: int
    dtype: str


class Traces:
    """By rank and tensor the roundings that it is made of, for those of one program; empty for most."""

    def __init__(self, algebra: NormalForm) -> None:
        self._algebra = algebra
        self._origins: dict[tuple[int, Var], frozenset[Origin]] = {}

    def __bool__(self) -> bool:
        return bool(self._origins)

    def of(self, read: Iterable[tuple[int, Var]]) -> frozenset[Origin]:
        """All that some tensors of ranks are made of."""
        return frozenset[Origin]().union(*[self._origins[each] for each in read if each in self._origins])

    def follow(
        self,
        rank: int,
        outs: Mapping[Var, NormalValue | None],
        types: Mapping[Var, TensorType],
        origins: frozenset[Origin],
    ) -> dict[Origin, str]:
        """What a rank makes of roundings; gives those that are not meant, each with the wider type in which alone the specification has what is made of it."""
        unmeant: dict[Origin, str] = {}
        kinds = {origin.dtype for origin in origins}
        for out, value in outs.items():
            left = origins
            if value is not None and value.kind == "float":
                meant = {dtype for dtype in kinds if self._algebra.has_digits(value, WIDER_AND_OTHERS[dtype][1])}
                left = frozenset(origin for origin in left if origin.dtype not in meant)
                if left and types[out].dtype not in WIDER_AND_OTHERS:
                    wide = {dtype: self._algebra.only_wider(value, *WIDER_AND_OTHERS[dtype]) for dtype in kinds - meant}
                    unmeant |= {origin: found for origin in left if (found := wide[origin.dtype]) is not None}
                    left -= unmeant.keys()
            if left:
                self._origins[rank, out] = left
        return unmeant

    def begin(self, rank: int, out: Var, origin: Origin) -> None:
        """A rank rounds a tensor of numbers that the specification has nowhere."""
        self._origins[rank, out] = self._origins.get((rank, out), frozenset()) | {origin}
