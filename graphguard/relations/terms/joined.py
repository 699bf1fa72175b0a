"""Dims that a closed function sees whole and that are put together from different parts: the parts, one behind the other, are one kernel of their own.

``gg.joined`` is a function of its parts, closed like any other: of equal parts that are put together in the same way it is the same tensor.  So the spectrum of a padded signal and the
order of a line with masked numbers have a form.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import (
    Box,
    NormalValue,
    Piece,
    cut,
    extents_of,
    merged,
    regrid,
    single,
)

JOINED: Final = "gg.joined"
_MOST: Final = 64
_FIRST: Final = 0x4E00  # letters that are neither upper nor lower case
Join = Callable[[tuple[Box, ...], Sequence[tuple[NormalValue, str]], str, tuple[int, ...]], NormalValue]


def whole(value: NormalValue, dims: Collection[int], join: Join) -> NormalValue:
    """The value with every piece as long as these dims; ``join`` makes the closed kernel of parts, given where they stand, their letters, those of the result and its shape."""
    grid = tuple(
        (size,) if dim in dims else digits
        for dim, (size, digits) in enumerate(zip(value.shape, value.grid, strict=True))
    )
    flat = regrid(value, grid)
    cells = [dim in dims for dim, digits in enumerate(flat.grid) for _ in digits]
    if all(
        span == (0, size)
        for box, _ in flat.pieces
        for seen, span, size in zip(cells, box, flat.cells, strict=True)
        if seen
    ):
        return value
    if len(flat.pieces) > _MOST:
        raise Unsupported(f"a whole dim that is put together from more than {_MOST} parts")
    pieces: list[Piece] = []
    for rows in _rows(flat.pieces, cells):
        pieces += _joined(rows, cells, flat, join)
    return NormalValue(value.shape, value.kind, merged(pieces), flat.grid)


def _rows(pieces: Sequence[Piece], cells: Sequence[bool]) -> Iterator[list[Piece]]:
    """The pieces in groups that have everything but the dims seen whole in common."""
    fine = list(pieces)
    for cell, seen in enumerate(cells):
        if not seen:
            places = sorted({at for box, _ in pieces for at in box[cell]})
            fine = [
                part
                for piece in fine
                for low, high in itertools.pairwise(places)
                for part in cut(piece, cell, low, high)
            ]
    groups: dict[Box, list[Piece]] = {}
    for box, terms in fine:
        outside = tuple(span for seen, span in zip(cells, box, strict=True) if not seen)
        groups.setdefault(outside, []).append((box, terms))
    for group in groups.values():
        yield merged(group)


def _joined(rows: Sequence[Piece], cells: Sequence[bool], value: NormalValue, join: Join) -> list[Piece]:
    if len(rows) == 1:
        return list(rows)
    fresh = map(chr, itertools.count(_FIRST))
    letters = [next(fresh) for _ in cells]
    parts = []
    for box, terms in sorted(rows, key=lambda row: row[0]):
        own = "".join(next(fresh) if seen else letter for seen, letter in zip(cells, letters, strict=True))
        parts.append((single(extents_of(box), value.kind, terms), own))
    first = rows[0][0]
    place = tuple((0, size) if seen else span for seen, span, size in zip(cells, first, value.cells, strict=True))
    spans = tuple(
        tuple(span for seen, span in zip(cells, box, strict=True) if seen)
        for box, _ in sorted(rows, key=lambda row: row[0])
    )
    result = join(spans, parts, "".join(letters), extents_of(place))
    result = regrid(result, tuple((size,) for size in result.shape))
    return [
        (tuple((low + start, high + start) for (low, high), (start, _) in zip(box, place, strict=True)), terms)
        for box, terms in result.pieces
    ]
