"""Numbers for what a proof does not open: orders as they are, and for an operator without a rule a fixed smooth function of its operands."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from graphguard.confirm.fields.point_run import WithheldError
from graphguard.relations.algebra import Kind
from graphguard.relations.numbers import DTYPES, Array, Number, Numbers
from graphguard.rules.basis.casting import NARROW

_CLOSE: Final = 1e-11  # of the largest number: equal but for the order of additions
_PHASES: Final = 1e3
_OPERATOR_DOTS: Final = 2  # ``aten.topk.default`` is an operator, ``topk.indices`` a function of its rule


class _Sorted:
    """Numbers to be looked up while more of them come: in a few sorted arrays, each more than twice as large as the next, so that adding n takes n log n in all."""

    def __init__(self) -> None:
        self._new: list[Array] = []
        self._runs: list[Array] = []

    def add(self, numbers: Array) -> None:
        """Take in an array of any shape."""
        self._new.append(numbers)

    def has(self, wanted: Array, noise: float) -> bool:
        """Whether there is, for every number that is wanted, one at most that far away."""
        self._settle()
        for numbers in self._runs:
            above = np.searchsorted(numbers, wanted).clip(max=numbers.size - 1)
            near = np.minimum(abs(numbers[above] - wanted), abs(numbers[(above - 1).clip(0)] - wanted))
            wanted = wanted[near > noise]
            if not wanted.size:
                return True
        return False

    def _settle(self) -> None:
        if not self._new:
            return
        run = np.unique(np.concatenate([array.reshape(-1) for array in self._new]))
        self._new.clear()
        run = run[np.isfinite(run)]
        while self._runs and self._runs[-1].size <= 2 * run.size:
            run = np.union1d(self._runs.pop(), run)
        if run.size:
            self._runs.append(run)


class ClosedNumbers(Numbers):
    """An :class:`~graphguard.relations.algebra.Algebra` of numbers for whole programs.

    A proof in which an operator stays closed holds whatever function it is, so also for the one that stands for it here; it is smooth, so that what is nearly equal stays so.
    A cast to a type in which the numbers are already changes nothing, as in a proof (``relations/precision``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0  # how often a function stood for an operator without a rule
        self._held: dict[str, _Sorted] = {}

    def hold(self, v: Number, dtype: str) -> None:
        """Take in numbers of a type."""
        if dtype in NARROW and v.kind == "float":
            self._held.setdefault(dtype, _Sorted()).add(v.array)

    def holds(self, v: Number, dtype: str) -> bool:
        """Whether every element is, but for noise, one of the type's numbers."""
        wanted = v.array[np.isfinite(v.array) & (v.array != 0)]
        if not wanted.size:
            return True
        held = self._held.get(dtype)
        return held is not None and held.has(wanted, _CLOSE * abs(wanted).max())

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> Number:
        """A draw, the same for the same call; integers have no numbers, for their range is not known."""
        if kind == "int":
            raise WithheldError("a drawn integer")
        drawn = generator(draw, name, attributes, shape).random(shape)
        return Number(drawn < 0.5 if kind == "bool" else drawn)

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[Number, str]],
        out: str,  # noqa: ARG002 - an operator without a rule reads its operands whole
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> Number:
        """An operator without a rule, or an order; other functions that rules keep closed have no numbers here."""
        if name in _ORDERS:
            ((value, letters),) = operands
            return Number(_ordered(name, attributes, value.array, letters.index("A")).astype(DTYPES[kind]))
        if name.count(".") < _OPERATOR_DOTS:
            raise WithheldError(f"no numbers for {name}")
        self.closed += 1
        drawn = generator(name, attributes)
        weighed = (np.nan_to_num(v.array.astype(np.float64)) * drawn.random(v.shape) for v, _ in operands)
        found = np.sin(sum(float(each.sum()) for each in weighed) + _PHASES * drawn.random(out_shape))
        # An integer may be an index: the first two are within every range.
        return Number(found if kind == "float" else (found > 0).astype(DTYPES[kind]))


_ORDERS: Final = frozenset({"topk", "topk.indices", "sort", "argsort"})


def _ordered(name: str, attributes: tuple[object, ...], lines: Array, dim: int) -> Array:
    """The elements of every line along a dim in order, or where they stood; of ``topk`` the first alone."""
    descending = bool(attributes[1] if name.startswith("topk") else attributes[0])
    places = np.argsort(-lines if descending else lines, axis=dim, kind="stable")
    if name.startswith("topk") and isinstance(attributes[0], int):
        places = np.take(places, range(attributes[0]), axis=dim)
    return places if name in ("topk.indices", "argsort") else np.take_along_axis(lines, places, axis=dim)


def generator(*what: object) -> np.random.Generator:
    """Draws that depend on nothing but what they are for."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))
