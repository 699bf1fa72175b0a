"""Sigmoids and hyperbolic functions as what they are made of: quotients of sums whose logarithms they are taken of, and exponentials.

Parts of a softmax are merged by the logarithms of their sums: with ``a`` and ``b`` the sums of two parts, ``sigmoid(log a - log b)`` is ``a / (a + b)``.  Where one program
writes ``x / (1 + exp(-x))`` and the other ``silu(x)``, both are written out.
"""

from __future__ import annotations

from fractions import Fraction

from graphguard.relations.functions.exponentials import exponential
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import close, constant, normalise, powered, scaled, times
from graphguard.relations.terms.kernels import Ref, Terms, Universe


@rule(
    "sigmoid of logarithms",
    "functions",
    "`sigmoid(log a - log b)` = `a/(a + b)`",
    "two attention blocks merged by `sigmoid` of their `logsumexp` = attention over both",
    "function",
)
def sigmoid_of_logarithms(
    universe: Universe,
    name: str,  # noqa: ARG001 - as all rules of functions
    terms: Terms,
    extents: tuple[int, ...],
) -> Terms | None:
    """sigmoid(log a - log b) = a / (a + b), as one quotient; None where the terms have no logarithm.

    What a logarithm is taken of is positive, so neither a nor a + b is zero.
    """
    if not any(is_logarithm(ref) for _, ref in terms):
        return None
    if not all(coefficient.denominator == 1 for coefficient, ref in terms if is_logarithm(ref)):
        return None
    below = [(-coefficient, ref) for coefficient, ref in terms if is_logarithm(ref) and coefficient < 0]
    above = [term for term in terms if not (is_logarithm(term[1]) and term[0] < 0)]
    a = exponential(universe, tuple(above), extents)
    b = exponential(universe, tuple(below), extents)
    whole = powered(universe, normalise(universe, [*a, *b], extents), -1, extents)
    return times(universe, (close(universe, a, extents),), whole, extents)


@rule(
    "sigmoids as exponentials",
    "functions",
    "`sigmoid(x)` = `1 - 1/(1 + exp x)`; `tanh(x)` = `1 - 2/(1 + exp 2x)`; `cosh`, `sinh` as half sums",
    "`x * torch.sigmoid(x)` = `x / (1 + (-x).exp())`",
    "function",
)
def sigmoids_as_exponentials(universe: Universe, name: str, terms: Terms, extents: tuple[int, ...]) -> Terms | None:
    """A function of the terms as a sum of exponentials and of what is divided by them; None where it is none of these, or may be taken of infinity."""
    if not universe.exponential or any(ref[0].infinite for _, ref in terms):
        return None
    one = constant(universe, 1, extents)
    if name in ("cosh", "sinh"):
        falling = exponential(universe, scaled(universe, terms, -1, extents), extents)
        sign = 1 if name == "cosh" else -1
        both = [*exponential(universe, terms, extents), *((sign * c, ref) for c, ref in falling)]
        return scaled(universe, normalise(universe, both, extents), Fraction(1, 2), extents)
    if name not in ("sigmoid", "tanh"):
        return None
    times = 2 if name == "tanh" else 1
    rising = exponential(universe, scaled(universe, terms, times, extents), extents)
    share = powered(universe, normalise(universe, [*one, *rising], extents), -1, extents)
    return normalise(universe, [*one, *((-times * c, ref) for c, ref in share)], extents)


def is_logarithm(ref: Ref) -> bool:
    """Whether a reference looks at a logarithm."""
    return ref[0].kind == "function" and ref[0].name == "log"
