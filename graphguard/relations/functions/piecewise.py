"""Operations on values piece by piece, on the common refinement of their pieces; equality of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.sums.linear import normalise, scaled, settled
from graphguard.relations.terms.kernels import Budget, Number, Terms, Universe
from graphguard.relations.terms.values import (
    PIECES,
    Box,
    NormalValue,
    Piece,
    aligned,
    coarsened,
    cut,
    extents_of,
    meet,
    merged,
    restrict,
)
from graphguard.relations.terms.windows import Misaligned, extent


def pointwise(
    values: Sequence[NormalValue], kind: Kind, act: Callable[[list[Terms], tuple[int, ...]], Terms]
) -> NormalValue:
    """An elementwise operation, piece by piece on the common refinement of the values' pieces."""
    shape = values[0].shape
    if len(values) > 1:
        values = aligned(values)
    pieces: list[Piece] = []
    for box, rows in overlay([value.pieces for value in values]):
        pieces += act_on(box, rows, act, 0)
    result = NormalValue(shape, kind, merged(pieces), values[0].grid)
    return coarsened(result) if sum(map(len, result.grid)) > len(shape) else result


def act_on(
    box: Box, rows: list[Terms], act: Callable[[list[Terms], tuple[int, ...]], Terms], depth: int = 0
) -> list[Piece]:
    """One piece's operands acted on, in smaller boxes where their radixes do not meet."""
    try:
        return [(box, act(rows, extents_of(box)))]
    except Misaligned as error:
        if depth > 6:
            raise
        out: list[Piece] = []
        low, high = box[error.dim]
        step = _outer_step([ref[2][error.dim] for terms in rows for _, ref in terms], high - low)
        for start in range(low, high, step):
            part = (*box[: error.dim], (start, min(start + step, high)), *box[error.dim + 1 :])
            for inner, cut_rows in overlay([restrict([(box, terms)], part) for terms in rows]):
                out += act_on(inner, cut_rows, act, depth + 1)
        return out


def _outer_step(rows: list[tuple[tuple[int, int, int], ...]], size: int) -> int:
    """The largest inner run of any of the maps that is smaller than the dim."""
    best = 1
    for digits in rows:
        if len(digits) > 1:
            best = max(best, extent(digits[1:]))
    return best if best < size else 1


def overlay(columns: list[list[Piece]]) -> list[tuple[Box, list[Terms]]]:
    """The common refinement of several divisions of one domain."""
    if [len(pieces) for pieces in columns] == [1] * len(columns):
        return [(columns[0][0][0], [pieces[0][1] for pieces in columns])]
    work: list[tuple[Box, list[Terms]]] = [(box, [terms]) for box, terms in columns[0]]
    for pieces in columns[1:]:
        fresh: list[tuple[Box, list[Terms]]] = []
        for box, rows in work:
            for other, terms in restrict([piece for piece in pieces if meet(piece[0], box) is not None], box):
                if other == box:
                    fresh.append((box, [*rows, terms]))
                    continue
                parts = [restrict([(box, row)], other) for row in rows]
                if all(len(part) == 1 for part in parts):
                    fresh.append((other, [*(part[0][1] for part in parts), terms]))
                    continue
                for inner, inner_rows in overlay([*parts]):
                    fresh += [(b, [*r, t]) for b, r, t in _within(inner, inner_rows, (other, terms))]
        work = fresh
        if len(work) > PIECES:
            raise Budget(f"a tensor in more than {PIECES} pieces")
    return work


def _within(box: Box, rows: list[Terms], piece: Piece) -> list[tuple[Box, list[Terms], Terms]]:
    out = []
    for other, terms in restrict([piece], box):
        if other == box:
            out.append((box, rows, terms))
            continue
        parts = [restrict([(box, row)], other) for row in rows]
        if all(len(part) == 1 for part in parts):
            out.append((other, [part[0][1] for part in parts], terms))
            continue
        for inner, inner_rows in overlay(parts):  # each smaller than the box
            out += _within(inner, inner_rows, (other, terms))
    return out


def gathered(
    universe: Universe,
    pieces: list[Piece],
    combine: Callable[[list[Terms], tuple[int, ...]], Terms] | None = None,
) -> list[Piece]:
    """Contributions to boxes that may overlap, added (or combined) into pieces that do not."""
    if len(pieces) == 1:
        return pieces
    boxes: dict[Box, list[Terms]] = {}
    for box, terms in pieces:
        boxes.setdefault(box, []).append(terms)
    if len(boxes) > 1 and _overlap(list(boxes)):
        cuts = [sorted({at for box in boxes for at in box[cell]}) for cell in range(len(pieces[0][0]))]
        fine: list[Piece] = []
        for piece in pieces:
            parts = [piece]
            for cell, places in enumerate(cuts):
                spans = list(itertools.pairwise(places))
                parts = [out for part in parts for low, high in spans for out in cut(part, cell, low, high)]
            fine += parts
        boxes = {}
        for box, terms in fine:
            boxes.setdefault(box, []).append(terms)
        if _overlap(list(boxes)):
            raise Unsupported("sums over pieces that overlap unevenly")
    out: list[Piece] = []
    for box, rows in boxes.items():
        sizes = extents_of(box)
        if combine is not None:
            out.append((box, combine(rows, sizes)))
        elif len(rows) == 1:
            out.append((box, rows[0]))
        else:
            out.append((box, normalise(universe, [term for row in rows for term in row], sizes)))
    return merged(out)


def _overlap(boxes: list[Box]) -> bool:
    return any(meet(a, b) is not None for index, a in enumerate(boxes) for b in boxes[index + 1 :])


def scaled_value(universe: Universe, value: NormalValue, factor: Number, kind: Kind) -> NormalValue:
    """The value times a number."""
    pieces = [(box, scaled(universe, terms, factor, extents_of(box))) for box, terms in value.pieces]
    return NormalValue(value.shape, kind, merged(pieces) if factor == 0 else pieces, value.grid)


def settled_value(universe: Universe, value: NormalValue) -> NormalValue:
    """The value of a part of a tensor in the form it would have had by itself."""
    if True not in [ref[0].placed for _, terms in value.pieces for _, ref in terms]:
        return value
    pieces = [(box, settled(universe, terms, extents_of(box))) for box, terms in value.pieces]
    if len(pieces) == 1 and pieces[0][1] is value.pieces[0][1]:
        return value
    return NormalValue(value.shape, value.kind, merged(pieces), value.grid)


def difference(universe: Universe, a: NormalValue, b: NormalValue) -> NormalValue:
    """a - b; no terms anywhere exactly when the two are equal in normal form."""

    def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
        if rows[0] == rows[1]:
            return ()
        terms = settled(universe, normalise(universe, [*rows[0], *((-c, ref) for c, ref in rows[1])], sizes), sizes)
        for rule in universe.rules.differences:
            terms = rule(universe, terms, sizes)
        return terms

    return pointwise([a, b], a.kind, act)


def equal(universe: Universe, a: NormalValue, b: NormalValue) -> bool:
    """Whether two values of one shape have the same normal form."""
    if a is b or (a.shape == b.shape and a.grid == b.grid and a.pieces == b.pieces):
        return True
    return a.shape == b.shape and all(not terms for _, terms in difference(universe, a, b).pieces)
