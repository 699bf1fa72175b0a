"""Functions of linear combinations: exponentials, logarithms, maxima, uninterpreted functions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, Final

from graphguard.relations import selected
from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.building import build
from graphguard.relations.domains import Part
from graphguard.relations.hyperbolic import as_product, written_out
from graphguard.relations.kernels import Factor, Kernel, Number, Ref, Term, Terms, Universe, Window, order
from graphguard.relations.linear import close, constant, exact, indicator, normalise, reopened, scaled, times
from graphguard.relations.masks import given, truth_cases
from graphguard.relations.outermost import is_exponential, positive_factor
from graphguard.relations.products import Product, factorised, multiply
from graphguard.relations.quotients import falling_sigmoid, logarithms, logistic, never_negative, shared_exponentials
from graphguard.relations.truths import largest_truth
from graphguard.relations.windows import refine, repeat, through

INFINITY: Final = "-inf"
_EXPONENTS: Final = 48
_EVEN: Final = frozenset(("cos", "abs"))
_ODD: Final = frozenset(("sin", "tanh", "erf", "sign", "tan", "asin", "atan", "sinh"))
_TO_WHOLE: Final = frozenset(("floor", "ceil", "round", "trunc"))
_RELATIVE: Final = frozenset(
    ("float32", "bfloat16", "float16")
)  # types that round by a part of the number, for all numbers of ordinary size
_ROUNDING: Final = frozenset(("cast", "floor", "ceil", "round", "trunc"))


def infinity(universe: Universe) -> Kernel:
    """Minus infinity, which only masks may multiply."""
    return universe.intern(("infinity",), "infinity", INFINITY, (), ())


def minus_infinity(universe: Universe, extents: tuple[int, ...]) -> Terms:
    """Minus infinity everywhere."""
    return ((1, (infinity(universe), (), tuple(map(repeat, extents)), ())),)


def is_infinite(ref: Ref) -> bool:
    """Whether a reference has minus infinity as a factor."""
    return ref[0].infinite


# -- exp and log


def exponential(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """exp of a sum is the product of exps; exp(log x) is x, exp(-inf) is 0."""
    infinite = [term for term in terms if is_infinite(term[1])]
    if infinite:
        finite = tuple(term for term in terms if not is_infinite(term[1]))
        return _masked_exponential(universe, infinite, finite, extents)
    if len(terms) > _EXPONENTS:
        raise Unsupported("the exponential of a very long sum")
    items: list[tuple[Ref, Number]] = []
    factor: Number = 1
    for coefficient, ref in terms:
        kernel = ref[0]
        if kernel.kind == "function" and kernel.name == "log" and coefficient.denominator == 1:
            inner = through(ref, kernel.factors[0])
            if inner is not None:
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
        return constant(universe, 1, extents)
    more, ref = multiply(universe, items, extents)
    return reopened(universe, more * factor, ref)


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


def truth(ref: Ref) -> Ref:
    """The reference, its kernel marked as 0 or 1 everywhere."""
    ref[0].truth = True
    ref[0].type = "bool"
    return ref


def elementwise(universe: Universe, name: str, attributes: tuple[Hashable, ...], factor: Number, ref: Ref) -> Ref:
    """A reference to the function of ``factor`` times what the reference looks at."""
    kernel = universe.function(name, attributes, factor, ref[0], ref[3])
    return (kernel, ref[1], ref[2], ())


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
    outside, terms = shared_exponentials(universe, terms, extents)
    out = [*_logarithm_of(universe, close(universe, terms, extents), extents)]
    for place, power in outside:
        out += ((power * c, inner) for c, inner in _logarithm_of(universe, (1, place), extents))
    return normalise(universe, out, extents) if outside else tuple(out)


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


# -- closed functions


def _is_whole(terms: Terms) -> bool:
    """Whether every element is seen to be an integer."""
    return all(Fraction(coefficient).denominator == 1 and _whole_kernel(ref[0]) for coefficient, ref in terms)


def _whole_kernel(kernel: Kernel) -> bool:
    if kernel.kind in ("one", "iota", "onehot") or kernel.truth or kernel.type != "float":
        return True
    return kernel.kind == "product" and all(
        isinstance(factor[1], int | Fraction)
        and factor[1] > 0
        and Fraction(factor[1]).denominator == 1
        and _whole_kernel(factor[0])
        for factor in kernel.factors
    )


def applied(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    rows: list[Terms],
    kind: Kind,
    extents: tuple[int, ...],
) -> Terms:
    """A function known by its name only."""
    if len(rows) == 1:
        known = _known(universe, name, rows[0], extents)
        return _of_one(universe, name, attributes, rows[0], kind, extents) if known is None else known
    closed = [close(universe, terms, extents) for terms in rows]
    sizes, dims, used = refine([ref for _, ref in closed], extents)
    parts = [
        Part(ref[0], (position, coefficient), ref[3], list(ref[1]), steps)
        for position, ((coefficient, ref), steps) in enumerate(zip(closed, used, strict=True))
    ]
    result = build(universe, "apply", (name, *attributes), parts, sizes, dims, set())
    result[0].name = name
    result[0].type = kind
    result[0].truth = kind == "bool"
    return ((1, result),)


def _known(universe: Universe, name: str, terms: Terms, extents: tuple[int, ...]) -> Terms | None:
    """A function of one sum where it is something else than a function."""
    if name in _TO_WHOLE and _is_whole(terms):
        return terms
    if name == "cast" and terms and all(is_infinite(ref) for _, ref in terms):
        return terms  # masks of minus infinity and 0 are the same numbers in every float type
    quotient = logistic(universe, terms, extents) if name == "sigmoid" else None
    if quotient is None and universe.exponential:
        quotient = written_out(universe, name, terms, extents)
    return quotient


def _of_one(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    terms: Terms,
    kind: Kind,
    extents: tuple[int, ...],
) -> Terms:
    """A function of one sum, which is turned so that its leading term is positive where the function lets it."""
    coefficient, ref = close(universe, terms, extents)
    sign: Number = 1
    if name == "cast" and universe.relative and attributes[0] in _RELATIVE:
        coefficient, sign = 1, coefficient
        if sign == 0:
            return ()
    if coefficient < 0 and name in _EVEN | _ODD:
        coefficient, sign = -coefficient, 1 if name in _EVEN else -1
    if coefficient == 0 and (name in _ODD or name == "abs"):
        return ()
    if name == "abs":
        coefficient, sign = 1, coefficient
        if never_negative(ref[0]):
            return ((sign, ref),)
    if name == "sign":
        coefficient = 1
    if (
        name in _ROUNDING
        and coefficient == 1
        and ref[0].kind == "function"
        and ref[0].name == name
        and ref[0].attributes == attributes
    ):
        return ((sign, ref),)
    falls = name == "sigmoid" and coefficient < 0
    result = elementwise(universe, name, attributes, _size(coefficient) if falls else coefficient, ref)
    result[0].type = kind
    result[0].truth = kind == "bool"
    if falls:  # sigmoid(-t) = 1 - sigmoid(t)
        return normalise(universe, [*constant(universe, 1, extents), (-1, result)], extents)
    return ((sign, result),)


# -- maxima


def larger(universe: Universe, rows: list[Terms], extents: tuple[int, ...]) -> Terms:
    """The largest of several sums: common terms come out, windows of one maximum join, equal ones count once."""
    rows = [row for row in rows if not (len(row) == 1 and row[0][0] > 0 and row[0][1][0].kind == "infinity")] or rows[
        :1
    ]
    shared = (
        {term for term in set(rows[0]).intersection(*rows[1:]) if not is_infinite(term[1])} if len(rows) > 1 else set()
    )
    outside = [term for term in rows[0] if term in shared]
    rows = [tuple(term for term in row if term not in shared) for row in rows] if shared else rows
    truths = largest_truth(universe, rows, extents)
    if truths is not None:
        return normalise(universe, [*outside, *truths], extents)
    exponent = _largest_exponent(universe, rows, extents)
    if exponent is not None:
        return normalise(universe, [*outside, *exponential(universe, exponent, extents)], extents)
    items = [item for row in rows for item in _flattened(close(universe, row, extents))]
    items = _join_maxima(items)
    if len(items) == 1:
        return normalise(universe, [*outside, *([items[0]] if items[0][0] else [])], extents)
    moving = (item for item in items if item[0] and item[1][0].kind != "one")
    lead = _size(min(moving, key=lambda item: order((1, item[1])), default=items[0])[0])
    if not lead:
        lead = max(_size(c) for c, _ in items)
    sizes, dims, used = refine([ref for _, ref in items], extents)
    parts = [
        Part(ref[0], Fraction(c) / lead if lead != 1 else c, ref[3], list(ref[1]), steps)
        for (c, ref), steps in zip(items, used, strict=True)
    ]
    best = build(universe, "maximum", (), parts, sizes, dims, set())
    return normalise(universe, [*outside, (lead, best)], extents)


def _largest_exponent(universe: Universe, rows: list[Terms], extents: tuple[int, ...]) -> Terms | None:
    """The largest of the exponents where all rows are exponentials; None where one is not."""
    if len(rows) < 2 or not all(len(row) == 1 and row[0][0] == 1 and is_exponential(row[0][1]) for row in rows):
        return None
    return larger(universe, [logarithm(universe, row, extents) for row in rows], extents)


def _size(number: Number) -> Number:
    return number if number >= 0 else -number


def _flattened(item: tuple[Number, Ref]) -> list[tuple[Number, Ref]]:
    coefficient, ref = item
    if ref[0].kind != "maximum" or coefficient <= 0:
        return [item]
    out: list[tuple[Number, Ref]] = []
    for factor in ref[0].factors:
        part = through(ref, factor)
        if part is None:
            return [item]
        out.append((coefficient * factor[1], part))
    return out


def _join_maxima(items: list[tuple[Number, Ref]]) -> list[tuple[Number, Ref]]:
    constants = [c for c, ref in items if ref[0].kind == "one" or c == 0]
    out = list(dict.fromkeys((c, ref) for c, ref in items if ref[0].kind != "one" and c != 0))
    changed = True
    while changed:
        changed = False
        for index, (c, first) in enumerate(out):
            for place in range(index + 1, len(out)):
                d, second = out[place]
                if c != d or c < 0 or first[0] is not second[0] or first[0].kind != "max" or first[1:3] != second[1:3]:
                    continue
                window = _union(first[3], second[3])
                if window is not None:
                    out[index] = (c, (first[0], first[1], first[2], window))
                    del out[place]
                    changed = True
                    break
            if changed:
                break
    if constants:
        ref = next(ref for c, ref in items if ref[0].kind == "one" or c == 0)
        one = next((ref for c, ref in items if ref[0].kind == "one"), ref)
        out.append((max(constants), one))
    return out


def _union(a: Window, b: Window) -> Window | None:
    differ = [axis for axis in range(len(a)) if a[axis] != b[axis]]
    if len(differ) != 1:
        return a if not differ else None
    axis = differ[0]
    first, second = sorted((a[axis], b[axis]))
    if first[1] < second[0]:
        return None
    return (*a[:axis], (first[0], max(first[1], second[1])), *a[axis + 1 :])


def largest(universe: Universe, terms: Terms, extents: tuple[int, ...], summed: tuple[int, ...]) -> Terms:
    """The maximum over dims, which are dropped; terms that do not vary there come out, and positive factors and exponentials do."""
    kept = tuple(size for dim, size in enumerate(extents) if dim not in summed)
    outside: list[Term] = []
    inside: list[Term] = []
    for coefficient, ref in terms:
        if not is_infinite(ref) and all(digit[0] < 0 for dim in summed for digit in ref[2][dim]):
            digits = tuple(d for dim, d in enumerate(ref[2]) if dim not in summed)
            outside.append((coefficient, (ref[0], ref[1], digits, ref[3])))
        else:
            inside.append((coefficient, ref))
    if inside:
        coefficient, ref = close(universe, tuple(inside), extents)
        found = _largest_product(universe, coefficient, ref, extents, summed)
        if found is None:
            sign = 1 if coefficient > 0 else -1
            found = ((_size(coefficient), _max_kernel(universe, sign, ref, extents, summed)),)
        outside.extend(found)
    return normalise(universe, outside, kept)


def _largest_product(
    universe: Universe, coefficient: Number, ref: Ref, extents: tuple[int, ...], summed: tuple[int, ...]
) -> Terms | None:
    """The maximum of a product by that of a part of it, or by that of the logarithm; None where neither is seen to do."""
    kept = tuple(size for dim, size in enumerate(extents) if dim not in summed)
    parts = positive_factor(universe, ref, extents, summed)
    if parts is not None:
        number, (kernel, offsets, dims, window), (inner, rest) = parts
        factor = (kernel, offsets, tuple(d for dim, d in enumerate(dims) if dim not in summed), window)
        inside = largest(universe, ((number * inner * coefficient, rest),), extents, summed)
        return times(universe, ((1, factor),), inside, kept)
    if coefficient <= 0 or not is_exponential(ref):
        return None
    inside = largest(universe, logarithm(universe, ((1, ref),), extents), extents, summed)
    return scaled(universe, exponential(universe, inside, kept), coefficient, kept)


def _max_kernel(universe: Universe, sign: int, ref: Ref, extents: tuple[int, ...], summed: tuple[int, ...]) -> Ref:
    sizes, dims, used = refine([ref], extents)
    reduced = {digit for dim in summed for digit in dims[dim]}
    touched = {digit for _, digit, _ in used[0]}
    kept = [digits for dim, digits in enumerate(dims) if dim not in summed]
    part = Part(ref[0], sign, ref[3], list(ref[1]), used[0])
    if ref[0].kind == "max" and sign > 0:
        product = Product(universe, sizes, kept, reduced)
        product.include(
            [(*ref[0].factors[0][:1], 1, *ref[0].factors[0][2:])],
            len(ref[0].shape),
            1,
            ref[3],
            list(ref[1]),
            used[0],
            raw=True,
        )
        part = product.parts[0]
        part.payload = ref[0].factors[0][1]
        touched = {digit for _, digit, _ in part.expressions}
        reduced = product.reduced
    reduced = {digit for digit in reduced if digit in touched and sizes[digit] > 1}
    part.expressions = [step for step in part.expressions if sizes[step[1]] > 1]
    return build(universe, "max", (), [part], sizes, kept, reduced)


def known_number(terms: Terms) -> Number | None:
    """The number that the terms are, if they are one."""
    if not terms:
        return 0
    return terms[0][0] if len(terms) == 1 and terms[0][1][0].kind == "one" else None


__all__: Sequence[Any] = ["applied", "exact", "exponential", "known_number", "larger", "largest", "logarithm"]
