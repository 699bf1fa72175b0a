"""Powers of sums within products: roots of multiples, powers that are written out, sums that are divided by themselves."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from graphguard.relations.rewrite.rule import Outcome, rule
from graphguard.relations.sums.products import INLINED, POWERS, Product, compose, expressions_over
from graphguard.relations.terms.kernels import Expression, Kernel, Number, Window
from graphguard.relations.terms.parts import Part

_SECTION: Final = "products"


@rule(
    "roots of multiples",
    _SECTION,
    "`(c x)^p` = `c^p x^p` for integer `p`, and `(c x)^p x^n` = `c^-n (c x)^(p + n)`",
    "`(-(x - x.amax(-1, True))).sqrt() ** 2` = `x.amax(-1, True) - x`",
    "product",
)
def roots_of_multiples(product: Product) -> Outcome:
    """A root is taken of a sum's negative multiple: where the power has become whole it comes out, and whole powers beside it join it otherwise."""
    outcome = Outcome.SAME
    for part in [each for each in product.parts if each.kernel.kind == "sum" and len(each.kernel.factors) == 1]:
        inner, multiple = part.kernel.factors[0][:2]
        same = _multiplied(part)
        if part.payload.denominator == 1:
            product.parts = [each for each in product.parts if each is not part]
            product.coefficient *= Fraction(multiple) ** int(part.payload)
            product.push(inner, part.payload, same.window, same.offsets, same.expressions)
            outcome = Outcome.CHANGED
            continue
        for other in product.parts:
            if other.payload.denominator == 1 and other.payload and _place(other) == _place(same):
                product.coefficient /= Fraction(multiple) ** int(other.payload)
                part.payload += other.payload
                other.payload = 0
                outcome = Outcome.CHANGED
    product.open_deferred()
    return outcome


def _multiplied(part: Part) -> Part:
    """What a sum of one term is a multiple of, at its place."""
    places: list[list[tuple[int, int]]] = [[] for _ in part.kernel.shape]
    for label, digit, stride in part.expressions:
        places[label].append((digit, stride))
    inner, _, window, base, steps = part.kernel.factors[0]
    moved, composed = compose(base, steps, part.offsets, places)
    return Part(inner, 1, window, moved, sorted(composed))


def _place(part: Part) -> tuple[Kernel, Window, list[int], list[Expression]]:
    return part.kernel, part.window, part.offsets, part.expressions


@rule(
    "powers of sums of products",
    _SECTION,
    "`(sum of f)^n` = `(sum of f) ... (sum of f)` for `n` up to 4, where no quotient cancels it",
    "`(x @ w) ** 2` = `(x @ w) * (x @ w)`",
    "product",
)
def powers_written_out(product: Product) -> Outcome:
    """Whole powers of reduced products become products again."""
    again = [part for part in product.parts if part.kernel.kind == "product" and _opens(part)]
    if not again:
        return Outcome.SAME
    product.parts = [part for part in product.parts if part not in again]
    for part in again:
        for _ in range(int(part.payload)):
            product.include(part.kernel.factors, len(part.kernel.shape), 1, part.window, part.offsets, part.expressions)
    product.open_deferred()
    return Outcome.CHANGED


def _opens(part: Part) -> bool:
    """Whether a power of a sum is written out, where no quotient was there to cancel it."""
    power = part.payload
    return bool(power.denominator == 1 and 1 <= power <= POWERS and len(part.kernel.factors) <= INLINED)


@rule(
    "sums over themselves",
    _SECTION,
    "`(sum over u, v of a(v) e(u)) / (sum over u of e(u))` = `sum over v of a(v)`",
    "`(y.exp() / y.exp().sum(-1, True)).sum(-1)` = `torch.ones(4)`",
    "product",
)
def sums_over_themselves(product: Product) -> Outcome:
    """Take out factors whose sum is a divisor."""
    for divisor in product.parts if product.reduced else ():
        if divisor.kernel.kind != "product" or not divisor.kernel.reduced or divisor.payload > -1:
            continue
        wanted = sorted([(factor[0].id, factor[1]) for factor in divisor.kernel.factors])
        for digit in product.reduced:
            tied = [part for part in product.parts if any(other == digit for _, other, _ in part.expressions)]
            if sorted([(part.kernel.id, part.payload) for part in tied]) == wanted:
                coefficient = _sum_of(product, tied, divisor)
                if coefficient is not None:
                    product.coefficient *= coefficient
                    divisor.payload += 1
                    product.parts = [part for part in product.parts if part not in tied]
                    return Outcome.CHANGED
    return Outcome.SAME


def _sum_of(product: Product, tied: list[Part], divisor: Part) -> Number | None:
    """The factor by which the sum of some factors, over all digits that only they have, is a divisor; None where it is another sum."""
    others = {digit for part in product.parts if part not in tied for _, digit, _ in part.expressions}
    used = sorted({digit for part in tied for _, digit, _ in part.expressions})
    own = [digit for digit in used if digit in product.reduced and digit not in others]
    free = [digit for digit in used if digit not in own]
    place = {digit: index for index, digit in enumerate([*free, *own])}
    sizes, count = [product.sizes[digit] for digit in place], len(free)
    summed = Product(product.universe, sizes, [[index] for index in range(count)], set(range(count, len(place))))
    for part in tied:
        steps = [(axis, place[digit], stride) for axis, digit, stride in part.expressions]
        summed.parts.append(Part(part.kernel, part.payload, part.window, list(part.offsets), steps))
    coefficient, (kernel, offsets, dims, window) = summed.finish()
    found = (kernel, list(offsets), expressions_over(dims, free), window)
    if found != (divisor.kernel, divisor.offsets, divisor.expressions, divisor.window):
        return None
    product.reduced.difference_update(own)
    return coefficient
