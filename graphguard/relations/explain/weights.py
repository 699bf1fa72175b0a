"""How a value weighs the summands of another: what a mean of means of unequal counts does to a sum, summand by summand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Final

from graphguard.relations.sums.products import multiply
from graphguard.relations.terms.kernels import UNBOUNDED, Number, Ref, Terms, Universe, quotient
from graphguard.relations.terms.values import NormalValue, extents_of

_SUMMANDS: Final = 64  # that are looked at one by one


@dataclass(frozen=True, slots=True)
class Weight:
    """What the summands ``low <= i < high`` of a sum are multiplied by; all of a value that is no sum where ``high`` is 0."""

    factor: Number
    low: int = 0
    high: int = 0


Weights = tuple[Weight, ...]


def weights(universe: Universe, found: NormalValue, meant: NormalValue) -> Weights | None:
    """How often each summand of ``meant`` counts in ``found``; None where the one is not made of the other's summands, each of them at most once.

    Both have one shape, and every piece weighs alike.  Raises what multiplication raises.
    """
    if found.shape != meant.shape or found.kind != meant.kind or found.grid != meant.grid:
        return None
    boxes = dict(found.pieces)
    if not boxes or boxes.keys() != {box for box, _ in meant.pieces}:
        return None
    rows = {_weighed(universe, boxes[box], terms, extents_of(box)) for box, terms in meant.pieces}
    return rows.pop() if len(rows) == 1 else None


def _weighed(universe: Universe, found: Terms, meant: Terms, extents: tuple[int, ...]) -> Weights | None:
    left: dict[Ref, Number] = {ref: coefficient for coefficient, ref in found}
    rows: list[Weight] = []
    for coefficient, ref in meant:
        if ref in left:
            rows.append(Weight(quotient(left.pop(ref), coefficient)))
            continue
        summands = next(
            filter(None, (_summands(universe, ref, axis, left, extents) for axis in range(len(ref[3])))),
            [(Weight(0), None)],  # left out as a whole
        )
        for weight, taken in summands:
            if taken is not None:
                del left[taken]
            rows.append(Weight(quotient(weight.factor, coefficient), weight.low, weight.high))
    return None if left or not any(row.factor for row in rows) else _joined(rows)


def _summands(
    universe: Universe, ref: Ref, axis: int, left: dict[Ref, Number], extents: tuple[int, ...]
) -> list[tuple[Weight, Ref | None]] | None:
    """Terms that are parts of a sum along one of its axes, in order, and without a term the summands that none has; None where there are no parts."""
    kernel, offsets, dims, window = ref
    low, high = window[axis]
    if high - low > UNBOUNDED // 4:
        return None  # the numbers that a comparison admits: a mask, and no summands
    found: list[tuple[Weight, Ref | None]] = []
    parts = {
        other[3][axis][0]: other
        for other in left
        if other[:3] == (kernel, offsets, dims) and (*other[3][:axis], (low, high), *other[3][axis + 1 :]) == window
    }
    fewer = {other for other in left if len(other[3]) < len(window)}  # one summand alone has lost its axis
    if not parts and not fewer:
        return None
    place, looked = low, 0
    while place < high:
        part = parts.get(place)
        if part is not None and part[3][axis][1] <= high:
            weight = Weight(left[part], place, part[3][axis][1])
        elif not fewer:
            weight = Weight(0, place, min((start for start in parts if start > place), default=high))
            part = None
        elif looked < _SUMMANDS:
            looked += 1
            alone = (kernel, offsets, dims, (*window[:axis], (place, place + 1), *window[axis + 1 :]))
            factor, part = _alone(universe, alone, extents)
            there = part in left and all(part != taken for _, taken in found)
            weight = Weight(quotient(left[part], factor) if there else 0, place, place + 1)
            part = part if there else None
            fewer -= {part}
        else:
            return None
        found.append((weight, part))
        place = weight.high
    return found if any(part is not None for _, part in found) else None


def _alone(universe: Universe, summand: Ref, extents: tuple[int, ...]) -> tuple[Number, Ref]:
    """A sum of one summand without its axis; asked again for every tensor that is weighed."""
    key = ("alone", summand, extents)
    known = universe.memo.get(key)
    if known is None:
        known = universe.memo[key] = multiply(universe, [(summand, 1)], extents)
    return known  # type: ignore[return-value]


def _joined(rows: list[Weight]) -> Weights:
    """Neighbours of one weight as one."""
    out: list[Weight] = []
    for factor, group in groupby(rows, key=lambda row: row.factor):
        for row in group:
            if out and out[-1].factor == factor and 0 < out[-1].high == row.low:
                out[-1] = Weight(factor, out[-1].low, row.high)
            elif not (out and out[-1] == row):
                out.append(row)
    return tuple(out)
