"""What a collective makes of its members' values; who sends to whom is the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import as_float, larger, scaled, smaller, times
from graphguard.rules.basis.casting import convert, held, is_bounded, wrapped
from graphguard.rules.basis.merged_places import place_in_all


def combine(a: Algebra[V], reduce: str, values: Sequence[V], dtype: str = "") -> V:
    """The reduction of one value per member, of type ``dtype``: sum, avg, max, min or product.

    Truth values are added as by ``or`` and multiplied as by ``and``.  Raises ``Unsupported`` for other reductions.
    """
    total = place_in_all(a, reduce, values)
    if total is None:
        total = _combined(a, reduce, values)
    return wrapped(a, total, dtype) if is_bounded(dtype) else held(a, total, dtype)


def _combined(a: Algebra[V], reduce: str, values: Sequence[V]) -> V:
    if reduce in ("sum", "avg"):
        return _sum(a, values, reduce == "avg")
    if reduce == "product" and all(v.kind == "bool" or a.truths(v) for v in values):
        reduce = "min"  # of truths, which have one form under it
    step = {"max": larger, "min": smaller, "product": times}.get(reduce)
    if step is None:
        raise Unsupported(f"a collective with reduction {reduce}")
    result = values[0]
    for value in values[1:]:
        result = step(a, result, value)
    return result


def _sum(a: Algebra[V], values: Sequence[V], average: bool) -> V:
    kind = values[0].kind
    if average and kind != "float":
        raise Unsupported("the average of integers over ranks")
    numbers = [convert(a, v, "int") if kind == "bool" else v for v in values]
    total = numbers[0] if len(numbers) == 1 else a.add(numbers)
    if average:
        return scaled(a, as_float(a, total), Fraction(1, len(values)))
    return convert(a, total, kind)
