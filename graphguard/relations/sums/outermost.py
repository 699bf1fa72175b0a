"""Maxima of products: a positive factor that is the same all along what is maximised stands outside, and so does the exponential.

``max(softmax(x))`` is ``exp(max(x)) / sum(exp(x))``, so every rank's largest probability, over the sum of all, is seen to be one by its largest logit.
"""

from __future__ import annotations

from graphguard.relations.facts.signs import positive_power
from graphguard.relations.sums.products import multiply
from graphguard.relations.sums.quotients import clusters
from graphguard.relations.terms.kernels import Number, Ref, Term, Universe


def positive_factor(
    universe: Universe, ref: Ref, extents: tuple[int, ...], summed: tuple[int, ...]
) -> tuple[Number, Ref, Term] | None:
    """A product as a number, a positive factor that does not vary along some dims, and the rest; None where it has no such factor."""
    if ref[0].kind != "product" or not any(positive_power(factor) for factor in ref[0].factors):
        return None
    parts = clusters(universe, ref, extents)
    still = [part for part in parts if not _varies(part.ref, summed) and all(map(positive_power, part.factors))]
    moving = [part for part in parts if part not in still]
    if not still or not moving:
        return None
    number: Number = 1
    for part in parts:
        number = number * part.coefficient
    outside, factor = multiply(universe, [(part.ref, 1) for part in still], extents)
    inside, rest = multiply(universe, [(part.ref, 1) for part in moving], extents)
    if rest[0] is ref[0]:  # what was taken out is in it again, as it is read at another place: nothing is won
        return None
    return number * outside, factor, (inside, rest)


def is_exponential(ref: Ref) -> bool:
    """Whether a reference is the exponential of something, elementwise."""
    kernel = ref[0]
    if kernel.kind == "product":
        return not kernel.reduced and all(part.kind == "function" and part.name == "exp" for part, *_ in kernel.factors)
    return kernel.kind == "function" and kernel.name == "exp"


def _varies(ref: Ref, dims: tuple[int, ...]) -> bool:
    return any(digit[0] >= 0 for dim in dims for digit in ref[2][dim])
