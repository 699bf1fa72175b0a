"""Partial sums: terms that differ in the window of one reduction, joined into as few windows as possible.

The sum over ranks of what each of them added up is the whole sum; a mask on an index is a window of its one-hot, and one column alone has lost its axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice, pairwise, product
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.products import has_divisor, multiply
from graphguard.relations.sums.summands import mask_axes, stepped
from graphguard.relations.terms.kernels import (
    Digits,
    Kernel,
    Number,
    Ref,
    Term,
    Universe,
    Window,
    family,
    quotient,
)

_CELLS: Final = 256  # boxes between windows that are looked at


@rule(
    "partial sums",
    "sums",
    "`sum over [a, b) of f + sum over [b, c) of f` = `sum over [a, c) of f`",
    "`x[:, :4] @ w[:4] + x[:, 4:] @ w[4:]` = `x @ w`",
    "sum",
)
def join_windows(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """Terms that differ in a window of one sum, as few windows as possible; a mask and its complement are windows too."""
    if "product" not in [ref[0].kind for _, ref in items if ref[3]]:
        return items
    found: dict[Ref, Number] = {ref: coefficient for coefficient, ref in items}
    masked = _take_wholes(universe, found, extents)
    if masked and len(found) > 1:
        _take_neighbours(universe, found, extents)
    groups: dict[tuple[Any, ...], dict[Window, Number]] = {}
    for ref, coefficient in found.items():
        if ref[3] and ref[0].kind == "product":
            groups.setdefault((ref[0], ref[1], ref[2]), {})[ref[3]] = coefficient
    joined_terms: list[tuple[Ref, Number]] = []
    for (kernel, offsets, dims), windows in groups.items():
        if len(windows) > 1:
            _fill_holes(universe, found, groups, (kernel, offsets, dims), extents)
            for window in windows:
                del found[kernel, offsets, dims, window]
            for window, coefficient in stepped(windows).items():
                factor: Number = 1
                ref = (kernel, offsets, dims, window)
                narrow = any(high - low == 1 for low, high in window)
                if (
                    len(window) > 1 or narrow or has_divisor(kernel)
                ) and window not in windows:  # joined windows may let digits merge or vanish, and sums cancel
                    factor, ref = multiply(universe, [(ref, 1)], extents)
                joined_terms.append((ref, coefficient * factor))
    for ref, coefficient in joined_terms:
        found[ref] = found.get(ref, 0) + coefficient
    for ref in list(found) if masked else ():
        for axis, bounds in mask_axes(ref[0]):
            if ref in found and ref[3][axis] == bounds:
                factor, plain = _whole_mask(universe, ref, axis, bounds, extents)
                found[plain] = found.pop(ref) * factor + found.get(plain, 0) if plain != ref else found[ref]
    return [(coefficient, ref) for ref, coefficient in found.items() if coefficient != 0]


def _fill_holes(
    universe: Universe,
    found: dict[Ref, Number],
    groups: dict[tuple[Any, ...], dict[Window, Number]],
    place: tuple[Kernel, tuple[int, ...], tuple[Digits, ...]],
    extents: tuple[int, ...],
) -> None:
    """See terms as the windows between others, over several axes, where that leaves fewer: one on the diagonal of two axes has lost both."""
    windows = groups[place]
    axes = [axis for axis in range(len(next(iter(windows)))) if len({window[axis] for window in windows}) > 1]
    if len(axes) < 2:
        return
    cuts = [sorted({at for window in windows for at in window[axis]}) for axis in range(len(next(iter(windows))))]
    cells = list(islice(product(*(list(pairwise(places)) for places in cuts)), _CELLS + 1))
    if len(cells) > _CELLS:
        return
    holes: dict[Window, tuple[Ref, Number]] = {}
    taken: set[Ref] = set()  # one term is what stands in one hole
    for cell in cells:
        if not any(all(a <= low and high <= b for (low, high), (a, b) in zip(cell, w, strict=True)) for w in windows):
            factor, plain = _whole_mask(universe, (*place, cell), 0, cell[0], extents)
            if factor and plain in found and plain not in taken and len(groups.get(plain[:3], ())) < 2:
                taken.add(plain)
                holes[cell] = (plain, quotient(found[plain], factor))
    filled = {**windows, **{cell: coefficient for cell, (_, coefficient) in holes.items()}}
    if holes and len(stepped(filled)) < len(stepped(windows)) + len(holes):
        for cell, (plain, coefficient) in holes.items():
            del found[plain]
            windows[cell] = found[(*place, cell)] = coefficient


def _take_wholes(universe: Universe, found: dict[Ref, Number], extents: tuple[int, ...]) -> bool:
    """See a term as the whole window of a mask where another term has a part of it; whether there are masks at all."""
    masked = False
    families: set[Hashable] = set()
    for ref in [ref for ref in found if ref[3] and ref[0].kind == "product"]:
        for axis, bounds in mask_axes(ref[0]):
            masked = True
            families = families or {family(other[0]) for other in found}
            rest = _unmasked_family(universe, ref[0], axis)
            if rest is not None and rest not in families:
                continue  # no other term can be this one without its mask
            factor, plain = _whole_mask(universe, ref, axis, bounds, extents)
            if factor and plain != ref and plain in found:
                whole = (*ref[:3], (*ref[3][:axis], bounds, *ref[3][axis + 1 :]))
                found[whole] = found.get(whole, 0) + quotient(found.pop(plain), factor)
    return masked


def _unmasked_family(universe: Universe, kernel: Kernel, axis: int) -> Hashable | None:
    """The family of a product without the one-hot that selects by a reduced axis; None where taking it away may change the other factors."""
    key = ("unmasked", kernel.id, axis)
    if key not in universe.memo:
        label = len(kernel.shape) + axis
        rest = [factor for factor in kernel.factors if all(other != label for _, other, _ in factor[4])]
        plain = not any(factor[0].selects or factor[0].placed for factor in rest)
        family = tuple(sorted((factor[0].id, factor[1]) for factor in rest)) or ((universe.one.id, 1),)
        universe.memo[key] = family if plain else None  # type: ignore[assignment]
    return universe.memo[key]


def _take_neighbours(universe: Universe, found: dict[Ref, Number], extents: tuple[int, ...]) -> None:
    """See a term as the column right before or after a mask's window where that is what it is: one column alone has lost its axis."""
    columns = {(family(ref[0]), *column) for ref in found for column in _columns(ref)}
    for ref in [ref for ref in found if ref[3] and ref[0].kind == "product"] if columns else ():
        if ref not in found:
            continue
        for axis, _ in mask_axes(ref[0]):
            hot, origin = _hot_of(ref[0], axis)
            for low in (ref[3][axis][0] - 1, ref[3][axis][1]):
                if (family(ref[0]), hot, origin + low) not in columns:
                    continue  # no other term can be this one at that column
                factor, plain = _whole_mask(universe, ref, axis, (low, low + 1), extents)
                if factor and plain[0] is not ref[0] and found.get(plain) == found[ref] * factor:
                    unit = (*ref[:3], (*ref[3][:axis], (low, low + 1), *ref[3][axis + 1 :]))
                    del found[plain]
                    found[unit] = found.get(unit, 0) + found[ref]


def _columns(ref: Ref) -> Iterator[tuple[Kernel, int]]:
    """The one-hots among the factors of a term that are read at one column, each with that column."""
    kernel, offsets, dims, _ = ref
    moving = {axis for digits in dims for axis, _, _ in digits}
    if kernel.kind == "onehot" and len(offsets) - 1 not in moving:
        yield kernel, offsets[-1]
    for part, _, _, base, steps in kernel.factors if kernel.kind == "product" else ():
        if part.kind == "onehot":
            along = [(label, stride) for axis, label, stride in steps if axis == len(base) - 1]
            if all(label < len(offsets) and label not in moving for label, _ in along):
                yield part, base[-1] + sum(stride * offsets[label] for label, stride in along)


def _hot_of(kernel: Kernel, axis: int) -> tuple[Kernel, int]:
    """The one-hot that a reduced axis selects by, and its column where the axis is at 0."""
    label = len(kernel.shape) + axis
    part, _, _, base, _ = next(f for f in kernel.factors if any(other == label for _, other, _ in f[4]))
    return part, base[-1]


def _whole_mask(
    universe: Universe, ref: Ref, axis: int, bounds: tuple[int, int], extents: tuple[int, ...]
) -> tuple[Number, Ref]:
    whole = (*ref[:3], (*ref[3][:axis], bounds, *ref[3][axis + 1 :]))
    key = ("whole", whole, extents)
    known = universe.memo.get(key)
    if known is None:
        known = universe.memo[key] = multiply(universe, [(whole, 1)], extents)
    return known  # type: ignore[return-value]
