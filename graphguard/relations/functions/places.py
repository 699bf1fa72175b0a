"""Where the largest of a line stands: a reduction whose windows join, as those of the maximum itself do.

``place[W](x)`` is the least coordinate in the window W at which x is largest.  Of two windows side by side the second has the place in both where its maximum is
larger than the first's, else the first has it: so the index of the largest logit over a divided vocabulary is found, whichever way the ranks' answers are put together.
"""

from __future__ import annotations

from typing import Final

from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.integers import compared
from graphguard.relations.functions.maxima import larger, largest
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums import outermost
from graphguard.relations.sums.linear import close, constant, normalise, opened, times
from graphguard.relations.sums.masks import taken_apart
from graphguard.relations.sums.monotone import like_ordered
from graphguard.relations.terms.building import build
from graphguard.relations.terms.kernels import UNBOUNDED, Number, Ref, Term, Terms, Universe
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.values import Box, NormalValue, Piece, extents_of, meet, merged, regrid, single
from graphguard.relations.terms.windows import refine, through

_TERMS: Final = 64  # of a sum in which places are looked for

_Guarded = dict[frozenset[Ref], dict[Ref, Number]]  # by the truths they are multiplied by, multiples of places


def place_over(universe: Universe, value: NormalValue, dim: int) -> NormalValue:
    """Where the largest stands along a dim, which is dropped; the first of several."""
    shape = (*value.shape[:dim], *value.shape[dim + 1 :])
    if 0 in value.shape:
        return single(shape, "int", ())
    value = regrid(value, (*value.grid[:dim], (value.shape[dim],), *value.grid[dim + 1 :]))
    cell = sum(map(len, value.grid[:dim]))
    lines: dict[Box, list[tuple[int, Terms, Terms]]] = {}
    for box, terms in value.pieces:
        sizes, kept = extents_of(box), (*box[:cell], *box[cell + 1 :])
        start = constant(universe, box[cell][0], extents_of(kept))
        place = normalise(universe, [*first_place(universe, terms, sizes, cell), *start], extents_of(kept))
        lines.setdefault(kept, []).append((box[cell][0], largest(universe, terms, sizes, (cell,)), place))
    boxes = list(lines)
    if any(meet(a, b) is not None for index, a in enumerate(boxes) for b in boxes[index + 1 :]):
        raise Unsupported("the largest of lines that are put together unevenly")
    pieces: list[Piece] = [(box, _of_parts(universe, sorted(parts), extents_of(box))) for box, parts in lines.items()]
    return NormalValue(shape, "int", merged(pieces), (*value.grid[:dim], *value.grid[dim + 1 :]))


def _of_parts(universe: Universe, parts: list[tuple[int, Terms, Terms]], extents: tuple[int, ...]) -> Terms:
    """The place in the whole of a line from those in its parts, in order."""
    (_, top, place), *rest = parts
    for _, other, there in rest:
        later = compared(universe, "lt", top, other, extents, integral=False)
        apart = normalise(universe, [*there, *((-c, ref) for c, ref in place)], extents)
        place = normalise(universe, [*place, *times(universe, later, apart, extents)], extents)
        top = larger(universe, [top, other], extents)
    return place


@rule(
    "places depend on the order",
    "order",
    "an argmax is that of anything in the same order",
    "`x.softmax(-1).argmax(-1)` = `x.argmax(-1)`",
    "place",
)
def first_place(universe: Universe, terms: Terms, extents: tuple[int, ...], dim: int) -> Terms:
    """The place along a dim, counted from its start, which is dropped."""
    kept = (*extents[:dim], *extents[dim + 1 :])
    inside = tuple(term for term in terms if any(digit[0] >= 0 for digit in term[1][2][dim]))
    if not inside:
        return ()
    inside = _without_still_factor(universe, inside, extents, dim)
    found = _whole_line(universe, inside, extents, dim) or _place(universe, inside, extents, dim)
    return normalise(universe, [(1, found), *constant(universe, -found[3][0][0], kept)], kept)


def _without_still_factor(universe: Universe, terms: Terms, extents: tuple[int, ...], dim: int) -> Terms:
    """The line over a positive factor that is the same all along, which maxima leave as well, so that parts of it are joined by their maxima."""
    coefficient, ref = close(universe, terms, extents)
    parts = outermost.positive_factor(universe, ref, extents, (dim,))
    if parts is None:
        return terms
    number, _, (inner, rest) = parts
    return ((number * inner * coefficient, rest),)


def _whole_line(universe: Universe, terms: Terms, extents: tuple[int, ...], dim: int) -> Ref | None:
    """The place in the innermost line that has the same order, where that is a whole one: parts are joined by their maxima, which are not those of another line."""
    like = like_ordered(universe, terms, extents, dim)
    if not like or like == terms:
        return None
    try:
        found = _place(universe, like, extents, dim)
    except Unsupported:
        return None
    return found if found[3][0] == (0, found[0].reduced[0]) else None


def _place(universe: Universe, terms: Terms, extents: tuple[int, ...], dim: int) -> Ref:
    coefficient, ref = close(universe, terms, extents)
    sizes, dims, used = refine([ref], extents)
    digits = dims[dim]
    if len(digits) != 1 or any(stride < 0 for _, _, stride in used[0]):
        raise Unsupported(
            "the largest of a line that is reshaped or runs backwards"
        )  # which of several is first would be lost
    part = Part(ref[0], 1 if coefficient > 0 else -1, ref[3], list(ref[1]), used[0])
    found = build(universe, "place", (), [part], sizes, [*dims[:dim], *dims[dim + 1 :]], set(digits))
    kernel = found[0]
    universe.places = True
    kernel.type = "int"
    if kernel.reduced[0] != UNBOUNDED:
        kernel.range = (0, kernel.reduced[0])
    return found


# -- places of parts put together


@rule(
    "argmax of parts",
    "order",
    "`[max b > max a] argmax b + (1 - [max b > max a]) argmax a` = the argmax of both, the second part having the place if its maximum is larger",
    "`torch.where(b.amax(-1) > a.amax(-1), b.argmax(-1) + 6, a.argmax(-1))` = `torch.cat([a, b], -1).argmax(-1)`",
    "sum",
)
def joined_places(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """The same sum with ``[max b > max a] place b + (1 - [max b > max a]) place a``, written out, as the place in both."""
    if not universe.places or not 2 < len(items) <= _TERMS:
        return items
    found: _Guarded = {}
    rest: list[Term] = []
    for coefficient, ref in items:
        parts = _taken(universe, ref, extents)
        if parts is None:
            rest.append((coefficient, ref))
        else:
            found.setdefault(parts[0], {})[parts[1]] = coefficient
    if len(found) < 2 or not _join_one(found):
        return items
    while _join_one(found):
        pass
    for truths, places in found.items():
        for place, coefficient in places.items():
            term: Terms = ((coefficient, place),)
            for truth in truths:
                term = times(universe, ((1, truth),), term, extents)
            rest += term
    return rest


def _taken(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> tuple[frozenset[Ref], Ref] | None:
    """A term as truths times a place; None where it is no such product."""
    truths: set[Ref] = set()
    while ref[0].kind != "place":
        if ref[0].kind != "product" or not any(factor[0].kind == "place" for factor in ref[0].factors):
            return None
        pairs = taken_apart(universe, ref, extents)
        alone = next((pair for pair in pairs if pair[1][0] == 1 and pair[1][1] != ref), None)
        if alone is None:
            return None
        truths.add(alone[0])
        ref = alone[1][1]
    return frozenset(truths), ref


def _join_one(found: _Guarded) -> bool:
    """Join two places of the sum, in place; whether there were any."""
    for truths, places in found.items():
        for guarded, others in found.items():
            if len(guarded) != len(truths) + 1 or not truths < guarded:
                continue
            (guard,) = guarded - truths
            for first, amount in places.items():
                if others.get(first) != -amount:
                    continue
                for second, same in others.items():
                    both = _union(guard, first, second) if same == amount else None
                    if both is not None:
                        del places[first], others[first], others[second]
                        places[both] = places.get(both, 0) + amount
                        return True
    return False


def _union(guard: Ref, first: Ref, second: Ref) -> Ref | None:
    """The place in two windows side by side, where ``guard`` says that the second has it and its opposite that the first has."""
    if first[:3] != second[:3] or guard[0].kind != "function" or guard[0].name not in ("gt0", "ge0"):
        return None
    base = through(guard, guard[0].factors[0])
    terms = opened(base) if base is not None and base[0].kind == "sum" and guard[0].factors[0][1] == 1 else None
    if terms is None or len(terms) != 2:
        return None
    (c, one), (d, other) = terms
    more, less = (one, other) if c > 0 else (other, one)
    if c != -d or not _is_maximum_of(more, second) or not _is_maximum_of(less, first):
        return None
    (low, middle), (start, high) = (
        (first[3][0], second[3][0]) if guard[0].name == "gt0" else (second[3][0], first[3][0])
    )
    return (*first[:3], ((low, high),)) if middle == start else None  # of equal ones the first counts


def _is_maximum_of(maximum: Ref, place: Ref) -> bool:
    """Whether a reference is to the maximum whose place the other is to."""
    kernel, other = maximum[0], place[0]
    return (
        kernel.kind == "max"
        and kernel.factors == other.factors
        and (kernel.shape, kernel.reduced) == (other.shape, other.reduced)
        and maximum[1:] == place[1:]
    )
