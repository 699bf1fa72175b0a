"""Numbers for what a proof does not open: orders as they are, and for an operator without a rule a fixed smooth function of its operands."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from graphguard.confirm.point_run import WithheldError
from graphguard.relations.algebra import Kind
from graphguard.relations.numbers import DTYPES, Array, Number, Numbers

_PHASES: Final = 1e3
_OPERATOR_DOTS: Final = 2  # ``aten.topk.default`` is an operator, ``topk.indices`` a function of its rule


class ClosedNumbers(Numbers):
    """An :class:`~graphguard.relations.algebra.Algebra` of numbers for whole programs.

    A proof in which an operator stays closed holds whatever function it is, so also for the one that stands for it here; it is smooth, so that what is nearly equal stays so.
    """

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
