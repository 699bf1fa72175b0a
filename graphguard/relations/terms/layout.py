"""Layout operators on normal-form values: they rewrite references and boxes, and no kernel changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Digits, Term, Terms
from graphguard.relations.terms.values import (
    Box,
    Grid,
    NormalValue,
    Piece,
    aligned,
    box_of,
    coarsened,
    common,
    cut,
    divide,
    merged,
    regrid,
    single,
)
from graphguard.relations.terms.windows import joined, repeat, sliced, split


def permute(value: NormalValue, order: Sequence[int]) -> NormalValue:
    """Dims in another order."""
    if list(order) == list(range(len(order))):
        return value
    if len(value.pieces) == 1 and len(value.pieces[0][0]) == len(value.shape):
        cells: Sequence[int] = order  # one digit a dim
    else:
        starts = _starts(value)
        cells = [starts[dim] + place for dim in order for place in range(len(value.grid[dim]))]
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        rows = tuple([(c, (k, off, tuple([dims[cell] for cell in cells]), w)) for c, (k, off, dims, w) in terms])
        pieces.append((tuple([box[cell] for cell in cells]), rows))
    shape = tuple([value.shape[dim] for dim in order])
    return NormalValue(shape, value.kind, pieces, tuple([value.grid[dim] for dim in order]))


def _starts(value: NormalValue) -> list[int]:
    """The first cell of every dim."""
    out = []
    at = 0
    for digits in value.grid:
        out.append(at)
        at += len(digits)
    return out


def expand(value: NormalValue, shape: tuple[int, ...]) -> NormalValue:
    """Broadcast to a shape."""
    if value.shape == shape:
        return value
    if 0 in shape:
        return single(shape, value.kind, ())
    lead = len(shape) - len(value.shape)
    head_box = box_of(shape[:lead])
    head = [repeat(size) for size in shape[:lead]]
    starts = _starts(value)
    changes = {
        starts[dim]: size
        for dim, (have, size) in enumerate(zip(value.shape, shape[lead:], strict=True))
        if have != size
    }
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        own = list(box)
        for cell, size in changes.items():
            own[cell] = (0, size)
        rows: list[Term] = []
        for c, (k, off, dims, w) in terms:
            fresh = list(dims)
            for cell, size in changes.items():
                fresh[cell] = repeat(size)
            rows.append((c, (k, off, (*head, *fresh), w)))
        pieces.append(((*head_box, *own), tuple(rows)))
    grid: Grid = tuple((size,) for size in shape[:lead])
    for dim, digits in enumerate(value.grid):
        grid = (*grid, (shape[lead + dim],) if value.shape[dim] != shape[lead + dim] else digits)
    return NormalValue(shape, value.kind, pieces, grid)


def repeats(value: NormalValue, dim: int) -> bool:
    """Whether no term reads a dim, and every piece covers it: all its places hold the same elements."""
    first = _starts(value)[dim]
    cells = range(first, first + len(value.grid[dim]))
    sizes = value.cells
    return all(
        box[cell] == (0, sizes[cell]) and all(axis < 0 for _, ref in terms for axis, _, _ in ref[2][cell])
        for box, terms in value.pieces
        for cell in cells
    )


def slice_dim(value: NormalValue, dim: int, start: int, stop: int, step: int) -> NormalValue:
    """Elements start, start + step, ... below stop of one dim."""
    size = value.shape[dim]
    count = max(0, -(-(stop - start) // step))
    if (start, count, step) == (0, size, 1):
        return value
    shape = (*value.shape[:dim], count, *value.shape[dim + 1 :])
    if 0 in shape:
        return single(shape, value.kind, ())
    if step != 1:
        return _strided(value, dim, start, count, step, shape)
    if len(value.pieces) == 1 and len(value.pieces[0][0]) == len(shape):
        terms = _of_one_piece(value.pieces[0][1], dim, start, stop)
        if terms is not None:
            return single(shape, value.kind, terms)
    digits = value.grid[dim]
    inner = size // digits[0]
    if len(digits) > 1 and (start % inner or stop % inner):
        value = regrid(value, (*value.grid[:dim], (size,), *value.grid[dim + 1 :]))
        digits, inner = (size,), 1
    cell = _starts(value)[dim]
    low, high = start // inner, stop // inner
    pieces = [_moved(part, cell, -low) for piece in value.pieces for part in cut(piece, cell, low, high)]
    fresh = (high - low, *digits[1:])
    result = NormalValue(shape, value.kind, merged(pieces), (*value.grid[:dim], fresh, *value.grid[dim + 1 :]))
    return coarsened(result)


def _of_one_piece(terms: Terms, dim: int, start: int, stop: int) -> Terms | None:
    """The terms of a range of a dim; None where a radix does not meet it."""
    rows: list[Term] = []
    for coefficient, ref in terms:
        parts = sliced(ref, dim, start, stop)
        if len(parts) != 1:
            return None
        rows.append((coefficient, parts[0][2]))
    return tuple(rows)


def _moved(piece: Piece, cell: int, by: int) -> Piece:
    box, terms = piece
    return ((*box[:cell], (box[cell][0] + by, box[cell][1] + by), *box[cell + 1 :]), terms)


def _strided(value: NormalValue, dim: int, start: int, count: int, step: int, shape: tuple[int, ...]) -> NormalValue:
    """Every step-th element: the outer digit of a division by the step, where that is even; single elements where not."""
    size = value.shape[dim]
    stop = start + count * step
    low = start - start % step
    if size % step == 0 or stop <= size:
        last = min(size, low + -(-(stop - low) // step) * step)
        if (last - low) % step == 0 and start % step + (count - 1) * step < last - low:
            whole = slice_dim(value, dim, low, last, 1)
            rows = (last - low) // step
            split_shape = (*shape[:dim], rows, step, *shape[dim + 1 :])
            picked = slice_dim(reshape(whole, split_shape), dim + 1, start % step, start % step + 1, 1)
            return slice_dim(reshape(picked, (*shape[:dim], rows, *shape[dim + 1 :])), dim, 0, count, 1)
    if count > 256:
        raise Unsupported("a strided slice whose step does not divide the dim")
    return concat([slice_dim(value, dim, at, at + 1, 1) for at in range(start, start + count * step, step)], dim)


def flip(value: NormalValue, dim: int) -> NormalValue:
    """Reverse order along a dim."""
    size = value.shape[dim]
    if len(value.grid[dim]) > 1:
        value = regrid(value, (*value.grid[:dim], (size,), *value.grid[dim + 1 :]))
    cell = _starts(value)[dim]
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        rows: list[Term] = []
        for c, (k, off, dims, w) in terms:
            offsets = list(off)
            turned = []
            for axis, stride, count in dims[cell]:
                if axis >= 0:
                    offsets[axis] += stride * (count - 1)
                turned.append((axis, -stride, count))
            rows.append((c, (k, tuple(offsets), (*dims[:cell], joined(turned), *dims[cell + 1 :]), w)))
        low, high = box[cell]
        pieces.append(((*box[:cell], (size - high, size - low), *box[cell + 1 :]), tuple(rows)))
    return NormalValue(value.shape, value.kind, merged(pieces), value.grid)


def concat(values: Sequence[NormalValue], dim: int) -> NormalValue:
    """Joined along a dim."""
    shape = (*values[0].shape[:dim], sum(value.shape[dim] for value in values), *values[0].shape[dim + 1 :])
    values = [value for value in values if value.shape[dim]]
    if not values or 0 in shape:
        return single(shape, values[0].kind if values else "float", ())
    if len(values) == 1:
        return values[0]
    others = _same_inside(_same_elsewhere(values, dim), dim)
    inner = others[0].grid[dim][1:]
    cell = _starts(others[0])[dim]
    pieces: list[Piece] = []
    at = 0
    for value in others:
        pieces += [_moved(piece, cell, at) for piece in value.pieces]
        at += value.grid[dim][0]
    grid = (*others[0].grid[:dim], (at, *inner), *others[0].grid[dim + 1 :])
    return coarsened(NormalValue(shape, others[0].kind, merged(pieces), grid))


def _same_elsewhere(values: Sequence[NormalValue], dim: int) -> list[NormalValue]:
    """One grid for all dims but one."""
    if len({(*value.grid[:dim], *value.grid[dim + 1 :]) for value in values}) == 1:
        return list(values)
    dims = range(len(values[0].grid))
    grid = [() if d == dim else common([value.grid[d] for value in values]) for d in dims]
    return [
        regrid(value, tuple(value.grid[d] if d == dim else digits for d, digits in enumerate(grid))) for value in values
    ]


def _same_inside(values: list[NormalValue], dim: int) -> list[NormalValue]:
    """One division of a dim for all but its outermost digit: the one that some have, if the others take it without falling apart, or none."""
    rows = {value.grid[dim][1:] for value in values}
    if len(rows) == 1:
        return values
    rows.discard(())
    inner = min(rows)
    size = math.prod(inner)
    if len(rows) == 1 and not any(value.shape[dim] % size for value in values):
        fine = [_with_digits(value, dim, (value.shape[dim] // size, *inner)) for value in values]
        if all(len(a.pieces) == len(b.pieces) for a, b in zip(fine, values, strict=True)):
            return fine
    return [_with_digits(value, dim, (value.shape[dim],)) for value in values]


def _with_digits(value: NormalValue, dim: int, digits: tuple[int, ...]) -> NormalValue:
    return regrid(value, (*value.grid[:dim], digits, *value.grid[dim + 1 :]))


def reshape(value: NormalValue, shape: tuple[int, ...]) -> NormalValue:
    """The same elements in row-major order."""
    if value.shape == shape:
        return value
    if not value.pieces:
        return single(shape, value.kind, ())
    groups = _groups(value.shape, shape)
    if len(value.pieces) == 1:
        terms = _regrouped(value, shape, groups)
        if terms is not None:
            return single(shape, value.kind, terms)
    grid: list[tuple[int, ...]] = [()] * len(shape)
    for old, new in groups:
        value, rows = _dealt(value, old, [shape[dim] for dim in new])
        for dim, digits in zip(new, rows, strict=True):
            grid[dim] = digits
    return coarsened(_with_grid(value, shape, tuple(grid)))


def _with_grid(value: NormalValue, shape: tuple[int, ...], grid: tuple[tuple[int, ...], ...]) -> NormalValue:
    """The digits in ``value`` without those of extent 1, seen as another grid; digits of extent 1 come and go."""
    keep = [cell for cell, size in enumerate(value.cells) if size != 1]
    cells = [size for digits in grid for size in digits]
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        spans = iter([box[cell] for cell in keep])
        fresh: Box = tuple([(0, 1) if size == 1 else next(spans) for size in cells])
        rows: list[Term] = []
        for c, (k, off, dims, w) in terms:
            digits = iter([dims[cell] for cell in keep])
            rows.append((c, (k, off, tuple([() if size == 1 else next(digits) for size in cells]), w)))
        pieces.append((fresh, tuple(rows)))
    return NormalValue(shape, value.kind, merged(pieces), grid)


_Group = tuple[tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=4096)
def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[_Group, ...]:
    """Runs of old and of new dims with equal products."""
    out: list[_Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        mine: list[int] = []
        other: list[int] = []
        a = b = 1
        if i < len(old):
            mine.append(i)
            a = old[i]
            i += 1
        if j < len(new):
            other.append(j)
            b = new[j]
            j += 1
        while a != b:
            if a < b:
                mine.append(i)
                a *= old[i]
                i += 1
            else:
                other.append(j)
                b *= new[j]
                j += 1
        if j == len(new):
            mine += range(i, len(old))
            i = len(old)
        if i == len(old):
            other += range(j, len(new))
            j = len(new)
        out.append((tuple(mine), tuple(other)))
    return tuple(out)


def _regrouped(value: NormalValue, shape: tuple[int, ...], groups: tuple[_Group, ...]) -> Terms | None:
    """The terms of a value of one piece; None where a radix does not fit the new dims."""
    value = coarsened(value)
    out: list[Term] = []
    for c, (k, off, dims, w) in value.pieces[0][1]:
        fresh: list[Digits] = []  # the groups are in the order of the new dims
        for old, new in groups:
            if len(old) == 1 == len(new):
                fresh.append(dims[old[0]])
                continue
            flat = joined(dims[old[0]] if len(old) == 1 else [digit for dim in old for digit in dims[dim]])
            if len(new) == 1:
                fresh.append(flat)
                continue
            parts = split(flat, [shape[dim] for dim in new])
            if parts is None:
                return None
            fresh += parts
        out.append((c, (k, off, tuple(fresh), w)))
    return tuple(out)


def _dealt(value: NormalValue, old: tuple[int, ...], sizes: list[int]) -> tuple[NormalValue, list[tuple[int, ...]]]:
    """Divide the grid digits of some dims so that dims of the given sizes are runs of them; the runs, outermost first."""
    for _ in range(64):
        flat = [(dim, place, size) for dim in old for place, size in enumerate(value.grid[dim]) if size != 1]
        rows: list[tuple[int, ...]] = []
        redo = False
        for size in reversed(sizes):
            need = size
            row: list[int] = []
            while need > 1:
                dim, place, digit = flat.pop()
                if need % digit == 0:
                    row.append(digit)
                    need //= digit
                elif digit % need == 0:
                    value = divide(value, dim, place, need)
                    redo = True
                    break
                else:
                    return _fused_group(value, old, sizes)
            if redo:
                break
            rows.append(tuple(reversed(row)) or (1,))
        if not redo:
            rows.reverse()
            return value, rows
    raise Unsupported("a reshape of many small dims")


def _fused_group(
    value: NormalValue, old: tuple[int, ...], sizes: list[int]
) -> tuple[NormalValue, list[tuple[int, ...]]]:
    """The last resort: neighbouring dims become one dim of one digit, which is then divided anew."""
    total = 1
    for dim in old:
        total *= value.shape[dim]
    digits = tuple(size for dim in old for size in value.grid[dim])
    first = old[0]
    shape = (*value.shape[:first], total, *(1 for _ in old[1:]), *value.shape[old[-1] + 1 :])
    ones = tuple((1,) for _ in old[1:])
    grid = (*value.grid[:first], digits, *ones, *value.grid[old[-1] + 1 :])
    value = _with_grid(value, shape, grid)
    flat = regrid(value, (*value.grid[:first], (total,), *value.grid[first + 1 :]))
    return _dealt(flat, old, sizes)


__all__ = ["aligned", "concat", "expand", "flip", "permute", "reshape", "slice_dim"]
