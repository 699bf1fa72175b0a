"""Functions known by their name only that see whole dims: batched over some letters, closed over the others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Final

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.functions.piecewise import act_on, overlay
from graphguard.relations.sums.linear import close
from graphguard.relations.sums.monotone import like_ordered
from graphguard.relations.terms.building import build
from graphguard.relations.terms.joined import JOINED, whole
from graphguard.relations.terms.kernels import Number, Ref, Terms, Universe
from graphguard.relations.terms.layout import expand, permute, reshape
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.permutations import permuted
from graphguard.relations.terms.values import Box, NormalValue, Piece, aligned, regrid, single
from graphguard.relations.terms.windows import refine

#: Functions whose result is a place on the line that they see whole, the core dim A.
_PLACES: Final = frozenset(
    (
        "topk.indices",
        "argmax",
        "argmin",
        "argsort",
        "kthvalue.indices",
        "median.indices",
        "cummax.indices",
        "cummin.indices",
    )
)
#: Those of them that only the order of the line decides.
_ORDERED: Final = _PLACES - {"argmax", "argmin"}
#: Functions whose result is made of elements of that line.
_CHOSEN: Final = frozenset(("topk", "sort", "kthvalue", "median", "cummax", "cummin"))


def opaque(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    operands: Sequence[tuple[NormalValue, str]],
    out: str,
    out_shape: tuple[int, ...],
    kind: Kind,
) -> NormalValue:
    """The closed kernel of the operands over batch letters (lower case) and core letters (upper case, and lower-case ones that ``out`` lacks)."""
    sizes = {letter: size for value, letters in operands for letter, size in zip(letters, value.shape, strict=True)}
    sizes |= dict(zip(out, out_shape, strict=True))
    used = [letter for _, letters in operands for letter in letters]
    if 0 in sizes.values():
        raise Unsupported(f"{name} of an empty tensor")
    joint = list(dict.fromkeys((*out, *used)))
    core = [letter for letter in joint if letter.isupper() or letter not in out or letter not in used]
    shape = tuple(sizes[letter] for letter in joint)
    values = []
    for value, letters in operands:
        if len(set(letters)) != len(letters):
            raise Unsupported(f"{name} over a diagonal")
        seen = [dim for dim, letter in enumerate(letters) if letter in core]
        value = whole(value, seen, partial(_join, universe, value.kind)) if len(value.pieces) > 1 else value
        moved = permute(value, [letters.index(letter) for letter in joint if letter in letters])
        moved = reshape(
            moved, tuple(size if letter in letters else 1 for letter, size in zip(joint, shape, strict=True))
        )
        values.append(expand(moved, shape))
    grid_flat = [letter in core for letter in joint]
    values = aligned(values) if values else [single(shape, kind, ())]
    grid = tuple(
        (size,) if flat else digits for flat, digits, size in zip(grid_flat, values[0].grid, shape, strict=True)
    )
    values = [regrid(value, grid) for value in values]
    return _closed(universe, (name, attributes, kind), values, joint, core, out, sizes)


def _join(
    universe: Universe,
    kind: Kind,
    spans: tuple[Box, ...],
    parts: Sequence[tuple[NormalValue, str]],
    out: str,
    shape: tuple[int, ...],
) -> NormalValue:
    return opaque(universe, JOINED, spans, parts, out, shape, kind)


def _closed(
    universe: Universe,
    what: tuple[str, tuple[Hashable, ...], Kind],
    values: list[NormalValue],
    joint: list[str],
    core: list[str],
    out: str,
    sizes: dict[str, int],
) -> NormalValue:
    name, attributes, kind = what
    letters = [letter for letter, digits in zip(joint, values[0].grid, strict=True) for _ in digits]
    gone = {cell for cell, letter in enumerate(letters) if letter not in out}
    cores = tuple((letter, sizes[letter]) for letter in core)
    layout = (name, attributes, "".join(joint), out, cores)

    def act(rows: list[Terms], extents: tuple[int, ...]) -> Terms:
        for cell, letter in enumerate(letters):
            if letter in core and extents[cell] != sizes[letter]:
                raise Unsupported(f"{name} sees a whole dim that is put together from different parts")
        if name in _ORDERED and len(rows) == 1:
            rows = [like_ordered(universe, rows[0], extents, letters.index("A"))]
        closed = [close(universe, terms, extents) for terms in rows]
        digit_sizes, dims, used = refine([ref for _, ref in closed], extents)
        marks: dict[int, Hashable] = {}
        for cell, letter in enumerate(letters):
            if letter in core:
                marks |= {digit: (letter, place, digit_sizes[digit]) for place, digit in enumerate(dims[cell])}
        parts = [
            Part(ref[0], (position, coefficient), ref[3], list(ref[1]), steps)
            for position, ((coefficient, ref), steps) in enumerate(zip(closed, used, strict=True))
        ]
        summed = {digit for cell in gone for digit in dims[cell]}
        kept = [digits for cell, digits in enumerate(dims) if cell not in gone]
        ref = build(universe, "opaque", layout, parts, digit_sizes, kept, summed, marks)
        ref[0].name = name
        ref[0].type = kind
        ref[0].truth = kind == "bool"
        if kind != "float":
            ref[0].infinite = False  # a place among numbers that may be infinite is a whole number
        if kind == "int" and ref[0].range is None:
            ref[0].range = _range(name, sizes, closed)
        if permuted(ref[0]) is not None:
            universe.orders[ref[0]] = None
        return ((1, ref),)

    pieces: list[Piece] = []
    for box, rows in overlay([value.pieces for value in values]):
        for inner, terms in act_on(box, rows, act):
            pieces.append((tuple(span for cell, span in enumerate(inner) if cell not in gone), terms))
    kept_grid = tuple(digits for letter, digits in zip(joint, values[0].grid, strict=True) if letter in out)
    shape = tuple(sizes[letter] for letter in joint if letter in out)
    value = NormalValue(shape, kind, pieces, kept_grid)
    order = [letter for letter in joint if letter in out]
    return permute(value, [order.index(letter) for letter in out])


def _range(name: str, sizes: dict[str, int], operands: list[tuple[Number, Ref]]) -> tuple[int, int] | None:
    """What is known of integers that a function of a line gives."""
    if name in _PLACES and "A" in sizes:
        return 0, sizes["A"]
    if name == JOINED and all(coefficient == 1 and ref[0].range is not None for coefficient, ref in operands):
        ranges = [ref[0].range or (0, 0) for _, ref in operands]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    if name in _CHOSEN and operands[0][0] == 1:
        return operands[0][1][0].range
    return None
