"""Signs: what is seen of a kernel alone, that its values are zero or more, or more than zero; False is always a right answer."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from graphguard.relations.terms.kernels import UNBOUNDED, Factor, Kernel, Number, Window
from graphguard.relations.terms.orientation import is_step

_POSITIVE: Final = frozenset(("exp", "sigmoid", "abs"))


def never_negative(kernel: Kernel) -> bool:
    """Whether all values of a kernel are seen to be zero or more."""
    if kernel.truth or kernel.kind in ("one", "number", "onehot"):
        return True
    if kernel.kind == "function":
        return kernel.name in _POSITIVE
    if kernel.kind == "product":
        return all(never_negative(factor[0]) or nonnegative_power(factor[1]) for factor in kernel.factors)
    if kernel.kind == "sum":
        return all(factor[1] > 0 and never_negative(factor[0]) for factor in kernel.factors)
    if kernel.kind == "max":
        return kernel.factors[0][1] > 0 and never_negative(kernel.factors[0][0])
    return False


def nonnegative_power(power: Number) -> bool:
    """Whether a power of any real number is zero or more: an even one, or a root that only such numbers have."""
    power = Fraction(power)
    return power.numerator % 2 == 0 or power.denominator % 2 == 0


def positive_power(factor: Factor) -> bool:
    """Whether a power of a kernel is more than zero everywhere; what is divided by is not zero."""
    kernel, power = factor[:2]
    return positive(kernel) or (power < 0 and never_negative(kernel))


def positive(kernel: Kernel) -> bool:
    """Whether all values of a kernel are seen to be more than zero."""
    if kernel.kind in ("one", "number"):
        return True
    if kernel.kind == "function":
        return kernel.name in ("exp", "sigmoid")
    if kernel.kind == "product":
        return all(map(positive_power, kernel.factors))
    if kernel.kind == "sum":
        above = all(factor[1] > 0 and never_negative(factor[0]) for factor in kernel.factors)
        return above and any(positive(factor[0]) for factor in kernel.factors)
    return False


def positive_within(kernel: Kernel, window: Window) -> bool:
    """Whether a kernel is seen to be more than zero at all its places: an exponential, a sum of some that a mask never hides all of, squares and a constant."""
    if kernel.kind == "function":
        return kernel.name == "exp"
    if kernel.kind == "one":
        return True
    if kernel.kind == "sum":
        terms = [(factor[0], factor[2]) for factor in kernel.factors if factor[1] > 0]
        least = len(terms) == len(kernel.factors) and all(_never_negative_within(*term) for term in terms)
        return least and any(positive_within(*term) for term in terms)
    if kernel.kind != "product":
        return False
    masks = [factor for factor in kernel.factors if is_step(factor[0]) and factor[1] == 1]
    others = [factor for factor in kernel.factors if factor not in masks]
    return (
        len(masks) <= 1
        and all(positive_within(f[0], f[2]) for f in others)
        and all(_shows(kernel, window, m) for m in masks)
    )


def _never_negative_within(kernel: Kernel, window: Window) -> bool:
    """Whether a kernel is seen to be nowhere below zero: a truth, or products of even powers and of what is itself nowhere below."""
    if kernel.truth or positive_within(kernel, window):
        return True
    return kernel.kind == "product" and all(
        (factor[1] % 2 == 0 and not factor[0].infinite) or _never_negative_within(factor[0], factor[2])
        for factor in kernel.factors
    )


def _shows(kernel: Kernel, window: Window, mask: Factor) -> bool:
    """Whether wherever one looks, some place of the sum is under a mask that is 1 there; along an index that may be any integer one looks below it as well."""
    free = len(kernel.shape)
    index = mask[3][0]
    for _, label, stride in mask[4]:
        if label < free and kernel.shape[label] == UNBOUNDED:
            return False
        if label < free:
            index += min(0, stride * (kernel.shape[label] - 1))
        else:
            low, high = window[label - free]
            index += max(stride * low, stride * (high - 1))
    return index > 0
