"""Exponentials and logarithms of sums: products, and masks of minus infinity told apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from graphguard.relations.algebra import Unsupported
from graphguard.relations.facts.signs import never_negative
from graphguard.relations.functions.diagonals import by_cases
from graphguard.relations.functions.exponents import counted_apart
from graphguard.relations.functions.functions import elementwise, known_number
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums import selected
from graphguard.relations.sums.linear import close, constant, indicator, normalise, reopened, times
from graphguard.relations.sums.masks import given, truth_cases
from graphguard.relations.sums.products import LARGEST_EXPONENT, Product, factorised, multiply, number_power
from graphguard.relations.sums.quotients import as_product, falling_sigmoid, logarithms, shared_exponentials
from graphguard.relations.terms.infinity import is_infinite
from graphguard.relations.terms.kernels import Factor, Number, Ref, Term, Terms, Universe
from graphguard.relations.terms.windows import refine, repeat, through

_EXPONENTS: Final = 48


@rule(
    "exponentials",
    "functions",
    "`exp(a + b)` = `exp(a) exp(b)`, `exp(log x)` = `x`, `exp(-inf)` = 0",
    "`(x + y).exp()` = `x.exp() * y.exp()`",
    "exponential",
)
def exponential(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """exp of a sum is the product of exps; exp(log x) is x, exp(-inf) is 0."""
    infinite = [term for term in terms if is_infinite(term[1])]
    if infinite:
        finite = tuple(term for term in terms if not is_infinite(term[1]))
        return _masked_exponential(universe, infinite, finite, extents)
    cases = counted_apart(universe, terms, extents)
    if cases is not None:
        each = [times(universe, guard, exponential(universe, case, extents), extents) for guard, case in cases]
        return normalise(universe, [term for row in each for term in row], extents)
    if len(terms) > _EXPONENTS:
        raise Unsupported("the exponential of a very long sum")
    items: list[tuple[Ref, Number]] = []
    factor: Number = 1
    for coefficient, ref in terms:
        kernel = ref[0]
        if kernel.kind == "function" and kernel.name == "log":
            inner = through(ref, kernel.factors[0])
            number = kernel.factors[0][1]
            if inner is not None and inner[0].kind == "one" and number > 0 and _is_short(coefficient):
                more, roots = number_power(universe, number, coefficient, extents)
                factor *= more
                items += roots
                continue
            if inner is not None and coefficient.denominator == 1:
                factor *= Fraction(kernel.factors[0][1]) ** int(coefficient)
                items.append((inner, coefficient))
                continue
        if len(terms) > 1 and selected.selects(universe, ((coefficient, ref),)):
            # as where it stands alone: selected from the exps of the table
            one = selected.acted(
                universe, [((coefficient, ref),)], extents, lambda rows, sizes: exponential(universe, rows[0], sizes)
            )
            if len(one) == 1:
                factor *= one[0][0]
                items.append((one[0][1], 1))
                continue
        items.append((elementwise(universe, "exp", (), 1, ref), coefficient))
    if not items:
        return constant(universe, factor, extents)
    more, ref = multiply(universe, items, extents)
    return reopened(universe, more * factor, ref)


def _is_short(exponent: Number) -> bool:
    return -LARGEST_EXPONENT <= exponent <= LARGEST_EXPONENT


def _masked_exponential(universe: Universe, infinite: list[Term], finite: Terms, extents: tuple[int, ...]) -> Terms:
    """exp(x + b * -inf), b a count of masks, is [b == 0] * exp(x)."""
    total = []
    for coefficient, ref in infinite:
        factor, mask = _without_infinity(universe, ref, extents)
        if factor:  # at known places a mask may turn out to be nowhere
            total.append((coefficient * factor, mask))
    count = normalise(universe, total, extents)
    guard = _none_of(universe, count, extents)
    if guard is not None and len(guard) == 1 and guard[0][0] == 1:
        finite = given(universe, finite, guard[0][1], extents)
        return times(universe, guard, exponential(universe, finite, extents), extents)
    return () if guard == () else _exponential_by_cases(universe, count, guard, finite, extents)


def _exponential_by_cases(
    universe: Universe, count: Terms, guard: Terms | None, finite: Terms, extents: tuple[int, ...]
) -> Terms:
    """[count == 0] exp(finite), every mask of the count taken as true and as false in turn; ``guard`` is [count == 0] where that is known."""
    cases: dict[Terms, list[Term]] = {}
    for holds, (number, value) in truth_cases(universe, count, finite, extents):
        level = known_number(number)
        if level is None or level < 0:
            raise Unsupported("an exponential of infinity")
        if level == 0:
            cases.setdefault(value, []).extend(holds)
    if len(cases) == 1 and guard is not None:
        return times(universe, guard, exponential(universe, next(iter(cases)), extents), extents)
    out: list[Term] = []
    for value, guards in cases.items():
        out += times(universe, normalise(universe, guards, extents), exponential(universe, value, extents), extents)
    return normalise(universe, out, extents)


def _without_infinity(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Term:
    """The mask that an infinity is multiplied by; its coefficient is 0 where the mask holds nowhere."""
    if ref[0].kind == "infinity":
        return 1, (universe.one, (), ref[2], ())
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    product.push(ref[0], 1, ref[3], list(ref[1]), used[0])
    kept = [part for part in product.parts if part.kernel.kind != "infinity"]
    if len(kept) != len(product.parts) - 1 or not all(part.kernel.truth for part in kept):
        raise Unsupported("an infinity that is multiplied by a number")
    product.parts = kept
    return product.finish()


def _none_of(universe: Universe, count: Terms, extents: tuple[int, ...]) -> Terms | None:
    """The indicator that a count of masks is zero, where that is a product of masks or the opposite of one; else None."""
    whole = sum(c for c, ref in count if ref[0].kind == "one")
    masks = [(c, ref) for c, ref in count if ref[0].kind != "one"]
    if not masks:
        if whole < 0:
            raise Unsupported("an exponential of infinity")
        return () if whole > 0 else constant(universe, 1, extents)
    if not all(indicator(ref) for _, ref in masks):
        raise Unsupported("an infinity that is multiplied by a number")
    if all(c == -1 for c, _ in masks) and whole == len(masks):
        guard: Terms = ((1, masks[0][1]),)
        for _, ref in masks[1:]:
            guard = times(universe, guard, ((1, ref),), extents)
        return guard
    if len(masks) == 1 and whole == 0 and masks[0][0] == 1:
        return normalise(universe, [*constant(universe, 1, extents), (-1, masks[0][1])], extents)
    return () if whole > 0 and all(c > 0 for c, _ in masks) else None


@rule(
    "logarithms",
    "functions",
    "`log(a b)` = `log a + log b` if all factors but one are nonnegative",
    "`(x.exp() * y.exp()).log()` = `x + y`",
    "logarithm",
)
def logarithm(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """log of a product whose factors are exponentials or a positive number; the rest stays under the logarithm."""
    if not terms:
        raise Unsupported("the logarithm of zero")
    if len(terms) == 1:
        return _logarithm_of(universe, terms[0], extents)
    joint = as_product(universe, terms, extents) if universe.exponential else None
    if joint is not None:
        return _logarithm_of(universe, joint, extents)
    falling = falling_sigmoid(terms)
    if falling is not None:
        share, line = falling
        return normalise(universe, [*_logarithm_of(universe, share, extents), line], extents)
    apart = _on_diagonals(universe, terms, extents) if universe.expand > 1 else None
    if apart is not None:
        return apart
    outside, terms = shared_exponentials(universe, terms, extents)
    out = [*_logarithm_of(universe, close(universe, terms, extents), extents)]
    for place, power in outside:
        out += ((power * c, inner) for c, inner in _logarithm_of(universe, (1, place), extents))
    return normalise(universe, out, extents) if outside else tuple(out)


def _on_diagonals(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms | None:
    """The logarithm of terms of which some count on a diagonal alone, if it could be taken of each case everywhere."""
    return by_cases(universe, terms, extents, lambda case: logarithm(universe, case, extents), _is_positive)


def _is_positive(terms: Terms) -> bool:
    falling = falling_sigmoid(terms)
    return bool(terms) and all(c > 0 and never_negative(ref[0]) for c, ref in ([falling[0]] if falling else terms))


def _logarithm_of(universe: Universe, term: Term, extents: tuple[int, ...]) -> Terms:
    coefficient, ref = term
    out: list[Term] = []
    if coefficient > 0 and coefficient != 1:
        out += _log_number(universe, coefficient, extents)
        coefficient = 1
    elif coefficient < 0:
        return ((1, elementwise(universe, "log", (), coefficient, ref)),)
    kernel = ref[0]
    if kernel.kind == "one":
        return normalise(universe, out, extents)
    if kernel.kind == "function" and kernel.name == "exp":
        inner = through(ref, kernel.factors[0])
        if inner is not None:
            return normalise(universe, [*out, (kernel.factors[0][1], inner)], extents)
    if kernel.kind == "product":
        pulled, rest = _pull_exponentials(universe, ref, extents)
        out += pulled
        if rest is None:
            return normalise(universe, out, extents)
        factor, ref = rest
        if factor <= 0:
            raise Unsupported("the logarithm of a negative number")
        out += _log_number(universe, factor, extents)
        if ref[0].kind == "one":
            return normalise(universe, out, extents)
        parts = logarithms(universe, ref, extents) if ref[0].kind == "product" else None
        if parts is not None:
            for power, part in parts:
                out += ((power * c, inner) for c, inner in _logarithm_of(universe, part, extents))
            return normalise(universe, out, extents)
    power, ref = _without_power(ref)
    out.append((power, elementwise(universe, "log", (), 1, ref)))
    return normalise(universe, out, extents)


def _without_power(ref: Ref) -> tuple[Number, Ref]:
    """Under a logarithm: the exponent and the base of an odd or broken power, whose base is as positive as the power is."""
    kernel = ref[0]
    if kernel.kind != "product" or kernel.reduced or len(kernel.factors) != 1:
        return 1, ref
    factor = kernel.factors[0]
    base = through(ref, factor)
    if base is None or Fraction(factor[1]).numerator % 2 == 0:
        return 1, ref
    return factor[1], base


def _log_number(universe: Universe, value: Number, extents: tuple[int, ...]) -> Terms:
    out: list[Term] = []
    for base, sign in ((value.numerator, 1), (value.denominator, -1)):
        for prime, count in factorised(base):
            kernel = universe.function("log", (), prime, universe.one, ())
            out.append((sign * count, (kernel, (), tuple(map(repeat, extents)), ())))
    return tuple(out)


def _pull_exponentials(
    universe: Universe, ref: Ref, extents: tuple[int, ...]
) -> tuple[list[Term], tuple[Number, Ref] | None]:
    """Exponential factors outside every sum, as the terms of the logarithm; and what is left."""
    kernel = ref[0]
    free = len(kernel.shape)
    pulled: list[Term] = []
    kept: list[Factor] = []
    for factor in kernel.factors:
        outside = not any(label >= free for _, label, _ in factor[4])
        if outside and factor[0].kind == "function" and factor[0].name == "exp":
            place = through(ref, factor)
            inner = through(place, factor[0].factors[0]) if place is not None else None
            if inner is not None:
                pulled.append((factor[1] * factor[0].factors[0][1], inner))
                continue
        kept.append(factor)
    if not kept:
        return pulled, None
    if not pulled:
        return [], (1, ref)
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    product.include(kept, free, 1, ref[3], list(ref[1]), used[0])
    return pulled, product.finish()
