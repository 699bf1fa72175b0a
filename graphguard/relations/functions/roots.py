"""Square roots among a program's numbers, for which one fixed rational stands (``rules/basis/scalars``): taken apart again where products are written out.

``norm / math.sqrt(30)`` and ``(square / 30).sqrt()`` have one form only if both have the roots of 2, 3 and 5 as factors.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod, sqrt
from typing import Final

from graphguard.relations.sums.products import factorised
from graphguard.relations.terms.kernels import Number

_RATIONAL: Final = 1 << 24  # the largest denominator of a number that is meant as a ratio
_RADICAND: Final = 1 << 20


@lru_cache(maxsize=1024)
def as_root(number: Number) -> tuple[Fraction, int] | None:
    """The (a, s) with s squarefree and a number that stands for ``a * root(s)``; None of any other."""
    if number.denominator < _RATIONAL:
        return None
    square = (Fraction(number) ** 2).limit_denominator(_RADICAND)
    product = square.numerator * square.denominator
    if not 0 < product <= _RADICAND:
        return None
    inside = prod(prime for prime, count in factorised(product) if count % 2)
    ratio = Fraction(isqrt(product // inside), square.denominator) * (1 if number > 0 else -1)
    return (ratio, inside) if inside > 1 and ratio * Fraction(sqrt(inside)) == number else None
