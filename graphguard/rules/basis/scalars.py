"""Number literals of a program, as exact numbers (:mod:`graphguard.ir.literals`)."""

from __future__ import annotations

import math
from fractions import Fraction

from graphguard.ir.literals import LARGEST_DENOMINATOR, meant
from graphguard.relations.algebra import Scalar


def exact(number: float | Fraction) -> Scalar:
    """The number that a literal means; infinities and not-a-number stay floats."""
    if isinstance(number, Fraction):
        return number
    if isinstance(number, int):
        return Fraction(number)
    return meant(number)


def inverse(number: float | Fraction) -> Scalar:
    """The number that ``1 / literal`` means: by way of the double, so that ``/ sqrt(d)`` and ``* d ** -0.5`` agree."""
    if number == 0:
        return math.nan
    value = exact(number)
    if isinstance(value, Fraction) and (value.denominator < LARGEST_DENOMINATOR):
        return 1 / value
    return exact(1.0 / float(number))
