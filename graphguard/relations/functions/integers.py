"""Integers: affine indices, comparisons, one-hots and their range duties."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Literal

from graphguard.relations.algebra import Unsupported
from graphguard.relations.facts import intervals
from graphguard.relations.facts.signs import positive_within
from graphguard.relations.facts.thresholds import Step, threshold
from graphguard.relations.facts.wholes import is_whole_number
from graphguard.relations.functions.functions import applied, elementwise, known_number, truth
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.counts import ENDLESS, supported
from graphguard.relations.sums.linear import close, constant, fold, normalise, times
from graphguard.relations.sums.masks import between, cases, hot, mask_range
from graphguard.relations.sums.monotone import like_signed
from graphguard.relations.terms.building import build
from graphguard.relations.terms.kernels import Kernel, Ref, Term, Terms, Universe
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.permutations import known_range, permuted
from graphguard.relations.terms.ranges import is_whole, note
from graphguard.relations.terms.windows import refine, repeat

COMPUTED_INDICES = "indices that the specification computes lie inside the tables it looks them up in"
_HALF = ENDLESS
_STEPS = 32  # multiples of a divisor within a range that are told apart


def affine(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> tuple[int, Ref | None, Ref]:
    """Integer terms as ``sign * base + index``: a unit sign, a reference (or None), and a reference to iota that holds the rest."""
    mine: list[Term] = []
    others: list[Term] = []
    for coefficient, ref in terms:
        if coefficient.denominator != 1:
            raise Unsupported("an index that is not an integer")
        (mine if ref[0].kind in ("iota", "one") else others).append((coefficient, ref))
    index = _as_index(universe, mine, extents)
    if not others:
        return 1, None, index
    coefficient, ref = close(universe, tuple(others), extents)
    if abs(coefficient) != 1:
        sizes, dims, used = refine([ref], extents)
        part = Part(ref[0], coefficient, ref[3], list(ref[1]), used[0])
        ref = build(universe, "sum", (), [part], sizes, dims, set())
        coefficient = 1
    return int(coefficient), ref, index


def _as_index(universe: Universe, terms: list[Term], extents: tuple[int, ...]) -> Ref:
    start = 0
    found: Ref | None = None
    for coefficient, ref in fold(universe, terms, extents) if any(r[0].kind == "iota" for _, r in terms) else terms:
        if ref[0].kind == "one":
            start += int(coefficient)
        else:
            found = _times(ref, int(coefficient))
    if found is None:
        return (universe.iota, (start,), tuple(map(repeat, extents)), ())
    return (universe.iota, (found[1][0] + start,), found[2], ())


def _times(ref: Ref, factor: int) -> Ref:
    """An affine index times an integer."""
    dims = tuple(tuple((axis, stride * factor, size) for axis, stride, size in digits) for digits in ref[2])
    return (ref[0], (ref[1][0] * factor,), dims, ())


def span(ref: Ref) -> tuple[int, int]:
    """The smallest and largest value of an affine index."""
    steps = [stride * (size - 1) for digits in ref[2] for axis, stride, size in digits if axis >= 0]
    return ref[1][0] + sum(s for s in steps if s < 0), ref[1][0] + sum(s for s in steps if s > 0)


def one_hot(universe: Universe, terms: Terms, extents: tuple[int, ...], columns: int, low: int) -> Terms:
    """[index == low + column] over one more dim of ``columns``."""
    wide = (*extents, columns)
    out: list[Term] = []
    for guard, value in cases(universe, terms, extents):
        sign, base, index = affine(universe, value, extents)
        column: Ref = (
            universe.iota,
            (sign * (low - index[1][0]),),
            (*_times(index, -sign)[2], ((0, sign, columns),) if columns != 1 else ()),
            (),
        )
        if base is None:
            found = _delta(universe, column, wide)
        else:
            found = hot(universe, (base[0], base[1], (*base[2], repeat(columns)), base[3]), column, wide)
        out += times(universe, widen(guard, columns), tuple(found), wide)
    return normalise(universe, out, wide)


def widen(terms: Terms, size: int) -> Terms:
    """The terms repeated along a new last dim."""
    return tuple((c, (k, off, (*dims, repeat(size)), w)) for c, (k, off, dims, w) in terms)


def _delta(universe: Universe, index: Ref, extents: tuple[int, ...]) -> list[Term]:
    """[index == 0]."""
    low, high = span(index)
    if low > 0 or high < 0:
        return []
    if low == high:
        return list(constant(universe, 1, extents))
    first = next(stride for digits in index[2] for axis, stride, _ in digits if axis >= 0)
    if first < 0:
        index = _times(index, -1)
    return [(1, truth(elementwise(universe, "eq0", (), 1, index)))]


def check_range(
    universe: Universe, terms: Terms, extents: tuple[int, ...], size: int, *, unless_unknown: bool = False
) -> None:
    """Duty of a look-up: 0 <= index < size.  The specification's look-ups state it, the implementation's must follow; ``unless_unknown`` if anything is known."""
    for guard, value in cases(universe, terms, extents):
        sign, base, index = affine(universe, value, extents)
        low, high = span(index)
        if _lies_within(guard, sign, base, (low, high), size):
            continue
        if base is None:
            raise Unsupported("an index outside the table")
        # what a look-up needs at one place must not be stated of all: the index may differ from the unknown by the same number only
        if universe.specifying and sign > 0 and low == high and len(guard) == 1 and guard[0][1][0].kind == "one":
            _state(universe, base, -low, size - high)
            continue
        if unless_unknown and _bounds(guard, base) is None:
            continue
        raise Unsupported("an index that may lie outside the table")


def may_count_back(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> bool:
    """Whether an index rests on an unknown whose declared range has it below zero in some case: what is not declared its look-ups state."""
    for guard, value in cases(universe, terms, extents):
        sign, base, index = affine(universe, value, extents)
        if base is None or base[0].name not in universe.declared:
            continue
        bounds = _bounds(guard, base)
        if bounds is not None and (bounds[0] if sign > 0 else 1 - bounds[1]) + span(index)[0] < 0:
            return True
    return False


def is_index(universe: Universe, terms: Terms, extents: tuple[int, ...], size: int) -> bool:
    """Whether 0 <= index < size is known, in every case of the masks in it; nothing is stated."""
    for guard, value in cases(universe, terms, extents):
        sign, base, index = affine(universe, value, extents)
        if not _lies_within(guard, sign, base, span(index), size):
            return False
    return True


def _lies_within(guard: Terms, sign: int, base: Ref | None, span: tuple[int, int], size: int) -> bool:
    if base is None:
        return span[0] >= 0 and span[1] < size
    bounds = _bounds(guard, base)
    return any(_lies(found, sign, span, size) for found in (bounds, _meet(bounds, intervals.between(base))))


def _bounds(guard: Terms, base: Ref) -> tuple[int, int] | None:
    """What is known of an integer where the guard holds."""
    known = base[3][0] if base[0].kind == "place" else known_range(base[0])
    if len(guard) == 1 and guard[0][0] == 1:
        masked = mask_range(guard[0][1])
        if masked is not None:
            (kernel, offsets, dims, _), low, high = masked
            if kernel.factors[0][0] is base[0] and offsets[:-1] == base[1] and dims == base[2]:
                return (low, high) if known is None else (max(low, known[0]), min(high, known[1]))
    return known


def _lies(bounds: tuple[int, int] | None, sign: int, span: tuple[int, int], size: int) -> bool:
    """Whether a sign times an integer of a half-open range, and an index of a span added to it, lie inside a table."""
    if bounds is None:
        return False
    first, last = (bounds[0], bounds[1] - 1) if sign > 0 else (1 - bounds[1], -bounds[0])
    return first + span[0] >= 0 and last + span[1] < size


def _meet(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    """What two half-open ranges have in common; the other where one is not known."""
    return other if one is None else one if other is None else (max(one[0], other[0]), min(one[1], other[1]))


def _state(universe: Universe, base: Ref, low: int, high: int) -> None:
    known = base[0].range
    if known is not None and base[0].kind == "leaf" and base[0].name in universe.declared:
        raise Unsupported("an index whose declared range reaches outside the table")
    if not is_whole(base):
        if base[0].kind != "leaf" or base[0].name in universe.facts or base[0].name in universe.unstated:
            raise Unsupported("a part of an index is looked up, which says nothing of the rest: declare its range")
        note(universe, base, low, high)
        return
    universe.late = universe.late or ("onehot", base[0].id, ()) in universe.table or _was_divided(universe, base[0])
    fresh = (low, high) if known is None else (max(low, known[0]), min(high, known[1]))
    base[0].range = fresh
    universe.cases.clear()
    if base[0].kind == "leaf":
        universe.facts[base[0].name] = fresh
    else:
        universe.assumed.add(COMPUTED_INDICES)
        universe.indices.add(base[0].id)


def _was_divided(universe: Universe, base: Kernel) -> bool:
    return any(
        kernel.name == "floor_divide" and kernel.factors[0][0] is base
        for kernel in universe.table.values()
        if kernel.kind == "function"
    )


@rule(
    "comparisons",
    "functions",
    "`[a < b]` = `[b - a > 0]`, and positive factors drop out",
    "`3 * x > 3 * y` = `x > y`",
    "comparison",
)
def compared(
    universe: Universe,
    relation: Literal["lt", "le", "eq"],
    a: Terms,
    b: Terms,
    extents: tuple[int, ...],
    integral: bool,
) -> Terms:
    """The truth of a relation, as an indicator."""
    distance = normalise(universe, [*b, *((-c, ref) for c, ref in a)], extents)
    number = known_number(distance)
    if number is not None:
        holds = number > 0 if relation == "lt" else number >= 0 if relation == "le" else number == 0
        return constant(universe, 1, extents) if holds else ()
    counted = _compared_count(universe, relation, distance, extents)
    if counted is not None:
        return counted
    if integral and all(c.denominator == 1 for c, _ in distance):
        return _compared_integers(universe, relation, distance, extents)
    return _compared_closed(universe, relation, distance, extents)


def _compared_count(universe: Universe, relation: str, distance: Terms, extents: tuple[int, ...]) -> Terms | None:
    """[count > 0], [count == 0] or [-count >= 0]; None where the distance is none, or one truth."""
    if relation == "le" or (relation == "eq" and distance[0][0] < 0):
        distance = tuple((-c, ref) for c, ref in distance)
    count = supported(universe, distance, extents)
    if count is None or (len(distance) == 1 and distance[0][1][0].truth):
        return None
    some = _compared_integers(universe, "lt", count, extents)
    return (
        some
        if relation == "lt"
        else normalise(universe, [*constant(universe, 1, extents), *((-c, r) for c, r in some)], extents)
    )


def _compared_integers(universe: Universe, relation: str, distance: Terms, extents: tuple[int, ...]) -> Terms:
    """[distance > 0], [distance >= 0] or [distance == 0] of integers."""
    if relation == "le":
        more = normalise(universe, [*distance, *constant(universe, 1, extents)], extents)
        return compared(universe, "lt", (), more, extents, integral=True)
    found = cases(universe, distance, extents)
    stepped = _compared_steps(universe, found, extents) if relation == "lt" and len(found) > 1 else None
    if stepped is not None:
        return stepped
    out: list[Term] = []
    for guard, value in found:
        out += times(universe, guard, _integer_case(universe, relation, value, extents), extents)
    return normalise(universe, out, extents)


@rule(
    "thresholds",
    "selections",
    "a step function of an integer beside positions is a bound of it",
    "`(n - 3).clamp(max=3) > j` = `n > j + 3` for `j < 3`",
    "step comparison",
)
def _compared_steps(universe: Universe, found: list[tuple[Terms, Terms]], extents: tuple[int, ...]) -> Terms | None:
    """[f(n) + index > 0] of a step function of one integer as [n > threshold], or its opposite; None where it is no such comparison."""
    if any(len(guard) != 1 or guard[0][0] != 1 for guard, _ in found):
        return None
    masks = [mask_range(guard[0][1]) for guard, _ in found]
    first = masks[0]
    if first is None or any(mask is None or mask[0] != first[0] for mask in masks):
        return None
    hot_one, offsets, dims, _ = first[0]
    base: Ref = (hot_one.factors[0][0], offsets[:-1], dims, hot_one.factors[0][2])
    known, steps, moves = known_range(base[0]), [], None
    for mask, (_, value) in zip(masks, found, strict=True):
        sign, part, index = affine(universe, value, extents)
        if mask is None or (part is not None and part != base) or moves not in (None, index[2]):
            return None
        moves = index[2]
        steps.append(Step(mask[1], mask[2], 0 if part is None else sign, index[1][0]))
    if known is None or moves is None or all(axis < 0 for digits in moves for axis, _, _ in digits):
        return None
    line = threshold(steps, known, moves)
    if line is None:
        return None
    shift = _times((universe.iota, (0,), moves, ()), line.factor)
    value = normalise(universe, [(1, base), (1, shift), *constant(universe, -line.start, extents)], extents)
    above = _integer_case(universe, "lt", value, extents)
    if line.rises:
        return above
    return normalise(universe, [*constant(universe, 1, extents), *((-c, ref) for c, ref in above)], extents)


def _integer_case(universe: Universe, relation: str, value: Terms, extents: tuple[int, ...]) -> Terms:
    number = known_number(value)
    if number is not None:
        return constant(universe, 1, extents) if (number == 0 if relation == "eq" else number > 0) else ()
    sign, base, index = affine(universe, value, extents)
    if base is None:
        return _compared_index(universe, relation, value, extents)
    low, high = span(index)
    if relation == "eq":
        if base[0].range is not None and not _may_meet(base[0].range, (-high, -low) if sign > 0 else (low, high)):
            return ()
        return tuple(hot(universe, base, _times(index, -sign), extents))
    if low != high or base[0].kind == "sum":
        return _compared_unknown(universe, value, sign, extents)
    # sign * base + low > 0
    return (
        between(universe, base, 1 - low, _HALF, extents) if sign > 0 else between(universe, base, -_HALF, low, extents)
    )


def _compared_unknown(universe: Universe, value: Terms, sign: int, extents: tuple[int, ...]) -> Terms:
    """[value > 0] of an unknown integer beside an index; where the unknown is subtracted it is said by the opposite, ``n >= t`` being no ``n < t``."""
    if sign > 0:
        return _compared_closed(universe, "lt", value, extents)
    one = constant(universe, 1, extents)
    other = normalise(universe, [*one, *((-c, ref) for c, ref in value)], extents)
    opposite = _compared_closed(universe, "lt", other, extents)
    return normalise(universe, [*one, *((-c, ref) for c, ref in opposite)], extents)


def _may_meet(known: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether a half-open range holds one of the numbers from the first to the last wanted."""
    return wanted[1] >= known[0] and wanted[0] < known[1]


def _compared_index(universe: Universe, relation: str, value: Terms, extents: tuple[int, ...]) -> Terms:
    """The truth of an affine index, one unit a step."""
    unit, ref = next((c, r) for c, r in value if r[0].kind == "iota")
    rest = Fraction(sum(c for c, r in value if r[0].kind == "one")) / unit
    if relation == "eq":
        if rest.denominator != 1:
            return ()
        return tuple(_delta(universe, (ref[0], (ref[1][0] + int(rest),), ref[2], ()), extents))
    shift = -floor(-rest)
    ref = (ref[0], (ref[1][0] + shift,), ref[2], ())
    low, high = span(ref)
    if low > 0:
        return constant(universe, 1, extents)
    if high <= 0:
        return ()
    return ((1, truth(elementwise(universe, "gt0", (), 1, ref))),)


def _either_way(universe: Universe, distance: Terms, ref: Ref, extents: tuple[int, ...]) -> Ref:
    """The distance or its opposite: the same one for ``a == b`` and ``b == a``, where each is a sum of its own."""
    if ref[0].kind != "sum":
        return ref
    _, other = close(universe, tuple((-c, term) for c, term in distance), extents)
    return min(ref, other, key=lambda each: (each[0].id, each[1:]))


def _compared_truth(universe: Universe, relation: str, term: Term, extents: tuple[int, ...]) -> Terms:
    """The comparison of a multiple of a truth with 0: the truth, its opposite, or always or never the case."""
    coefficient, ref = term
    if relation == "lt":
        return ((1, ref),) if coefficient > 0 else ()
    if relation == "le" and coefficient > 0:
        return constant(universe, 1, extents)
    return normalise(universe, [*constant(universe, 1, extents), (-1, ref)], extents)


def _compared_closed(universe: Universe, relation: str, distance: Terms, extents: tuple[int, ...]) -> Terms:
    if len(distance) > 1 and not any(ref[0].infinite for _, ref in distance):
        distance = like_signed(universe, distance, extents)
    coefficient, ref = close(universe, distance, extents)
    if ref[0].kind == "infinity" or any(factor[0].kind == "infinity" for factor in ref[0].factors):
        raise Unsupported("a comparison with infinity")
    if ref[0].truth and not ref[3]:
        return _compared_truth(universe, relation, (coefficient, ref), extents)
    if positive_within(ref[0], ref[3]):  # such as a probability
        return constant(universe, 1, extents) if relation != "eq" and coefficient > 0 else ()
    if relation == "eq":
        return ((1, truth(elementwise(universe, "eq0", (), 1, _either_way(universe, distance, ref, extents)))),)
    strict = relation == "lt"
    if coefficient > 0:
        return ((1, truth(elementwise(universe, "gt0" if strict else "ge0", (), 1, ref))),)
    opposite = truth(elementwise(universe, "ge0" if strict else "gt0", (), 1, ref))
    return normalise(universe, [*constant(universe, 1, extents), (-1, opposite)], extents)


@rule(
    "larger of integers",
    "functions",
    "`max(a, b)` = `a + [a < b] (b - a)` for integers",
    "`torch.maximum(ids, ids - 1)` = `ids`",
    "larger integer",
)
def larger_integer(universe: Universe, a: Terms, b: Terms, extents: tuple[int, ...]) -> Terms | None:
    """The larger of two integers as a choice by a mask, where comparing them gives masks on one index; None where not."""
    guard = compared(universe, "lt", a, b, extents, integral=True)
    if not all(ref[0].kind == "one" or mask_range(ref) is not None for _, ref in guard):
        return None
    more = normalise(universe, [*b, *((-c, ref) for c, ref in a)], extents)
    return normalise(universe, [*a, *times(universe, guard, more, extents)], extents)


def closed_quotient(universe: Universe, terms: Terms, divisor: int, extents: tuple[int, ...]) -> Terms:
    """The floor of a quotient as a function known by its name, in the range that follows."""
    floor = applied(universe, "floor_divide", (divisor,), [terms], "int", extents)
    if len(terms) == 1 and terms[0][0] == 1 and len(floor) == 1:
        known = known_range(terms[0][1][0])
        if known is not None and floor[0][1][0].range is None:
            floor[0][1][0].range = known[0] // divisor, (known[1] - 1) // divisor + 1
    return floor


@rule(
    "quotients of integers",
    "counts and numbers",
    "floor and remainder of an index by its digits, of multiples of the divisor, or of a bounded integer by its multiples",
    "`torch.arange(24).view(4, 6) // 6` = `torch.arange(4)[:, None].expand(4, 6)`",
    "division",
)
def divided(universe: Universe, terms: Terms, divisor: int, extents: tuple[int, ...]) -> tuple[Terms, Terms] | None:
    """Floor and remainder of integer terms, where the radix or a known range gives them; None where not."""
    multiples, left = _multiples(universe, terms, divisor)
    found = _by_cases(universe, left, divisor, extents) if left else ((), ())
    if found is None and not multiples:
        return None
    floor, rest = found or with_rest(
        universe, left, closed_quotient(universe, left, divisor, extents), divisor, extents
    )
    return normalise(universe, [*multiples, *floor], extents), rest


def with_rest(
    universe: Universe, terms: Terms, floor: Terms, divisor: int, extents: tuple[int, ...]
) -> tuple[Terms, Terms]:
    """A quotient, and what it leaves."""
    return floor, normalise(universe, [*terms, *((-divisor * c, ref) for c, ref in floor)], extents)


def _by_cases(universe: Universe, terms: Terms, divisor: int, extents: tuple[int, ...]) -> tuple[Terms, Terms] | None:
    quotient: list[Term] = []
    rest: list[Term] = []
    for guard, value in cases(universe, terms, extents):
        sign, base, index = affine(universe, value, extents)
        parts = (
            _divided_index(universe, index, divisor, extents)
            if base is None
            else _divided_range(universe, (guard, value), (sign, base, index), divisor, extents)
        )
        if parts is None:
            return None
        quotient += times(universe, guard, parts[0], extents)
        rest += times(universe, guard, parts[1], extents)
    return normalise(universe, quotient, extents), normalise(universe, rest, extents)


def _multiples(universe: Universe, terms: Terms, divisor: int) -> tuple[Terms, Terms]:
    """The quotients of the terms that are multiples of a divisor, and the other terms; positions and constants are told apart by their digits."""
    whole = {
        (coefficient, ref): Fraction(coefficient, divisor)
        for coefficient, ref in terms
        if ref[0].kind not in ("iota", "one")
        and Fraction(coefficient, divisor).denominator == 1
        and is_whole_number(universe, ref[0])
    }
    return tuple((each, ref) for (_, ref), each in whole.items()), tuple(term for term in terms if term not in whole)


def _divided_range(
    universe: Universe, case: tuple[Terms, Terms], parts: tuple[int, Ref, Ref], divisor: int, extents: tuple[int, ...]
) -> tuple[Terms, Terms] | None:
    """Of an integer whose range is known: a step function, one mask for every multiple of the divisor within."""
    (guard, value), (sign, base, index) = case, parts
    known = _bounds(guard, base)
    if (
        known is None or permuted(base[0]) is not None
    ):  # of a permutation all multiples are taken: no step is worth a mask
        return None
    low, high = span(index)
    least, most = (known[0], known[1] - 1) if sign > 0 else (1 - known[1], -known[0])
    first, last = (least + low) // divisor, (most + high) // divisor
    if first != last and (low != high or last - first > _STEPS):
        return None
    steps: list[Term] = list(constant(universe, first, extents))
    for multiple in range((first + 1) * divisor, last * divisor + 1, divisor):  # [sign * base + low >= multiple]
        bounds = (multiple - low, _HALF) if sign > 0 else (-_HALF, low - multiple + 1)
        steps += between(universe, base, *bounds, extents)
    return with_rest(universe, value, normalise(universe, steps, extents), divisor, extents)


def _divided_index(
    universe: Universe, index: Ref, divisor: int, extents: tuple[int, ...]
) -> tuple[Terms, Terms] | None:
    """Of an affine index whose radix the divisor meets."""
    quotient, rest = [], []
    for digits in index[2]:
        mine, other = [], []
        for axis, stride, size in digits:
            for part, step, count in _digit_parts(axis, stride, size, divisor):
                fits = axis >= 0 and step % divisor == 0
                mine.append((0, step // divisor, count) if fits else (-1, 0, count))
                other.append((-1, 0, count) if fits or part < 0 else (0, step, count))
        quotient.append(tuple(mine))
        rest.append(tuple(other))
    start = index[1][0]
    left: Ref = (universe.iota, (start % divisor,), tuple(rest), ())
    low, high = span(left)
    if low // divisor != high // divisor:
        return None
    carry = low // divisor
    top: Ref = (universe.iota, (start // divisor + carry,), tuple(quotient), ())
    below: Ref = (universe.iota, (start % divisor - carry * divisor,), tuple(rest), ())
    return fold(universe, [(1, top)], extents), fold(universe, [(1, below)], extents)


def _digit_parts(axis: int, stride: int, size: int, divisor: int) -> list[tuple[int, int, int]]:
    """A digit split where its stride reaches the divisor."""
    step = abs(stride)
    if (
        axis < 0
        or not step
        or step >= divisor
        or divisor % step
        or stride * size <= divisor
        or size % (divisor // step)
    ):
        return [(axis, stride, size)]
    inner = divisor // step
    return [(axis, stride * inner, size // inner), (axis, stride, inner)]
