"""Known tensors as values: index arithmetic where the elements show it, pieces where they are few, a table where they are many."""

from __future__ import annotations

import hashlib
from math import prod
from typing import Final

import numpy as np

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.functions.functions import elementwise, truth
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import constant, exact, fold, normalise, times
from graphguard.relations.terms.denotation import Denotation, exactly_known
from graphguard.relations.terms.infinity import minus_infinity
from graphguard.relations.terms.kernels import Digits, Ref, Terms, Universe
from graphguard.relations.terms.values import Box, NormalValue, Piece, box_of, extents_of, merged, single
from graphguard.relations.terms.windows import joined, whole

_EXACT: Final = 1 << 53  # integers up to here are floats
_RUNS: Final = 128  # constant runs that are written out as pieces
_SMALL: Final = 1024  # elements of a worked-out value that is written down ...
_WRITTEN: Final = (
    16  # ... in at most so many pieces, or in as many as a literal if it has no more than two numbers, as masks have
)


def kind_of(elements: np.ndarray) -> Kind:
    """The kind of an array."""
    if elements.dtype.kind == "b":
        return "bool"
    return "int" if elements.dtype.kind in "iu" else "float"


@rule(
    "known values",
    "counts and numbers",
    "a float32 literal is the short decimal, fraction or root that was rounded to it; positions, diagonals and triangles are seen in tables",
    "`x * torch.tensor(0.1)` = `x * 0.1`",
    "value",
)
def literal(universe: Universe, elements: np.ndarray) -> NormalValue:
    """The value of a known tensor."""
    shape = elements.shape
    kind = kind_of(elements)
    if elements.size == 0:
        return single(shape, kind, ())
    if kind == "int" and max(abs(int(elements.min())), abs(int(elements.max()))) > _EXACT:
        return _large(universe, elements)
    data = elements.astype(np.float64)
    if not np.isnan(data).any() and not np.isposinf(data).any():
        for read in (_uniform, _affine, _triangle) if kind != "bool" else (_uniform, _triangle):
            terms = read(universe, data)
            if terms is not None:
                return single(shape, kind, terms)
        held = _seen(universe, elements)
        if held is not None:
            return single(shape, kind, ((1, held),))
        pieces = _counting(universe, data) if kind == "int" else None
        pieces = pieces or _pieces(universe, data)
        if pieces is not None:
            return NormalValue(shape, kind, pieces)
    once, kept = _once(elements)
    return single(shape, kind, ((1, _repeated(_table(universe, once, kind), kept, shape)),))


def _large(universe: Universe, elements: np.ndarray) -> NormalValue:
    """Integers that no float holds exactly: one number everywhere, or a table."""
    first = int(elements.flat[0])
    if (elements == elements.flat[0]).all():
        return single(elements.shape, "int", constant(universe, first, elements.shape))
    return single(elements.shape, "int", ((1, _table(universe, elements, "int")),))


def written_down(universe: Universe, value: NormalValue) -> NormalValue:
    """A small value without unknowns as the literal of its elements: counts and positions that two programs work out differently are one."""
    if prod(value.shape) > _SMALL or len(value.pieces) > _SMALL:
        return value
    if all(ref[0].kind in ("one", "iota") for _, terms in value.pieces for _, ref in terms):
        return value
    if not exactly_known(value):
        return value
    try:
        data = Denotation({}).value(value)
    except Unsupported:
        return value
    if not np.isfinite(data).all() or np.abs(data).max() > 1 << 40:
        return value
    for read in (_uniform, _affine) if value.kind != "bool" else (_uniform,):
        terms = read(universe, data)
        if terms is not None:
            return single(value.shape, value.kind, terms)
    if _triangle(universe, data) is not None:
        return value
    diagonal = _diagonal(universe, data)
    if diagonal is not None:
        return single(value.shape, value.kind, diagonal)
    pieces = _pieces(universe, data, _WRITTEN if len(np.unique(data)) > 2 else _RUNS)
    return value if pieces is None else NormalValue(value.shape, value.kind, pieces)


def _number(universe: Universe, value: float, extents: tuple[int, ...]) -> Terms:
    if value == -np.inf:
        return minus_infinity(universe, extents)
    return constant(universe, exact(float(value)), extents)


def _uniform(universe: Universe, data: np.ndarray) -> Terms | None:
    first = data.flat[0]
    return _number(universe, first, data.shape) if (data == first).all() else None


def _affine(universe: Universe, data: np.ndarray) -> Terms | None:
    """Integers that grow by a constant step along every dim."""
    if not np.isfinite(data).all() or data.flat[0] != int(data.flat[0]):
        return None
    start = int(data.flat[0])
    model = np.full(data.shape, float(start))
    dims: list[Digits] = []
    for dim, size in enumerate(data.shape):
        if size == 1:
            dims.append(())
            continue
        at = [0] * data.ndim
        at[dim] = 1
        step = data[tuple(at)] - start
        if step != int(step):
            return None
        model += (np.arange(size) * step).reshape([-1 if d == dim else 1 for d in range(data.ndim)])
        dims.append(((0, int(step), size),) if step else ((-1, 0, size),))
    if not (model == data).all():
        return None
    return fold(universe, [(1, (universe.iota, (start,), tuple(dims), ()))], data.shape)


def _triangle(universe: Universe, data: np.ndarray) -> Terms | None:
    """Two numbers on either side of a diagonal of the last two dims: a causal mask."""
    if data.ndim < 2 or min(data.shape[-2:]) < 2:
        return None
    rows, columns = data.shape[-2:]
    matrix = data.reshape(-1, rows, columns)
    if not (matrix == matrix[:1]).all():
        return None
    low, high = matrix[0, -1, 0], matrix[0, 0, -1]
    if low == high:
        return None
    changes = np.count_nonzero(matrix[0] == low, axis=1) - np.arange(rows)
    inside = changes[(changes + np.arange(rows) > 0) & (changes + np.arange(rows) < columns)]
    if inside.size == 0 or not (inside == inside[0]).all():
        return None
    shift = int(inside[0])
    holds = np.tri(rows, columns, shift - 1, dtype=bool)
    if not (np.where(holds, low, high) == matrix[0]).all():
        return None
    # column < row + shift
    dims = (*(((-1, 0, s),) if s != 1 else () for s in data.shape[:-2]), ((0, 1, rows),), ((0, -1, columns),))
    index: Ref = (universe.iota, (shift,), dims, ())
    mask: Terms = ((1, truth(elementwise(universe, "gt0", (), 1, index))),)
    return _either(universe, mask, float(low), float(high), data.shape)


def _diagonal(universe: Universe, data: np.ndarray) -> Terms | None:
    """One number on a diagonal of a matrix and another beside it: what a function of a whole matrix is added to stays in one piece."""
    if data.ndim != 2 or min(data.shape) < 2:
        return None
    rows, columns = np.indices(data.shape)
    beside = data[0, -1] if data[0, -1] == data[-1, 0] else data[0, 0]
    places = np.argwhere(data != beside)
    shift = int(places[0][1] - places[0][0]) if len(places) else 0
    on = columns == rows + shift
    if not len(places) or np.count_nonzero(on) < 2 or not (data == np.where(on, data[tuple(places[0])], beside)).all():
        return None
    dims = (((0, 1, data.shape[0]),), ((0, -1, data.shape[1]),))
    mask: Terms = ((1, truth(elementwise(universe, "eq0", (), 1, (universe.iota, (shift,), dims, ())))),)
    return _either(universe, mask, float(data[tuple(places[0])]), float(beside), data.shape)


def _either(universe: Universe, mask: Terms, yes: float, no: float, extents: tuple[int, ...]) -> Terms:
    other = normalise(universe, [*constant(universe, 1, extents), *((-c, ref) for c, ref in mask)], extents)
    rows = [
        *times(universe, mask, _number(universe, yes, extents), extents),
        *times(universe, other, _number(universe, no, extents), extents),
    ]
    return normalise(universe, rows, extents)


def _pieces(universe: Universe, data: np.ndarray, limit: int = _RUNS) -> list[Piece] | None:
    """Boxes of equal elements; None where there are more than ``limit``."""
    boxes: list[tuple[Box, float]] = []

    def walk(at: tuple[int, ...], part: np.ndarray) -> bool:
        if (part == part.flat[0]).all():
            boxes.append(((*((i, i + 1) for i in at), *box_of(part.shape)), float(part.flat[0])))
            return len(boxes) <= limit
        return all(walk((*at, index), part[index]) for index in range(part.shape[0]))

    if data.ndim == 0 or data.shape[0] > 4 * limit or not walk((), data):
        return None
    return merged([(box, _number(universe, value, extents_of(box))) for box, value in boxes])


def _counting(universe: Universe, data: np.ndarray) -> list[Piece] | None:
    """A line of whole numbers as runs that count upwards, such as the positions of chunks; None where they are short or many."""
    if data.ndim != 1:
        return None
    ends = [*(np.flatnonzero(np.diff(data) != 1) + 1), data.size]
    if 2 * len(ends) > data.size or len(ends) > _WRITTEN:
        return None
    pieces: list[Piece] = []
    for start, end in zip([0, *ends], ends, strict=False):
        terms = _affine(universe, data[start:end])
        assert terms is not None
        pieces.append((((int(start), int(end)),), terms))
    return pieces


def _held(universe: Universe, data: np.ndarray) -> Ref | None:
    """A window onto a table that was seen before and holds these elements: a rank's part of a table of the specification."""
    for table, held in universe.tables:
        found = _window(table.shape, held, data)
        if found is not None:
            dims = tuple(joined([(axis, 1, size)]) for axis, size in enumerate(data.shape))
            return (table, found, dims, ())
    return None


def _once(elements: np.ndarray) -> tuple[np.ndarray, tuple[bool, ...]]:
    """The elements without the dims that repeat them, and which dims are left: how a table is broadcast is no part of what it holds."""
    kept = []
    for dim in range(elements.ndim):
        first = elements[(slice(None),) * dim + (slice(0, 1),)]
        kept.append(not (elements == first).all())
    return np.ascontiguousarray(elements[tuple([slice(None) if keeps else 0 for keeps in kept])]), tuple(kept)


def _repeated(table: Ref, kept: tuple[bool, ...], shape: tuple[int, ...]) -> Ref:
    """A window onto a table that is repeated along the dims that it does not have."""
    kernel, offsets, dims, ranges = table
    left = iter(dims)
    spread = [
        next(left) if keeps else ((-1, 0, size),) if size != 1 else () for keeps, size in zip(kept, shape, strict=True)
    ]
    return (kernel, offsets, tuple(spread), ranges)


def _seen(universe: Universe, elements: np.ndarray) -> Ref | None:
    """A window onto a table that was seen before and holds these elements, as they are or once where a dim repeats them."""
    held = _held(universe, np.ascontiguousarray(elements))
    if held is not None or not universe.tables:
        return held
    once, kept = _once(elements)
    held = None if all(kept) else _held(universe, once)
    return None if held is None else _repeated(held, kept, elements.shape)


def _table(universe: Universe, elements: np.ndarray, kind: Kind) -> Ref:
    """A table of its own."""
    data = np.ascontiguousarray(elements)
    name = f"literal:{hashlib.blake2b(data.tobytes(), digest_size=12).hexdigest()}:{data.dtype.str}"
    kernel = universe.leaf(name, data.shape, kind)
    kernel.kind = "literal"
    universe.tables.append((kernel, data))
    return whole(kernel)


def _window(shape: tuple[int, ...], held: np.ndarray, data: np.ndarray) -> tuple[int, ...] | None:
    """Where a table holds the elements as a block that is shorter in at most one dim."""
    if held.ndim != data.ndim or held.dtype != data.dtype:
        return None
    shorter = [dim for dim in range(data.ndim) if shape[dim] != data.shape[dim]]
    if len(shorter) > 1 or any(shape[dim] < data.shape[dim] for dim in shorter):
        return None
    if not shorter:
        return (0,) * data.ndim if np.array_equal(held, data) else None
    dim = shorter[0]
    first = np.take(data, 0, axis=dim)
    for at in range(shape[dim] - data.shape[dim] + 1):
        if np.array_equal(np.take(held, at, axis=dim), first) and np.array_equal(
            np.take(held, range(at, at + data.shape[dim]), axis=dim), data
        ):
            return tuple(at if d == dim else 0 for d in range(data.ndim))
    return None
