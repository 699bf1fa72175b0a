"""Numbers as they were written, before float32 rounded them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Set
from fractions import Fraction
from typing import Final

_DIGITS: Final = 6  # a float32 holds all decimal numbers of so many digits
_RADICAND: Final = 1 << 14  # widths of which programs take roots
_DENOMINATOR: Final = 64


def float32_is_widest(floats: Set[str]) -> bool:
    """Whether float32 is the widest of a program's float types: an element of a literal in it is then the number that was rounded to it, as a number in a call is."""
    return "float32" in floats and floats.isdisjoint(("float64", "complex128"))


def written(value: float) -> float:
    """The decimal number of few digits that rounds to a float32; a number that is none, or takes many digits, as it is."""
    digits = f"{value:.{_DIGITS}g}"
    return float(digits) if math.isfinite(value) and value == single(float(digits)) else value


def computed(value: float) -> float:
    """The same, or else the fraction, the root of a whole number or one divided by such a root, that rounds to a float32."""
    decimal = written(value)
    if decimal != value or not math.isfinite(value):
        return decimal
    fraction = Fraction(value).limit_denominator(_DENOMINATOR)
    square = Fraction(value * value).limit_denominator(_RADICAND)
    root = math.copysign(math.sqrt(square), value) if 1 in (square.numerator, square.denominator) else value
    return next((number for number in (float(fraction), root) if single(number) == value), value)


def single(value: float) -> float:
    """The float32 that a number rounds to."""
    return ctypes.c_float(value).value
