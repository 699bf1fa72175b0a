"""Functions of sums of which some terms count on a diagonal alone: ``f(t + [i == j] u)`` is ``[i == j] f(t + u) + (1 - [i == j]) f(t)``.

So a loss that takes other signs for partners than for strangers is, wherever there are only strangers, what a loss without partners is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, times
from graphguard.relations.sums.masks import taken_apart, truth_cases
from graphguard.relations.terms.kernels import Ref, Terms, Universe
from graphguard.relations.terms.orientation import is_delta

_EQUATIONS: Final = 2  # that are told apart


@rule(
    "functions on diagonals",
    "functions",
    "`f(t + [i = j] u)` = `[i = j] f(t + u) + [not i = j] f(t)`",
    "a loss whose partners have another sign = that of strangers where there are no partners",
    "act by cases",
)
def by_cases(
    universe: Universe,
    terms: Terms,
    extents: tuple[int, ...],
    act: Callable[[Terms], Terms],
    within: Callable[[Terms], bool] | None = None,
) -> Terms | None:
    """A function of the terms, as what it is where equations on positions hold and where they do not; None where no term has one, or a case is not ``within`` the
    function's domain, in which it must lie where the equations say otherwise as well.
    """
    equal = {truth for _, ref in terms for truth, _ in taken_apart(universe, ref, extents) if is_equation(truth)}
    others = {truth for _, ref in terms for truth, _ in taken_apart(universe, ref, extents)} - equal
    if not equal or others or len(equal) > _EQUATIONS or any(ref[0].infinite for _, ref in terms):
        return None
    cases = [(guard, value) for guard, (value, _) in truth_cases(universe, terms, (), extents)]
    if within is not None and not all(within(value) for _, value in cases):
        return None
    return normalise(
        universe, [term for guard, value in cases for term in times(universe, guard, act(value), extents)], extents
    )


def is_equation(truth: Ref) -> bool:
    """Whether a truth only says that positions are equal."""
    kernel = truth[0]
    if kernel.kind == "product":
        return bool(kernel.factors) and all(is_delta(factor[0]) for factor in kernel.factors)
    return is_delta(kernel)
