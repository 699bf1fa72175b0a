"""Sigmoids and hyperbolic functions as exponentials, for programs of which one writes them out: ``x / (1 + exp(-x))`` is ``silu(x)``.

With ``e = exp(t)`` and ``d = 1 / (1 + e)``: ``sigmoid(t)`` is ``1 - d``, and ``tanh(t)`` is ``1 - 2 / (1 + e^2)``.  Where a product has both, ``e d`` is ``1 - d``, so
that no exponential is left beside a divisor that has it, and every polynomial in e and d has one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, reopened
from graphguard.relations.sums.products import multiply
from graphguard.relations.sums.quotients import divisors, exponentials, is_growing, rewritten, terms_through
from graphguard.relations.terms.kernels import Number, Ref, Term, Terms, Universe, quotient
from graphguard.relations.terms.windows import through


@rule(
    "exponentials beside divisors",
    "quotients",
    "`x e / (a + b e)` = `x / b - (a / b) x / (a + b e)`",
    "`x.exp() / (1 + x.exp())` = `1 - 1 / (1 + x.exp())`",
    "product of terms",
)
def reduced(universe: Universe, coefficient: Number, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    """``x e / (a + b e)`` as ``x / b - (a / b) x / (a + b e)``; None where a product has no such exponential beside such a divisor.

    Of a divisor ``a f + b e`` of two exponentials it is always the same one that goes.
    """
    if not universe.exponential or ref[0].kind != "product" or not divisors(ref[0]):
        return None
    return rewritten(universe, _reduced, coefficient, ref, extents)


def _reduced(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    powers = exponentials(ref)
    for divisor in divisors(ref[0]):
        whole, parts = through(ref, divisor), terms_through(ref, divisor)
        if whole is None or parts is None or len(parts) != 2 or not all(is_growing(part) for _, part in parts):
            continue
        (start, stays), (slope, goes) = _in_order(parts)
        if _has(powers, goes, 1):
            first, second, over, under = goes, stays, slope, start
        elif _has(powers, goes, -1) and _has(powers, stays, 1):
            first, second, over, under = stays, goes, start, slope
        else:
            continue
        # x first / d = x / over - (under / over) x second / d
        factor, without = multiply(universe, [(ref, 1), (first, -1)], extents)
        more, beside = multiply(universe, [(without, 1), (whole, 1)], extents)
        other, rest = multiply(universe, [(without, 1), (second, 1)], extents)
        left = quotient(-under * factor * other, over)
        if rest == ref:  # both exponentials are of one index, and in one ratio everywhere: y = x / over + left y
            return reopened(universe, quotient(factor * more, over * (1 - left)), beside) if left != 1 else None
        terms = [*reopened(universe, quotient(factor * more, over), beside), *reopened(universe, left, rest)]
        return normalise(universe, terms, extents)
    return None


def _has(powers: dict[Ref, Number], exponential: Ref, sign: int) -> bool:
    """Whether a product with these powers of exponentials has this one, or what it is divided by, as a factor."""
    return all(sign * powers.get(place, 0) >= power for place, power in exponentials(exponential).items())


def _in_order(parts: Sequence[Term]) -> list[Term]:
    """Products of exponentials, the smaller first: by the powers of one exponential after another.

    All divisors agree on this order, and it stays the same when both are multiplied by something; else ``f g / ((f + g) (f^2 + g^2))`` would go round in circles.
    """
    powers = [exponentials(ref) for _, ref in parts]
    places = sorted({place for known in powers for place in known}, key=_place, reverse=True)
    rows = [([known.get(place, 0) for place in places], part) for part, known in zip(parts, powers, strict=True)]
    return [part for _, part in sorted(rows, key=lambda row: row[0])]


def _place(ref: Ref) -> tuple[Any, ...]:
    kernel, offsets, dims, window = ref
    return (kernel.id, offsets, dims, window)
