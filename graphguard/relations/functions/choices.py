"""Choices between two numbers by a comparison of them: the larger or the smaller."""

from __future__ import annotations

from graphguard.relations.functions.maxima import larger
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import close, normalise
from graphguard.relations.terms.infinity import is_infinite
from graphguard.relations.terms.kernels import Ref, Terms, Universe
from graphguard.relations.terms.windows import through


@rule(
    "choices",
    "functions",
    "a choice by comparing two numbers is the larger or the smaller",
    "`torch.where(x > y, x, y)` = `torch.maximum(x, y)`",
    "choice",
)
def compared_choice(universe: Universe, condition: Terms, x: Terms, y: Terms, extents: tuple[int, ...]) -> Terms | None:
    """x where the condition holds, else y, if the condition says which of them is larger (where they are equal either will do); None where it does not."""
    asked = _asked(condition)
    if asked is None or any(is_infinite(ref) for _, ref in (*x, *y)):
        return None
    sign, base = asked
    coefficient, ref = close(universe, normalise(universe, [*x, *((-c, r) for c, r in y)], extents), extents)
    if ref != base or not coefficient:
        return None
    if sign * coefficient > 0:
        return larger(universe, [x, y], extents)
    opposite = larger(universe, [tuple((-c, r) for c, r in terms) for terms in (x, y)], extents)
    return normalise(universe, [(-c, r) for c, r in opposite], extents)


def _asked(condition: Terms) -> tuple[int, Ref] | None:
    """Of which value a condition says that it is more than zero (sign 1), or that it is less (sign -1)."""
    coefficient, ref = condition[-1] if condition else (0, None)
    constants = [c for c, other in condition if other[0].kind == "one"]
    if (
        ref is None
        or abs(coefficient) != 1
        or len(condition) - len(constants) != 1
        or sum(constants) != (1 - coefficient) // 2
    ):
        return None
    kernel = ref[0]
    if kernel.kind != "function" or kernel.name not in ("gt0", "ge0") or kernel.factors[0][0].kind == "iota":
        return None
    base = through(ref, kernel.factors[0])
    return None if base is None or kernel.factors[0][1] <= 0 else (int(coefficient), base)
