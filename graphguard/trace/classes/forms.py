"""Numbers as functions of a rank's coordinates: fitted exactly on those of a few ranks, and never where as many numbers as were seen could have been anything.

A form has parameters; it is believed where it gives every number that is known, and at least one more of these than it has parameters.  In this order: the same everywhere; along every axis affine, in
coordinates or, on one axis, in the digits of one; along one axis ``k ((x + s) mod n)``, from nothing or from its last step down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

Coordinates: TypeAlias = tuple[int, ...]
Form: TypeAlias = Callable[[Coordinates], Fraction]
Samples: TypeAlias = Mapping[Coordinates, Fraction]

# A rank's digits are those of at most so many.
_MOST_DIGITS: Final = 16


def fitted(samples: Samples, sizes: Sequence[int]) -> Form | None:
    """The number at every place of a mesh of these ``sizes``; None where no form has been seen often enough."""
    values = list(samples.values())
    if all(value == values[0] for value in values):
        constant = values[0]
        return (lambda _: constant) if len(values) > 1 else None
    varying = [axis for axis in range(len(sizes)) if len({place[axis] for place in samples}) > 1]
    for features in _features(varying, sizes):
        form = _linear(samples, features)
        if form is not None:
            return form
    return _turning(samples, varying, sizes)


Features: TypeAlias = tuple[Callable[[Coordinates], int], ...]


def _features(varying: Sequence[int], sizes: Sequence[int]) -> Iterator[Features]:
    """What a number may be a sum of multiples of: coordinates, or the digits of one of them."""
    yield tuple(_coordinate(axis) for axis in varying)
    for axis in varying:
        digits = _digits(axis, sizes[axis])
        if 1 < len(digits) <= _MOST_DIGITS:
            yield (*(_coordinate(other) for other in varying if other != axis), *digits)


def _coordinate(axis: int) -> Callable[[Coordinates], int]:
    return lambda place: place[axis]


def _digits(axis: int, size: int) -> Features:
    """The digits of a coordinate in the prime factors of the axis's size, the innermost first."""
    found: list[Callable[[Coordinates], int]] = []
    step, factor, rest = 1, 2, size
    while rest > 1:
        while rest % factor == 0:
            found.append(_digit(axis, step, factor))
            step, rest = step * factor, rest // factor
        factor += 1
    return tuple(found)


def _digit(axis: int, step: int, radix: int) -> Callable[[Coordinates], int]:
    return lambda place: place[axis] // step % radix


def _linear(samples: Samples, features: Features) -> Form | None:
    """The only sum of multiples of these, and of one, that gives every sample; None where samples leave it open, or are no more than its parameters."""
    rows = [[Fraction(1), *(Fraction(each(place)) for each in features), value] for place, value in samples.items()]
    if len(rows) <= len(features) + 1:
        return None
    factors = solved(rows)
    if factors is None:
        return None

    def form(place: Coordinates) -> Fraction:
        return factors[0] + sum((k * each(place) for k, each in zip(factors[1:], features, strict=True)), Fraction(0))

    return form


def solved(rows: Iterable[Sequence[Fraction]]) -> list[Fraction] | None:
    """The only solution of linear equations, the last of each row being its right side; None where there is none, or another."""
    left = [list(row) for row in rows]
    width = len(left[0]) - 1
    for column in range(width):
        pivot = next((at for at in range(column, len(left)) if left[at][column]), None)
        if pivot is None:
            return None
        left[column], left[pivot] = left[pivot], left[column]
        head = left[column][column]
        left[column] = [each / head for each in left[column]]
        for at, row in enumerate(left):
            if at != column and row[column]:
                factor = row[column]
                left[at] = [a - factor * b for a, b in zip(row, left[column], strict=True)]
    if any(row[-1] for row in left[width:]):
        return None
    return [row[-1] for row in left[:width]]


def _turning(samples: Samples, varying: Sequence[int], sizes: Sequence[int]) -> Form | None:
    """``k ((x + s) mod n)`` along one axis, or ``k (n - 1)`` less that, and affine along the others: two parameters for the axis, one for each other."""
    if len(samples) <= len(varying) + 2:
        return None
    for axis in varying:
        size = sizes[axis]
        others = tuple(_coordinate(other) for other in varying if other != axis)
        for shift in range(1, size):
            for way in (_turned(axis, shift, size), _mirrored(axis, shift, size)):
                form = _through_nothing(samples, (way, *others)) if not others else _linear(samples, (way, *others))
                if form is not None:
                    return form
    return None


def _turned(axis: int, shift: int, size: int) -> Callable[[Coordinates], int]:
    return lambda place: (place[axis] + shift) % size


def _mirrored(axis: int, shift: int, size: int) -> Callable[[Coordinates], int]:
    return lambda place: size - 1 - (place[axis] + shift) % size


def _through_nothing(samples: Samples, features: Features) -> Form | None:
    """A multiple of the one feature; None where there is none."""
    (feature,) = features
    factors = solved([[Fraction(feature(place)), value] for place, value in samples.items()])
    if factors is None:
        return None
    (factor,) = factors
    return lambda place: factor * feature(place)
