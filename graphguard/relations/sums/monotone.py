"""What a function that only looks at the order of a line sees: strictly increasing functions, shifts and positive factors make no difference to it.

``topk(softmax(x))`` stands where ``topk(x)`` does, and so do those of ``x / T``, of ``log_softmax(x)`` and of ``sigmoid(x)``.
"""

from __future__ import annotations

from typing import Final

from graphguard.relations.facts.signs import positive, positive_power
from graphguard.relations.sums.linear import close, opened
from graphguard.relations.sums.products import multiply
from graphguard.relations.sums.quotients import clusters, factors_outside, shared_factors
from graphguard.relations.terms.kernels import Number, Ref, Term, Terms, Universe
from graphguard.relations.terms.windows import through

#: Functions that are strictly increasing wherever they are defined.
_INCREASING: Final = frozenset(("exp", "log", "sigmoid", "tanh", "erf", "atan", "asin", "sinh", "log1p", "expm1"))
_DEPTH: Final = 16


def like_ordered(universe: Universe, terms: Terms, extents: tuple[int, ...], dim: int) -> Terms:
    """Terms in the same order along a dim, equal ones included, on every line: the innermost that are seen to be; none where all elements are equal."""
    for _ in range(_DEPTH):
        inside = tuple(term for term in terms if _varies(term[1], dim))
        if not inside or any(ref[0].infinite for _, ref in terms):
            return inside if not any(ref[0].infinite for _, ref in terms) else terms
        coefficient, ref = close(universe, inside, extents)
        sign = 1 if coefficient > 0 else -1
        terms = ((sign, ref),)
        further = _further(universe, terms[0], extents, dim)
        if further is None:
            return terms
        terms = further
    return terms


def _further(universe: Universe, term: Term, extents: tuple[int, ...], dim: int) -> Terms | None:
    """Terms in the order of one reference, one step closer to what they are made of."""
    sign, ref = term
    kernel = ref[0]
    if kernel.kind == "sum":
        terms = opened(ref)
        fewer = () if terms is None else tuple((sign * c, part) for c, part in terms if _varies(part, dim))
        return fewer if terms is not None and len(fewer) < len(terms) else None
    if kernel.kind == "function" and kernel.name in _INCREASING:
        inner = through(ref, kernel.factors[0])
        return None if inner is None else ((sign * kernel.factors[0][1], inner),)
    if kernel.kind == "product":
        return _varying_factor(universe, sign, ref, extents, dim)
    return None


def _varying_factor(universe: Universe, sign: Number, ref: Ref, extents: tuple[int, ...], dim: int) -> Terms | None:
    """The factors of a product that vary along the dim, together, where all others are positive; of a power of a positive number, the number."""
    parts = clusters(universe, ref, extents)
    moving = [part for part in parts if _varies(part.ref, dim)]
    still = [part for part in parts if not _varies(part.ref, dim)]
    if not moving or not all(map(positive_power, (factor for part in still for factor in part.factors))):
        return None
    for part in parts:
        sign = sign if part.coefficient > 0 else -sign
    if len(moving) > 1:
        if not still:
            return None
        factor, together = multiply(universe, [(part.ref, 1) for part in moving], extents)
        return ((sign if factor > 0 else -sign, together),) if factor else None
    (first, *others), whole = moving[0].factors, moving[0].ref
    base = through(ref, first) if not others and not moving[0].labels and positive(first[0]) else None
    if base is not None:
        return ((sign if first[1] > 0 else -sign, base),)
    return ((sign, whole),) if len(parts) > 1 else None


def like_signed(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """Terms of the same sign everywhere, without positive factors: what is divided by is multiplied with instead, where that is positive."""
    return shared_factors(universe, terms, extents, _positive_factors)[1]


def _positive_factors(ref: Ref) -> dict[Ref, Number]:
    if ref[0].kind == "function" and positive(ref[0]):
        return {ref: 1}
    return factors_outside(ref, positive_power)


def _varies(ref: Ref, dim: int) -> bool:
    return any(digit[0] >= 0 for digit in ref[2][dim])
