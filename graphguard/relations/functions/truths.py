"""The largest and the smallest of truths as numbers: whether any of them holds, or all do.

Ranks agree on a flag by the maximum of what each of them found, which is what is found anywhere: ``max([a > 0], [b > 0]) = [a + b > 0]`` for counts a and b.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphguard.relations.functions.functions import elementwise, truth
from graphguard.relations.functions.integers import compared
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.counts import ENDLESS, is_count
from graphguard.relations.sums.linear import close, constant, indicator, normalise, times
from graphguard.relations.sums.masks import mask_range, too_many
from graphguard.relations.terms.kernels import Kernel, Ref, Terms, Universe, Window
from graphguard.relations.terms.values import NormalValue


@rule(
    "truths",
    "functions",
    "the largest of truths is *or*, the smallest *and*",
    "`torch.maximum((x > 0).float(), (y > 0).float())` = `((x > 0) | (y > 0)).float()`",
    "larger or none",
)
def largest_truth(universe: Universe, rows: list[Terms], extents: tuple[int, ...]) -> Terms | None:
    """The largest of several truths, or of as many truths with a minus; None for any other rows."""
    if len(rows) < 2:
        return None
    if all(map(_is_truth, rows)):
        return _any(universe, rows, extents)
    turned = [_opposite(row) for row in rows]
    return _opposite(_all(universe, turned, extents)) if all(map(_is_truth, turned)) else None


@rule(
    "one truth",
    "functions",
    "`m` = `[m > 0]` of a condition that is a sum of many truths, where it chooses between a number and -inf",
    "scores that are masked where the documents of two tokens differ, in pieces of a batch = those of the whole batch",
    "sum",
)
def as_one_truth(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """A condition as one truth where it has more of them than can be told apart under an infinity."""
    if not too_many(universe, terms, extents):
        return terms
    coefficient, ref = close(universe, terms, extents)
    return ((1, truth(elementwise(universe, "gt0", (), coefficient, ref))),)


def are_truths(value: NormalValue) -> bool:
    """Whether all of a value's numbers are seen to be 0 or 1."""
    return all(_is_truth(terms) for _, terms in value.pieces)


def _is_truth(terms: Terms) -> bool:
    """Whether terms are 0, a truth, or the opposite of one."""
    if len(terms) == 2:
        (first, one), (second, ref) = terms if terms[0][1][0].kind == "one" else terms[::-1]
        return first == 1 and second == -1 and one[0].kind == "one" and indicator(ref)
    return not terms or (len(terms) == 1 and terms[0][0] == 1 and indicator(terms[0][1]))


def _any(universe: Universe, truths: list[Terms], extents: tuple[int, ...]) -> Terms:
    ended = _all_at_end(universe, truths, extents, reached=False)
    if ended is not None:
        return normalise(universe, [*constant(universe, 1, extents), *_opposite(ended)], extents)
    out: Terms = ()
    for terms in truths:
        out = normalise(universe, [*out, *terms, *_opposite(times(universe, out, terms, extents))], extents)
    return out


def _all(universe: Universe, truths: list[Terms], extents: tuple[int, ...]) -> Terms:
    ended = _all_at_end(universe, truths, extents, reached=True)
    if ended is not None:
        return ended
    out = constant(universe, 1, extents)
    for terms in truths:
        out = times(universe, out, terms, extents)
    return out


@dataclass(frozen=True, slots=True)
class _End:
    """Whether a count is, or is not, the least or the largest number that it can be."""

    count: Ref
    number: int
    least: bool
    reached: bool


def _all_at_end(universe: Universe, truths: list[Terms], extents: tuple[int, ...], *, reached: bool) -> Terms | None:
    """Whether all counts are at their ends, where every truth says whether one is, or is not: then their sum is at its own."""
    if not all(len(terms) == 1 for terms in truths):
        return None
    asked = {ref: _asked(ref) for ((_, ref),) in truths}
    if not any(asked.values()):
        return None
    found = [end or _End(ref, int(reached), least=not reached, reached=reached) for ref, end in asked.items()]
    if len({end.least for end in found}) > 1 or any(end.reached is not reached for end in found):
        return None
    counts = normalise(universe, [(1, end.count) for end in found], extents)
    number = constant(universe, sum(end.number for end in found), extents)
    return compared(universe, "eq", counts, number, extents, integral=True)


def _asked(ref: Ref) -> _End | None:
    """What a truth says of a count's ends; None for any other truth."""
    asked = mask_range(ref)
    if asked is None:
        return None
    (hot, offsets, dims, _), low, high = asked
    integer, _, window, _, _ = hot.factors[0]
    if not is_count(integer):
        return None
    count = (integer, offsets[:-1], dims, window)
    most = _most(integer, window)
    if low <= 0 and high == 1:
        return _End(count, 0, least=True, reached=True)
    if low == 1 and high > most:
        return _End(count, 0, least=True, reached=False)
    if low == most < high:
        return _End(count, low, least=False, reached=True)
    return _End(count, high, least=False, reached=False) if low <= 0 and high == most else None


def _most(integer: Kernel, window: Window) -> int:
    """The largest number that a count can be, as far as that is seen."""
    truths = integer.kind == "product" and all(factor[0].truth and factor[1] == 1 for factor in integer.factors)
    return prod(high - low for low, high in window) if truths else ENDLESS - 1


def _opposite(terms: Terms) -> Terms:
    return tuple((-c, ref) for c, ref in terms)
