"""Lines of truths: how many columns of a row lie before, or behind, a number is that number.

``mask = torch.arange(n) < lengths[:, None]`` has ``lengths`` ones in a row, where every length is one of 0 to n: a program that counts its mask, and one that
was given the lengths, divide by the same.
"""

from __future__ import annotations

from graphguard.relations.facts.intervals import between
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, opened
from graphguard.relations.terms.kernels import Factor, Kernel, Number, Ref, Term, Terms, Universe
from graphguard.relations.terms.windows import through


@rule(
    "lines of truths",
    "counts and numbers",
    "`sum over i in [a, b) of [i + x > 0]` = `b - 1 + x`, for whole numbers x that are seen to make it one of 0 to b - a",
    "`(torch.arange(5) < lengths[:, None]).sum(1)` = `lengths`",
    "product of terms",
)
def counted_line(universe: Universe, coefficient: Number, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    """A multiple of a count along a line as the number that it is; None for any other product, or where the number may lie outside the line."""
    terms = _number(universe, ref, extents)
    return None if terms is None else normalise(universe, [(coefficient * c, part) for c, part in terms], extents)


@rule(
    "joined lines of truths",
    "counts and numbers",
    "`sum over i in [a, b)` + `sum over i in [b, c)` of it = `c - 1 + x`, likewise",
    "`(torch.arange(3) < lengths[:, None]).sum(1) + (torch.arange(3, 5) < lengths[:, None]).sum(1)` = `lengths`",
    "sum",
)
def counted_lines(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """Terms of a sum, counts along lines among them as the numbers that they are."""
    found = [(item, _number(universe, item[1], extents)) for item in items]
    if all(terms is None for _, terms in found):
        return items
    out: list[Term] = []
    for (coefficient, ref), terms in found:
        out += [(coefficient, ref)] if terms is None else [(coefficient * c, part) for c, part in terms]
    return list(normalise(universe, out, extents))


def _number(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    """What a count along a line of truths is: what stands under its last truth that can hold, where every count from none to all is one."""
    line = _line_of(ref[0])
    if line is None:
        return None
    (half, _, window, base, steps), axis, stride = line
    low, high = ref[3][0]
    rest = tuple(step for step in steps if step[1] != len(ref[0].shape))
    asked = half.factors[0]
    slope = _slope(asked, axis)
    if abs(slope * stride) != 1:
        return None
    last = high - 1 if slope * stride > 0 else low
    place = (*base[:axis], base[axis] + stride * last, *base[axis + 1 :])
    truth = through((ref[0], ref[1], ref[2], ()), (half, 1, window, place, rest))
    inside = None if truth is None else through(truth, asked)
    terms = None if inside is None else opened(inside)
    if terms is None:
        return None
    terms = normalise(universe, list(terms), extents)
    ends = [_ends(term) for term in terms]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or sum(one for one, _ in known) < 0 or sum(one for _, one in known) > high - low:
        return None
    return terms


def _line_of(kernel: Kernel) -> tuple[Factor, int, int] | None:
    """The truth that a kernel counts along one axis of it, and that axis with its stride."""
    if kernel.kind != "product" or len(kernel.factors) != 1 or len(kernel.reduced) != 1:
        return None
    (factor,) = kernel.factors
    truth, power, _, _, steps = factor
    moved = [(axis, stride) for axis, label, stride in steps if label == len(kernel.shape)]
    if truth.kind != "function" or truth.name != "gt0" or power != 1 or len(moved) != 1:
        return None
    if sum(axis == moved[0][0] for axis, _, _ in steps) > 1 or truth.factors[0][0].kind != "sum":
        return None
    return factor, *moved[0]


def _slope(asked: Factor, axis: int) -> Number:
    """By how much what is asked grows from one place of an axis to the next; 0 where that is not seen, or it is not a sum of whole numbers."""
    total, number, _, _, steps = asked
    moved = [(inner, stride) for inner, label, stride in steps if label == axis]
    if len(moved) != 1 or number != 1 or sum(inner == moved[0][0] for inner, _, _ in steps) > 1:
        return 0
    slope: Number = 0
    for part, payload, _, _, inside in total.factors:
        if payload not in (1, -1):
            return 0
        strides = [stride for _, label, stride in inside if label == moved[0][0]]
        if strides and part.kind != "iota":
            return 0
        slope += sum(payload * stride for stride in strides)
    return slope * moved[0][1]


def _ends(term: Term) -> tuple[int, int] | None:
    """The least and the largest whole number that a term can be; None where that is not known."""
    coefficient, ref = term
    found = (1, 2) if ref[0].kind == "one" else between(ref)
    if found is None or coefficient.denominator != 1:
        return None
    ends = int(coefficient) * found[0], int(coefficient) * (found[1] - 1)
    return min(ends), max(ends)
