"""Number literals of a program, as exact numbers.

A float literal is the double next to the number that was meant.  Two programs that mean the same number may hold different
doubles (``64 ** -0.5`` and ``1 / 8``, ``1 / math.sqrt(128)`` and ``128 ** -0.5``), so a literal is read as the simplest number
it is the rounding of: a short decimal, a small ratio times the square root of a small integer or times or over the logarithm of 2 or 10 (for each of which
one fixed rational stands), or a ratio with a denominator below 2**24.  The error is below 1e-15 relative, less than that of one float64 operation.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

TOLERANCE: Final = 1e-15
LARGEST_DENOMINATOR: Final = 2**24
LARGEST_RADICAND: Final = 2**20
SHORT_DECIMAL: Final = 12
LOGARITHMS: Final = tuple(Fraction(math.log(base)) for base in (2, 10))
LARGEST_MULTIPLE: Final = 1 << 10  # of a logarithm, and largest part


@lru_cache(maxsize=4096)
def meant(number: float) -> Fraction | float:
    """The number that a literal means; infinities and not-a-number stay floats."""
    if not math.isfinite(number):
        return number
    if number == int(number):
        return Fraction(int(number))
    return _decimal(number) or _root(number) or _logarithm(number) or _ratio(number) or Fraction(number)


def _decimal(number: float) -> Fraction | None:
    text = repr(number)
    digits = text.partition("e")[0].replace(".", "").replace("-", "").strip("0")
    return Fraction(text) if len(digits) <= SHORT_DECIMAL else None


def _ratio(number: float) -> Fraction | None:
    ratio = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    return ratio if ratio and _near(float(ratio), number) else None


def _root(number: float) -> Fraction | None:
    """(a / b) * root(s) for a squarefree s: the square is a simple ratio (p / q = p q / q**2, and p q = a**2 s)."""
    square = (Fraction(number) ** 2).limit_denominator(LARGEST_RADICAND)
    if not square or square.numerator > LARGEST_RADICAND or not _near(math.sqrt(square), abs(number)):
        return None
    product = square.numerator * square.denominator
    if product > LARGEST_RADICAND:
        return None
    outside, inside = _square_part(product)
    sign = 1 if number > 0 else -1
    return sign * Fraction(outside, square.denominator) * Fraction(math.sqrt(inside))


def _logarithm(number: float) -> Fraction | None:
    """A small ratio times, or over, the logarithm of 2 or 10: what converts to another base and back is one."""
    for logarithm in LOGARITHMS:
        for unit in (logarithm, 1 / logarithm):
            times = (Fraction(number) / unit).limit_denominator(LARGEST_MULTIPLE)
            if 0 < abs(times.numerator) <= LARGEST_MULTIPLE and _near(float(times * unit), number):
                return times * unit
    return None


def _square_part(number: int) -> tuple[int, int]:
    """The (a, s) with number = a * a * s and s squarefree."""
    outside, divisor = 1, 2
    while divisor * divisor <= number:
        while number % (divisor * divisor) == 0:
            number //= divisor * divisor
            outside *= divisor
        divisor += 1
    return outside, number


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)
