"""The largest of several sums, and the maximum of one over dims."""

from __future__ import annotations

from fractions import Fraction

from graphguard.relations.functions.exponentials import exponential, logarithm
from graphguard.relations.functions.truths import largest_truth
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.clamps import clamp_of, is_constant, maximised, stands, without_lesser
from graphguard.relations.sums.linear import close, constant, normalise, scaled, times
from graphguard.relations.sums.outermost import is_exponential, positive_factor
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.building import build
from graphguard.relations.terms.infinity import is_infinite
from graphguard.relations.terms.kernels import Number, Ref, Term, Terms, Universe, Window, order
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import refine


@rule(
    "maxima",
    "functions",
    "`max(a + c, b + c)` = `max(a, b) + c`; windows of one maximum join",
    "`torch.maximum(2 * x, 2 * y)` = `2 * torch.maximum(x, y)`",
    "larger",
)
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
    items = [item for row in rows for item in maximised(close(universe, row, extents))]
    items = without_lesser(_join_maxima(items))
    if len(items) == 1:
        return normalise(universe, [*outside, *([items[0]] if items[0][0] else [])], extents)
    held = _other_clamp(universe, items, extents)
    if held is not None:
        return normalise(universe, [*outside, *held], extents)
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


@rule(
    "maxima of exponentials",
    "functions",
    "`max(exp a, exp b)` = `exp(max(a, b))`",
    "`torch.maximum(x.exp(), y.exp())` = `torch.maximum(x, y).exp()`",
    "largest exponent",
)
def _largest_exponent(universe: Universe, rows: list[Terms], extents: tuple[int, ...]) -> Terms | None:
    """The largest of the exponents where all rows are exponentials; None where one is not."""
    if len(rows) < 2 or not all(len(row) == 1 and row[0][0] == 1 and is_exponential(row[0][1]) for row in rows):
        return None
    return larger(universe, [logarithm(universe, row, extents) for row in rows], extents)


def _size(number: Number) -> Number:
    return number if number >= 0 else -number


@rule(
    "clamps",
    "functions",
    "`max(c, min(x, e))` = `min(max(c, x), e)` for `c <= e`",
    "`x.clamp(max=2).clamp(min=-1)` = `x.clamp(-1, 2)`",
    "largest of terms",
)
def _other_clamp(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> Terms | None:
    """A clamp in its other spelling, or several of one number as one; None where it stays as it is."""
    clamp = clamp_of(items)
    if clamp is None:
        return None
    low, high = constant(universe, clamp.low, extents), constant(universe, -clamp.high, extents)
    parts = maximised(clamp.inside[0]) if len(clamp.inside) == 1 else []
    if any(map(is_constant, parts)):  # max(low, min(max(x, c), high)) is max(low, c, min(x, high))
        (floor,) = [c for c, _ in filter(is_constant, parts)]
        above = larger(universe, [(part,) for part in parts if not is_constant(part)], extents)
        below = larger(universe, [_negative(above), high], extents)
        return larger(universe, [low, constant(universe, floor, extents), _negative(below)], extents)
    if stands(universe, clamp, extents):
        return None
    above = larger(universe, [low, tuple(clamp.inside)], extents)
    return _negative(larger(universe, [high, _negative(above)], extents))


def _negative(terms: Terms) -> Terms:
    return tuple((-c, ref) for c, ref in terms)


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


@rule(
    "maxima over dims",
    "functions",
    "positive factors and exponentials stand outside: `max(exp x)` = `exp(max x)`",
    "`x.softmax(-1).amax(-1)` = `x.amax(-1).exp() / x.exp().sum(-1)`",
    "largest",
)
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
