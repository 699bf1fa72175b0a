"""Reductions and contractions of values: piece by piece, then the contributions to every box of the result gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.functions.maxima import larger, largest
from graphguard.relations.functions.piecewise import act_on, gathered, overlay
from graphguard.relations.sums.linear import summed_over, times
from graphguard.relations.terms.kernels import Digits, Terms, Universe
from graphguard.relations.terms.layout import permute
from graphguard.relations.terms.values import Grid, NormalValue, Piece, aligned, coarsened, single
from graphguard.relations.terms.windows import repeat

Letters = str


def total(universe: Universe, value: NormalValue, dims: Sequence[int]) -> NormalValue:
    """Summed over dims, which are dropped."""
    return _reduced(
        universe, [value], dims, value.kind, lambda rows, sizes, cells: summed_over(universe, rows[0], sizes, cells)
    )


def maximum_over(universe: Universe, value: NormalValue, dims: Sequence[int]) -> NormalValue:
    """The maximum over dims, which are dropped."""
    return _reduced(
        universe,
        [value],
        dims,
        value.kind,
        lambda rows, sizes, cells: largest(universe, rows[0], sizes, cells),
        lambda rows, sizes: larger(universe, rows, sizes),
    )


def _reduced(
    universe: Universe,
    values: Sequence[NormalValue],
    dims: Sequence[int],
    kind: Kind,
    act: Callable[[list[Terms], tuple[int, ...], tuple[int, ...]], Terms],
    combine: Callable[[list[Terms], tuple[int, ...]], Terms] | None = None,
) -> NormalValue:
    values = aligned(values)
    full = values[0].shape
    shape = tuple(size for dim, size in enumerate(full) if dim not in dims)
    if 0 in full:
        return single(shape, kind, ())
    grid: Grid = values[0].grid
    cells: list[int] = []
    at = 0
    for dim, digits in enumerate(grid):
        if dim in dims:
            cells += range(at, at + len(digits))
        at += len(digits)
    gone = set(cells)
    summed = tuple(cells)
    contributions: list[Piece] = []
    for box, rows in overlay([value.pieces for value in values]):
        for inner, terms in act_on(box, rows, lambda r, s: act(r, s, summed)):
            contributions.append((tuple(pair for cell, pair in enumerate(inner) if cell not in gone), terms))
    kept = tuple(digits for dim, digits in enumerate(grid) if dim not in dims)
    return coarsened(NormalValue(shape, kind, gathered(universe, contributions, combine), kept))


def product(universe: Universe, operands: Sequence[tuple[NormalValue, Letters]], out: Letters) -> NormalValue:
    """An Einstein summation, two operands at a time."""
    sizes = {letter: size for value, letters in operands for letter, size in zip(letters, value.shape, strict=True)}
    if any(len(set(letters)) != len(letters) for _, letters in operands):
        raise Unsupported("a contraction of an operand with itself")
    value, letters = operands[0]
    if len(operands) == 1:
        gone = [dim for dim, letter in enumerate(letters) if letter not in out]
        if gone:
            value = total(universe, value, gone)
            letters = "".join(letter for letter in letters if letter in out)
        return permute(value, [letters.index(letter) for letter in out])
    for index, (other, names) in enumerate(operands[1:], 1):
        wanted = out + "".join([later for _, later in operands[index + 1 :]])
        mine = letters + names
        kept = [letter for letter in dict.fromkeys(out + mine) if letter in mine and letter in wanted]
        summed = [letter for letter in dict.fromkeys(mine) if letter not in wanted]
        value = _pair(universe, (value, letters), (other, names), (*kept, *summed), len(kept), sizes)
        letters = "".join(kept)
    return permute(value, [letters.index(letter) for letter in out])


def _pair(
    universe: Universe,
    first: tuple[NormalValue, Letters],
    second: tuple[NormalValue, Letters],
    joint: tuple[str, ...],
    kept: int,
    sizes: dict[str, int],
) -> NormalValue:
    shape = tuple(sizes[letter] for letter in joint)
    rows = [_spread(value, letters, joint, shape) for value, letters in (first, second)]
    kind: Kind = "float" if "float" in (first[0].kind, second[0].kind) else "int"
    dims = range(kept, len(joint))
    return _reduced(
        universe, rows, dims, kind, lambda terms, extents, cells: times(universe, terms[0], terms[1], extents, cells)
    )


def _spread(value: NormalValue, letters: Letters, joint: tuple[str, ...], shape: tuple[int, ...]) -> NormalValue:
    """The operand over all letters, in their order: repeated along those that are not its own."""
    if 0 in shape:
        return single(shape, value.kind, ())
    starts = [0, *accumulate(map(len, value.grid))]
    grid: list[tuple[int, ...]] = []
    cells: list[tuple[int, Digits, tuple[int, int]]] = []  # its own cell, or -1 and what stands for it
    for letter, size in zip(joint, shape, strict=True):
        dim = letters.find(letter)
        if dim < 0:
            grid.append((size,))
            cells.append((-1, repeat(size), (0, size)))
        else:
            grid.append(value.grid[dim])
            cells += [(cell, (), (0, 0)) for cell in range(starts[dim], starts[dim + 1])]
    pieces: list[Piece] = []
    for box, terms in value.pieces:
        rows = tuple(
            [
                (c, (k, off, tuple([dims[cell] if cell >= 0 else fresh for cell, fresh, _ in cells]), w))
                for c, (k, off, dims, w) in terms
            ]
        )
        pieces.append((tuple([box[cell] if cell >= 0 else span for cell, _, span in cells]), rows))
    return NormalValue(shape, value.kind, pieces, tuple(grid))
