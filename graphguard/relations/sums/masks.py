"""Masks: truth values as indicators, windows of one-hots, and case distinction over them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import constant, indicator, normalise, times
from graphguard.relations.sums.products import Product, compose
from graphguard.relations.terms.kernels import (
    UNBOUNDED,
    Budget,
    Expression,
    Factor,
    Kernel,
    Number,
    Ref,
    Term,
    Terms,
    Universe,
    Window,
)
from graphguard.relations.terms.orientation import is_delta, is_step
from graphguard.relations.terms.permutations import is_inverted, known_range
from graphguard.relations.terms.windows import refine, repeat, through

_RANGES: Final = 64  # ranges of one index that are told apart
_TRUTHS: Final = 4  # truths under infinities that are told apart


def split_mask(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> tuple[Ref, Number, Ref] | None:
    """A product as a mask times a number times a rest without masks; None where there is no mask, or where a sum ties them together."""
    key = ("split", ref, extents)
    if key not in universe.cases:
        universe.cases[key] = _split_mask(universe, ref, extents)
    return universe.cases[key]  # type: ignore[no-any-return]


def _split_mask(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> tuple[Ref, Number, Ref] | None:
    kernel = ref[0]
    if indicator(ref) and kernel.kind != "one":
        sizes, dims, _ = refine([ref], extents)
        return ref, 1, Product(universe, sizes, dims, set()).finish()[1]
    if kernel.kind != "product":
        return None
    free = len(kernel.shape)
    mine = [factor for factor in kernel.factors if factor[0].truth and factor[1] == 1]
    rest = [factor for factor in kernel.factors if not (factor[0].truth and factor[1] == 1)]
    if mine and not rest:
        mine, rest = _counted_apart(universe, ref, mine, extents)
    if not mine or not rest:
        return None
    if _bound(mine, free) & _bound(rest, free):
        return None
    (a, mask), (b, other) = part_of(universe, ref, mine, extents), part_of(universe, ref, rest, extents)
    if a != 1 or not indicator(mask):
        return None
    return mask, b, other


def _counted_apart(
    universe: Universe, ref: Ref, truths: list[Factor], extents: tuple[int, ...]
) -> tuple[list[Factor], list[Factor]]:
    """Of truths alone, those that are one truth, and those that no sum ties to them and that count: a mask times a count."""
    free = len(ref[0].shape)
    tied: list[list[Factor]] = []
    for truth in truths:
        labels = _bound([truth], free)
        mine = [group for group in tied if labels & _bound(group, free)]
        tied = [group for group in tied if group not in mine] + [[truth, *(each for group in mine for each in group)]]
    if len(tied) < 2:
        return [], []
    masks: list[Factor] = []
    counts: list[Factor] = []
    for group in tied:
        coefficient, alone = part_of(universe, ref, group, extents)
        (masks if coefficient == 1 and indicator(alone) else counts).extend(group)
    return masks, counts


def part_of(universe: Universe, ref: Ref, factors: list[Factor], extents: tuple[int, ...]) -> Term:
    """The product of some factors of a reference to a product, over the labels that these have."""
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    free = len(ref[0].shape)
    product.include(factors, free, 1, ref[3], list(ref[1]), used[0], only=_bound(factors, free))
    return product.finish()


def _bound(factors: list[Factor], free: int) -> set[int]:
    return {label for factor in factors for _, label, _ in factor[4] if label >= free}


def cases(universe: Universe, terms: Terms, extents: tuple[int, ...], depth: int = 3) -> list[tuple[Terms, Terms]]:
    """The terms by cases over the masks in them: pairs of a guard (0 or 1, the guards sum to 1) and mask-free terms."""
    key = ("cases", terms, extents, depth)
    if key not in universe.cases:
        universe.cases[key] = _by_cases(universe, terms, extents, depth)
    return universe.cases[key]  # type: ignore[no-any-return]


@rule(
    "cases of masks",
    "masks on positions",
    "`f` = `[m] f + [not m] f`, each with what m says of it",
    "`t[i]` = `t[torch.where(i < 0, i + 8, i)]`",
    "cases",
)
def _by_cases(universe: Universe, terms: Terms, extents: tuple[int, ...], depth: int) -> list[tuple[Terms, Terms]]:
    for _, ref in terms:
        parts = split_mask(universe, ref, extents)
        if parts is None or depth == 0:
            continue
        sides = _by_window(universe, terms, parts[0], extents) or _by_mask(universe, terms, parts[0], extents)
        out = []
        for guard, side in sides:
            for inner, value in cases(universe, normalise(universe, side, extents), extents, depth - 1):
                both = times(universe, guard, inner, extents)
                if both:
                    out.append((both, value))
        return out
    return [(constant(universe, 1, extents), terms)]


_Sides = list[tuple[Terms, list[Term]]]


def _by_mask(universe: Universe, terms: Terms, mask: Ref, extents: tuple[int, ...]) -> _Sides:
    """The terms where a mask holds, and where it does not."""
    holds, fails = [], []
    for coefficient, other in terms:
        own = split_mask(universe, other, extents)
        if own is not None and own[0] == mask:
            holds.append((coefficient * own[1], own[2]))
        else:
            holds.append((coefficient, other))
            fails.append((coefficient, other))
    no = normalise(universe, [*constant(universe, 1, extents), (-1, mask)], extents)
    return [(((1, mask),), holds), (no, fails)]


def _by_window(universe: Universe, terms: Terms, mask: Ref, extents: tuple[int, ...]) -> _Sides | None:
    """The terms in every range of one index between the bounds of its masks; None where the mask is not on one index, or there are too many ranges."""
    found = mask_range(mask)
    if found is None:
        return None
    index = found[0]
    rows: list[tuple[int, int, Term]] = []
    others: list[Term] = []
    for coefficient, ref in terms:
        own = split_mask(universe, ref, extents)
        window = mask_range(own[0]) if own is not None else None
        if own is not None and window is not None and window[0] == index:
            rows.append((window[1], window[2], (coefficient * own[1], own[2])))
        else:
            others.append((coefficient, ref))
    hot_kernel, offsets, dims, _ = index
    base = hot_kernel.factors[0][0]
    low, high = known_range(base) or (-UNBOUNDED // 2, UNBOUNDED // 2)
    cuts = sorted({low, high}.union(at for a, b, _ in rows for at in (a, b) if low < at < high))
    if len(cuts) > _RANGES:
        return None
    unknown = (base, offsets[:-1], dims, hot_kernel.factors[0][2])
    out = []
    for start, stop in pairwise(cuts):
        inside = [term for a, b, term in rows if a <= start and stop <= b]
        whole = (start, stop) == found[1:]
        guard: Terms = ((1, mask),) if whole else between(universe, unknown, start, stop, extents)
        out.append((guard, [*others, *inside]))
    return out


def mask_range(ref: Ref) -> tuple[Ref, int, int] | None:
    """For a mask ``low <= index < high``: a reference to the one-hot's column 0 as its identity, and the bounds."""
    kernel = ref[0]
    if kernel.kind == "onehot":
        column = len(kernel.shape) - 1
        if any(axis == column for digits in ref[2] for axis, _, _ in digits):
            return None
        at = ref[1][column]
        return (kernel, (*ref[1][:column], 0), ref[2], ref[3]), at, at + 1
    if kernel.kind != "product" or len(kernel.factors) != 1 or len(kernel.reduced) != 1:
        return None
    part, _, window, base, steps = kernel.factors[0]
    if part.kind != "onehot":
        return None
    column = len(part.shape) - 1
    free = len(kernel.shape)
    if [(axis, stride) for axis, label, stride in steps if label >= free] != [(column, 1)] or any(
        a == column for a, L, _ in steps if free > L
    ):
        return None
    low, high = ref[3][0]
    inner = through(
        (kernel, ref[1], ref[2], ref[3]),
        (part, 1, window, (*base[:column], 0), tuple(s for s in steps if s[0] != column)),
    )
    return None if inner is None else (inner, low + base[column], high + base[column])


@rule(
    "one-hots",
    "selections",
    "`[e = c]` for an index e; of a floor of a quotient the sum over what is divided to it",
    "`ids // 2 == 1` = `(ids == 2) | (ids == 3)`",
    "equality",
)
def hot(universe: Universe, base: Ref, column: Ref, extents: tuple[int, ...], summed: bool = False) -> list[Term]:
    """1 where an integer reference equals an affine index ``column`` (a reference to iota); with ``summed`` the last dim is summed away.

    Of a floor of a quotient it is the sum of the one-hots of the numbers that are divided to it.
    """
    sizes, dims, used = refine([base, column], extents)
    start, steps = column[1][0], [(digit, stride) for _, digit, stride in used[1]]
    reduced = set(dims[-1]) if summed else set()
    while (divided := _quotient(base)) is not None:
        base, divisor = divided
        start, steps = start * divisor, [*((digit, stride * divisor) for digit, stride in steps), (len(sizes), 1)]
        reduced.add(len(sizes))
        sizes.append(divisor)
    product = Product(universe, sizes, dims[:-1] if summed else dims, reduced)
    turned = _turned(base, used[0], start, steps, sizes)
    if turned is not None:
        product.push(*turned)
    else:
        kernel = universe.one_hot(base[0], base[3])
        last = len(kernel.shape) - 1
        expressions = [*used[0], *((last, digit, stride) for digit, stride in steps)]
        product.push(kernel, 1, (), [*base[1], start], expressions)
    coefficient, ref = product.finish()
    return [(coefficient, ref)] if coefficient else []


def _quotient(base: Ref) -> tuple[Ref, int] | None:
    """What is divided, and by what number, where a reference looks at floors of quotients."""
    kernel = base[0]
    if kernel.kind != "function" or kernel.name != "floor_divide" or kernel.factors[0][1] != 1:
        return None
    part, _, window, _, _ = kernel.factors[0]
    return (part, base[1], base[2], window), int(str(kernel.attributes[0]))


def _turned(
    base: Ref, rows: list[Expression], start: int, steps: list[tuple[int, int]], sizes: list[int]
) -> tuple[Kernel, Number, Window, list[int], list[Expression]] | None:
    """Of the inverse of a permutation: the permutation's own one-hot, rows and columns exchanged."""
    inverse = is_inverted(base)
    if inverse is None:
        return None
    low = start + sum(min(0, stride * (sizes[digit] - 1)) for digit, stride in steps)
    high = start + sum(max(0, stride * (sizes[digit] - 1)) for digit, stride in steps)
    if low < 0 or high >= inverse.extent:
        return None
    kernel, power, window, origin, inner = inverse.hot
    places: list[list[tuple[int, int]]] = [[] for _ in base[0].shape]
    for axis, digit, stride in rows:
        places[axis].append((digit, stride))
    moved, expressions = compose(origin, inner, [*base[1], start], [*places, steps])
    return kernel, power, window, moved, expressions


def truth_cases(
    universe: Universe, masked: Terms, others: Terms, extents: tuple[int, ...]
) -> list[tuple[Terms, tuple[Terms, Terms]]]:
    """Both sums by cases over the truths in the first: pairs of a guard (0 or 1, the guards sum to 1) and the sums where it holds."""
    truths = _truths_of(universe, masked, extents)
    if len(truths) > _TRUTHS:
        raise Budget(f"a sum under more than {_TRUTHS} masks")
    found = [(constant(universe, 1, extents), (masked, others))]
    for truth in truths:
        no = normalise(universe, [*constant(universe, 1, extents), (-1, truth)], extents)
        found = [
            (narrower, (_where(universe, a, truth, holds, extents), _where(universe, b, truth, holds, extents)))
            for guard, (a, b) in found
            for holds, side in ((True, ((1, truth),)), (False, no))
            if (narrower := times(universe, guard, side, extents))
        ]
    return found


def too_many(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> bool:
    """Whether terms have more truths as factors than are told apart."""
    return len(_truths_of(universe, terms, extents)) > _TRUTHS


def given(universe: Universe, terms: Terms, mask: Ref, extents: tuple[int, ...]) -> Terms:
    """The terms where a mask is 1."""
    for truth in _truths(universe, mask, extents):
        terms = _where(universe, terms, truth, True, extents)
    return terms


def _truths_of(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> list[Ref]:
    return list(dict.fromkeys(truth for _, ref in terms for truth in _truths(universe, ref, extents)))


def _truths(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[Ref]:
    """The truths that a term has as factors, each alone; those that take part in a sum are left inside."""
    return [truth for truth, _ in taken_apart(universe, ref, extents)]


def _where(universe: Universe, terms: Terms, truth: Ref, holds: bool, extents: tuple[int, ...]) -> Terms:
    """The terms where a truth holds, or where it does not."""
    out: list[Term] = []
    for coefficient, ref in terms:
        term: Term | None = (coefficient, ref)
        for other, _ in taken_apart(universe, ref, extents):
            decided = _decided(other, truth, holds)
            if decided is not None and term is not None:
                term = _without(universe, term, other, extents) if decided else None
        if term is not None:
            out.append(term)
    return normalise(universe, out, extents)


def _without(universe: Universe, term: Term, truth: Ref, extents: tuple[int, ...]) -> Term:
    rest = next((rest for other, rest in taken_apart(universe, term[1], extents) if other == truth), None)
    return term if rest is None else (term[0] * rest[0], rest[1])


def _decided(other: Ref, truth: Ref, holds: bool) -> bool | None:
    """What a truth that holds, or does not, says of another: of itself, and of masks on positions along the same line."""
    if other == truth:
        return holds
    if other[0] is not truth[0] or not (is_step(truth[0]) or is_delta(truth[0])):
        return None
    mine, its = truth[1][0], other[1][0]
    against = other[2] == tuple(tuple((axis, -stride, size) for axis, stride, size in digits) for digits in truth[2])
    if is_delta(truth[0]):
        return holds if against and mine + its == 0 else None
    if other[2] == truth[2]:  # x > -mine and x > -its
        return holds if (its >= mine if holds else its <= mine) else None
    if against:  # x > -mine and -x > -its
        return not holds if (mine + its < 2 if holds else mine + its > 0) else None
    return None


def taken_apart(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[tuple[Ref, Term]]:
    """Every truth among a term's factors, with what the term is without it."""
    key = ("truths", ref, extents)
    known: Any = universe.memo.get(key)
    if known is None:
        known = list(_pairs(universe, ref, extents))
        universe.memo[key] = known
    return known  # type: ignore[no-any-return]


def _pairs(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Iterator[tuple[Ref, Term]]:
    kernel, free = ref[0], len(ref[0].shape)
    if kernel.kind == "one":
        return
    if kernel.kind != "product":
        if indicator(ref):
            sizes, dims, _ = refine([ref], extents)
            yield ref, Product(universe, sizes, dims, set()).finish()
        return
    alone = [place for place, f in enumerate(kernel.factors) if f[0].truth and f[1] == 1 and not _bound([f], free)]
    groups = [{place} for place in alone]
    tied = {place for place, factor in enumerate(kernel.factors) if _bound([factor], free)}
    if tied and all(kernel.factors[place][0].truth for place in tied):
        groups.append(tied)
    for group in groups:
        coefficient, truth = _of_factors(universe, ref, group, extents)
        if coefficient == 1 and indicator(truth):
            yield truth, _of_factors(universe, ref, set(range(len(kernel.factors))) - group, extents)


def _of_factors(universe: Universe, ref: Ref, places: set[int], extents: tuple[int, ...]) -> Term:
    """The product of some of the factors of a reference to a product."""
    return part_of(universe, ref, [ref[0].factors[place] for place in sorted(places)], extents)


def between(universe: Universe, base: Ref, low: int, high: int, extents: tuple[int, ...]) -> Terms:
    """The mask ``low <= base < high``, as a window of a sum of one-hots; unbounded ends are half of ``UNBOUNDED``."""
    low, high = max(low, -UNBOUNDED // 2), min(high, UNBOUNDED // 2)
    if low >= high:
        return ()
    divided = _quotient(base)
    if divided is not None:
        return between(universe, divided[0], low * divided[1], high * divided[1], extents)
    size = high - low
    widened = (base[0], base[1], (*base[2], repeat(size)), base[3])
    column: Ref = (universe.iota, (low,), (*map(repeat, extents), ((0, 1, size),) if size != 1 else ()), ())
    return tuple(hot(universe, widened, column, (*extents, size), summed=True))
