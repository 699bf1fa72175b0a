"""Means over what a mask counts, times that count: what is divided by at least one was empty where it is divided by more than it counts.

``(loss * mask).sum() / mask.sum().clamp(min=1) * mask.sum()`` is ``(loss * mask).sum()``: micro-batches are weighed by their tokens in this way.  Where the count is zero, so is the
sum, for the mask is zero everywhere; elsewhere the count cancels.
"""

from __future__ import annotations

from graphguard.relations.facts.intervals import between
from graphguard.relations.functions.integers import larger_integer
from graphguard.relations.rewrite.rule import Outcome, rule
from graphguard.relations.sums.linear import close
from graphguard.relations.sums.products import Product, expressions_over
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import repeat


@rule(
    "means over counts",
    "products",
    "`(sum of m) (sum of m x) / max(sum of m, 1)` = `sum of m x`, for whole numbers m that are seen not to be negative",
    "`n.sum() * (n * keys[:, None]).sum() / n.sum().clamp(min=1)` = `(n * keys[:, None]).sum()`",
    "product",
)
def means_over_counts(product: Product) -> Outcome:
    """Take out a count and what divides by it, or by one, beside another factor that is zero where all that is counted is."""
    for divisor in product.parts if product.reduced else ():
        if divisor.kernel.kind != "sum" or divisor.payload > -1 or divisor.payload.denominator != 1:
            continue
        for counted in product.parts:
            own = _own(product, counted) if counted.payload == 1 else set()
            if (
                own
                and _is_whole(counted)
                and _stays(product, counted, own)
                and _divides(product, counted, own, divisor)
            ):
                product.parts = [part for part in product.parts if part is not counted]
                product.reduced -= own
                divisor.payload += 1
                return Outcome.CHANGED
    return Outcome.SAME


def _own(product: Product, part: Part) -> set[int]:
    """The digits that only one factor is summed over."""
    others = {digit for each in product.parts if each is not part for _, digit, _ in each.expressions}
    return {digit for _, digit, _ in part.expressions if digit in product.reduced and digit not in others}


def _is_whole(part: Part) -> bool:
    """Whether what is counted is seen to be whole numbers, none of them negative."""
    ends = between((part.kernel, (), (), part.window))
    return ends is not None and ends[0] >= 0


def _stays(product: Product, counted: Part, own: set[int]) -> bool:
    """Whether another factor is one of the numbers that are counted, wherever it is looked at."""
    for part in product.parts:
        alike = part.kernel is counted.kernel and part.window == counted.window and part.offsets == counted.offsets
        if part is counted or not alike or part.payload < 1 or len(part.expressions) != len(counted.expressions):
            continue
        places: dict[int, int] = {}
        for (axis, digit, stride), (other, place, step) in zip(counted.expressions, part.expressions, strict=True):
            if (axis, stride) != (other, step) or product.sizes[digit] != product.sizes[place]:
                break
            if places.setdefault(digit, place) != place or (digit not in own and digit != place):
                break
        else:
            return True
    return False


def _divides(product: Product, counted: Part, own: set[int], divisor: Part) -> bool:
    """Whether a factor divides by the larger of the count and one."""
    used = sorted({digit for _, digit, _ in counted.expressions})
    free, summed = [digit for digit in used if digit not in own], [digit for digit in used if digit in own]
    place = {digit: index for index, digit in enumerate([*free, *summed])}
    extents = tuple(product.sizes[digit] for digit in free)
    count = Product(
        product.universe,
        [product.sizes[digit] for digit in place],
        [[index] for index in range(len(free))],
        set(range(len(free), len(place))),
    )
    steps = [(axis, place[digit], stride) for axis, digit, stride in counted.expressions]
    count.parts.append(Part(counted.kernel, 1, counted.window, list(counted.offsets), steps))
    one = (product.universe.one, (), tuple(map(repeat, extents)), ())
    larger = larger_integer(product.universe, (count.finish(),), ((1, one),), extents)
    if larger is None:
        return False
    coefficient, (kernel, offsets, dims, window) = close(product.universe, larger, extents)
    found = (kernel, list(offsets), expressions_over(dims, free), window)
    return coefficient == 1 and found == (divisor.kernel, divisor.offsets, divisor.expressions, divisor.window)
