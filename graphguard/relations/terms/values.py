"""Values of the normal form: tensors as pieces, each a linear combination of references.

A dim is divided in mixed radix, its *grid*; a piece is a box of grid digits.  Keeping boxes over digits instead of dims lets a reshape
regroup digits and leave the pieces as they are.  A value of one piece has the plain grid, one digit a dim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.terms.kernels import Budget, Term, Terms
from graphguard.relations.terms.windows import appended, joined, sliced, split

Box: TypeAlias = tuple[tuple[int, int], ...]
Piece: TypeAlias = tuple[Box, Terms]
Grid: TypeAlias = tuple[tuple[int, ...], ...]

T = TypeVar("T")

PIECES: Final = 512


class NormalValue:
    """A tensor in normal form; ``grid`` has the extents of every dim's digits, ``pieces`` cover their boxes without overlap."""

    __slots__ = ("_key", "grid", "kind", "pieces", "shape")

    def __init__(self, shape: tuple[int, ...], kind: Kind, pieces: list[Piece], grid: Grid | None = None) -> None:
        self.shape = shape
        self.kind: Kind = kind
        self.pieces = pieces
        self.grid: Grid = grid if grid is not None else tuple([(size,) for size in shape])
        self._key: tuple[object, ...] | None = None
        if len(pieces) > PIECES:
            raise Budget(f"a tensor in more than {PIECES} pieces")

    @property
    def cells(self) -> tuple[int, ...]:
        """Extents of all grid digits in order."""
        return tuple(size for digits in self.grid for size in digits)

    @property
    def is_constant(self) -> bool:
        """Whether all elements are numbers that no leaf decides."""
        return all(ref[0].kind in ("one", "number") for _, terms in self.pieces for _, ref in terms)

    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal values."""
        if self._key is None:
            pieces = self.pieces if len(self.pieces) < 2 else sorted(self.pieces, key=lambda piece: piece[0])
            self._key = (self.shape, self.kind, self.grid, tuple(pieces))
        return self._key


def box_of(sizes: Iterable[int]) -> Box:
    """The whole of a grid."""
    return tuple([(0, size) for size in sizes])


def extents_of(box: Box) -> tuple[int, ...]:
    """Extents of a box."""
    return tuple([high - low for low, high in box])


def single(shape: tuple[int, ...], kind: Kind, terms: Terms) -> NormalValue:
    """A value of one piece; none where it is empty."""
    return NormalValue(shape, kind, [] if 0 in shape else [(box_of(shape), terms)])


# -- cutting pieces


def cut(piece: Piece, cell: int, low: int, high: int) -> list[Piece]:
    """The piece within [low, high) of one cell, in the cell's own coordinates; several pieces where radixes do not meet the cut."""
    box, terms = piece
    start, stop = box[cell]
    if low <= start and stop <= high:
        return [piece]
    low, high = max(low, start), min(high, stop)
    if low >= high:
        return []
    cuts = {low - start, high - start}
    for _, ref in terms:
        cuts.update(at for a, b, _ in sliced(ref, cell, low - start, high - start) for at in (a, b))
    out = []
    places = sorted(cuts)
    for first, last in itertools.pairwise(places):
        rows: list[Term] = []
        for coefficient, ref in terms:
            parts = sliced(ref, cell, first, last)
            if len(parts) != 1:
                raise Unsupported("a slice that cuts a reshaped dim unevenly")
            rows.append((coefficient, parts[0][2]))
        out.append(((*box[:cell], (start + first, start + last), *box[cell + 1 :]), tuple(rows)))
    return out


def restrict(pieces: list[Piece], box: Box) -> list[Piece]:
    """The pieces within a box."""
    for cell, (low, high) in enumerate(box):
        if all(low <= piece[0][cell][0] and piece[0][cell][1] <= high for piece in pieces):
            continue
        pieces = [part for piece in pieces for part in cut(piece, cell, low, high)]
    return pieces


def meet(a: Box, b: Box) -> Box | None:
    """The common part of two boxes."""
    out = []
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):
        low, high = max(low, other_low), min(high, other_high)
        if low >= high:
            return None
        out.append((low, high))
    return tuple(out)


def merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring pieces joined where one window covers both."""
    changed = len(pieces) > 1
    while changed and len(pieces) > 1:
        changed = False
        for cell in range(len(pieces[0][0])):
            if len({box[cell] for box, _ in pieces}) == 1:
                continue  # no two are neighbours along it
            rows: dict[Box, list[Piece]] = {}
            for piece in pieces:
                rows.setdefault((*piece[0][:cell], *piece[0][cell + 1 :]), []).append(piece)
            if len(rows) == len(pieces):
                continue
            out: list[Piece] = []
            for row in rows.values():
                row.sort(key=lambda piece: piece[0][cell])
                out += _merged_row(row, cell)
            if len(out) < len(pieces):
                changed = True
            pieces = out
            if len(pieces) == 1:
                break
    return pieces


def _merged_row(row: list[Piece], cell: int) -> list[Piece]:
    out = [row[0]]
    for piece in row[1:]:
        previous = out[-1]
        terms = _both(previous, piece, cell)
        if terms is None:
            out.append(piece)
            continue
        box = previous[0]
        out[-1] = ((*box[:cell], (box[cell][0], piece[0][cell][1]), *box[cell + 1 :]), terms)
    return out


def _both(first: Piece, second: Piece, cell: int) -> Terms | None:
    """Terms that cover two neighbours along a cell."""
    if first[0][cell][1] != second[0][cell][0] or len(first[1]) != len(second[1]):
        return None
    sizes = (first[0][cell][1] - first[0][cell][0], second[0][cell][1] - second[0][cell][0])
    left = list(second[1])
    out: list[Term] = []
    for coefficient, ref in first[1]:
        for index, (other, candidate) in enumerate(left):
            if other != coefficient or candidate[0] is not ref[0]:
                continue
            both = appended(ref, candidate, cell, *sizes)
            if both is not None:
                out.append((coefficient, both))
                del left[index]
                break
        else:
            return None
    return tuple(out)


# -- grids


def regrid(value: NormalValue, grid: Grid) -> NormalValue:
    """The value on a finer grid, or on one that flattens some of its dims."""
    for dim, digits in enumerate(grid):
        if value.grid[dim] != digits:
            value = _regrid_dim(value, dim, digits)
    return value


def _regrid_dim(value: NormalValue, dim: int, digits: tuple[int, ...]) -> NormalValue:
    value = _without_units(value, dim)
    if math.prod(digits) != math.prod(value.grid[dim]):
        raise Unsupported("operands whose extents differ")
    if len(digits) == 1 and len(value.grid[dim]) > 1:
        return _flatten(value, dim)
    while value.grid[dim] != digits:
        old = value.grid[dim]
        place = next(i for i, size in enumerate(old) if size != digits[i])
        inner = old[place] // digits[place]
        value = divide(value, dim, place, inner)
    return value


def _without_units(value: NormalValue, dim: int) -> NormalValue:
    """A dim's grid without digits of extent 1, but for one where there is no other."""
    digits = value.grid[dim]
    if len(digits) == 1 or 1 not in digits:
        return value
    kept = [place for place, size in enumerate(digits) if size != 1] or [0]
    start = sum(len(row) for row in value.grid[:dim])
    gone = {start + place for place in range(len(digits)) if place not in kept}
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        rows = tuple((c, (k, off, _drop(dims, gone), w)) for c, (k, off, dims, w) in terms)
        pieces.append((_drop(box, gone), rows))
    fresh = tuple(digits[place] for place in kept)
    return NormalValue(value.shape, value.kind, pieces, (*value.grid[:dim], fresh, *value.grid[dim + 1 :]))


def _drop(row: tuple[T, ...], gone: set[int]) -> tuple[T, ...]:
    return tuple(item for cell, item in enumerate(row) if cell not in gone)


def divide(value: NormalValue, dim: int, place: int, inner: int) -> NormalValue:
    """Split digit ``place`` of a dim's grid into an outer digit and one of extent ``inner``."""
    cell = sum(len(digits) for digits in value.grid[:dim]) + place
    pieces = [part for piece in value.pieces for part in _divided(piece, cell, inner)]
    digits = value.grid[dim]
    fresh = (*digits[:place], digits[place] // inner, inner, *digits[place + 1 :])
    return NormalValue(value.shape, value.kind, pieces, (*value.grid[:dim], fresh, *value.grid[dim + 1 :]))


def _divided(piece: Piece, cell: int, inner: int) -> list[Piece]:
    low, high = piece[0][cell]
    out = []
    for start, stop in _rows(low, high, inner):
        for box, terms in cut(piece, cell, start, stop):
            a, b = box[cell]
            if len(_rows(a, b, inner)) > 1:  # the cut went along the terms' own digits, across the new rows
                out += _divided((box, terms), cell, inner)
                continue
            if a // inner == (b - 1) // inner:
                outer, rest = (a // inner, a // inner + 1), (a % inner, a % inner + b - a)
            else:
                outer, rest = (a // inner, b // inner), (0, inner)
            sizes = [outer[1] - outer[0], rest[1] - rest[0]]
            rows = _split_terms(terms, cell, sizes)
            if rows is None:
                units = [part for at in range(a, b) for part in cut((box, terms), cell, at, at + 1)]
                out += [unit for part in units for unit in _divided(part, cell, inner)]
            else:
                out.append(((*box[:cell], outer, rest, *box[cell + 1 :]), rows))
    return out


def _rows(low: int, high: int, inner: int) -> list[tuple[int, int]]:
    """[low, high) as a partial first row, whole rows, and a partial last row."""
    cuts = {low, high}
    first, last = -(-low // inner) * inner, high // inner * inner
    if low < first < high:
        cuts.add(first)
    if low < last < high:
        cuts.add(last)
    places = sorted(cuts)
    return list(itertools.pairwise(places))


def _split_terms(terms: Terms, cell: int, sizes: list[int]) -> Terms | None:
    out: list[Term] = []
    for coefficient, (kernel, offsets, dims, window) in terms:
        parts = split(dims[cell], sizes)
        if parts is None:
            return None
        out.append((coefficient, (kernel, offsets, (*dims[:cell], *parts, *dims[cell + 1 :]), window)))
    return tuple(out)


def _flatten(value: NormalValue, dim: int) -> NormalValue:
    """One digit for the whole dim; pieces that are not whole in the inner digits are taken apart."""
    while len(value.grid[dim]) > 1:
        digits = value.grid[dim]
        cell = sum(len(row) for row in value.grid[:dim])
        inner = digits[1]
        pieces: list[Piece] = []
        for piece in value.pieces:
            low, high = piece[0][cell]
            whole_rows = piece[0][cell + 1] == (0, inner)
            rows = (
                [piece]
                if whole_rows or high - low == 1
                else [p for at in range(low, high) for p in cut(piece, cell, at, at + 1)]
            )
            pieces += [_fused(row, cell, inner) for row in rows]
        fresh = (digits[0] * inner, *digits[2:])
        value = NormalValue(value.shape, value.kind, merged(pieces), (*value.grid[:dim], fresh, *value.grid[dim + 1 :]))
    return value


def _fused(piece: Piece, cell: int, inner: int) -> Piece:
    box, terms = piece
    (low, high), (start, stop) = box[cell], box[cell + 1]
    span = (low * inner + start, (high - 1) * inner + stop)
    rows: list[Term] = []
    for coefficient, (kernel, offsets, dims, window) in terms:
        digits = joined((*dims[cell], *dims[cell + 1]))
        rows.append((coefficient, (kernel, offsets, (*dims[:cell], digits, *dims[cell + 2 :]), window)))
    return ((*box[:cell], span, *box[cell + 2 :]), tuple(rows))


def coarsened(value: NormalValue) -> NormalValue:
    """Neighbouring grid digits as one where no piece divides the inner one."""
    if value.pieces and len(value.pieces[0][0]) == len(value.shape):
        return value  # one digit a dim already
    if not value.pieces:
        return NormalValue(value.shape, value.kind, [])
    for dim in range(len(value.grid)):
        place = 0
        while place + 1 < len(value.grid[dim]):
            cell = sum(len(row) for row in value.grid[:dim]) + place
            inner = value.grid[dim][place + 1]
            if all(box[cell + 1] == (0, inner) for box, _ in value.pieces):
                digits = value.grid[dim]
                fresh = (*digits[:place], digits[place] * inner, *digits[place + 2 :])
                pieces = [_fused(piece, cell, inner) for piece in value.pieces]
                value = NormalValue(value.shape, value.kind, pieces, (*value.grid[:dim], fresh, *value.grid[dim + 1 :]))
            else:
                place += 1
    return value


def common(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The coarsest division of a dim that refines several; one digit where none does."""
    if all(row == rows[0] for row in rows):
        return rows[0]
    cuts = sorted(set().union(*map(_suffixes, rows)))
    if len(cuts) == 1 or any(high % low for low, high in itertools.pairwise(cuts)):
        return (cuts[-1],)
    return tuple(high // low for low, high in itertools.pairwise(cuts))[::-1]


def _suffixes(digits: tuple[int, ...]) -> set[int]:
    out = {1}
    total = 1
    for digit in reversed(digits):
        total *= digit
        out.add(total)
    return out


def aligned(values: Sequence[NormalValue]) -> list[NormalValue]:
    """Values of one shape on one grid."""
    first = values[0].grid
    for value in values:
        if value.grid != first:
            break
    else:
        return list(values)
    grid = tuple(common(rows) for rows in zip(*(value.grid for value in values), strict=True))
    return [regrid(value, grid) for value in values]
