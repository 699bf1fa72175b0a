"""Sums of slices as sums over an index: ``a[0] + a[1] + a[2]`` is the sum of ``a`` over a window.

Gradient accumulation, per-expert loops and selects write a reduction as separate terms.  Terms whose factors agree except for offsets that grow
by one step each become one term with a summed digit; a single slice that continues a window joins it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.products import Product, multiply
from graphguard.relations.sums.summands import mask_axes, stepped
from graphguard.relations.terms.kernels import Kernel, Number, Ref, Term, Terms, Universe, family, order, quotient
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import refine

_MEMBERS: Final = 64
_LONGEST: Final = 16  # a window that a single slice is looked for in


@dataclass(frozen=True, slots=True)
class _Shape:
    """A term as parts over digits: ``form`` is all of it but the offsets."""

    form: tuple[Any, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]
    bound: tuple[int, ...]
    parts: tuple[Part, ...]


@rule(
    "lifting",
    "sums",
    "`a[0] + a[1] + a[2]` = `sum over i in [0, 3) of a[i]`",
    "a loop over micro-batches = one batch",
    "sum",
)
def lifted(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """The same sum with fewer terms where slices add up to windows; every step leaves fewer, so that there is a last one."""
    if len(items) < 2:
        return items
    while True:
        items = _lowered(universe, items, extents)
        fresh = _lift_once(universe, items, extents)
        if fresh is None:
            return items
        assert len(fresh) < len(items)
        items = fresh


def _lowered(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """The same sum with fewer terms where the slices of a lifted one fill what windows leave open: the blocks on a diagonal, with those beside it, are the square."""
    products = [ref for _, ref in items if ref[0].kind == "product"]
    if len(products) < 3 or len({len(ref[3]) for ref in products}) < 2:
        return items
    left = {ref: coefficient for coefficient, ref in items}
    families: dict[Any, list[Ref]] = {}
    for ref in products:
        families.setdefault(family(ref[0]), []).append(ref)
    for members in families.values():
        for ref in sorted(members, key=lambda ref: order((1, ref))):
            shorter = [other for other in members if len(other[3]) == len(ref[3]) - 1 and other in left]
            if ref in left and len(shorter) > 1 and not _changes(ref[0]):
                _lower(universe, left, ref, shorter, extents)
    return [(coefficient, ref) for ref, coefficient in left.items() if coefficient != 0]


def _lower(
    universe: Universe, left: dict[Ref, Number], lifted: Ref, shorter: list[Ref], extents: tuple[int, ...]
) -> None:
    """Take slices of a term, as often as windows beside them are there, into these windows, where that leaves fewer."""
    for axis, (low, high) in enumerate(lifted[3]):
        if high - low > _LONGEST:
            continue
        factor, first = _narrowed(universe, lifted, axis, low, low + 1, extents)
        beside = {ref[3]: left[ref] for ref in shorter if ref[:3] == first[:3]}
        if len(beside) < 2:
            continue
        slices = [_narrowed(universe, lifted, axis, place, place + 1, extents) for place in range(low, high)]
        if any(more != factor or ref[:3] != first[:3] for more, ref in slices):
            continue
        for coefficient in sorted(set(beside.values())):
            filled = dict(beside)
            for _, ref in slices:
                filled[ref[3]] = filled.get(ref[3], 0) + coefficient
            windows = {window: number for window, number in stepped(filled).items() if number}
            rest = left[lifted] - quotient(coefficient, factor)
            if len(windows) + (rest != 0) < len(beside) + 1:
                for window in beside:
                    del left[(*first[:3], window)]
                left[lifted] = rest
                for window, number in windows.items():
                    more, ref = multiply(universe, [((*first[:3], window), 1)], extents)
                    left[ref] = left.get(ref, 0) + number * more
                return


@rule(
    "slices against windows",
    "sums",
    "`sum over [0, 3) of a - a[1]` = `a[0] + a[2]`, where two values are compared",
    "a loop over the others = the whole loop less its own pass",
    "sum",
)
def cancelled(universe: Universe, items: Terms, extents: tuple[int, ...]) -> Terms:
    """The same sum after a slice met its opposite in a window: windows that were put together in another order need not agree."""
    if universe.expand == 1 or len(items) < 2 or len(items) > _MEMBERS:
        return items
    left = {ref: coefficient for coefficient, ref in items}
    while True:
        found = _opposites(universe, left, extents)
        if found is None:
            return tuple((coefficient, ref) for ref, coefficient in left.items() if coefficient != 0)
        single, window, axis, place = found
        coefficient, (low, high) = left.pop(window), window[3][axis]
        del left[single]
        for start, stop in ((low, place), (place + 1, high)):
            if start < stop:
                factor, rest = _narrowed(universe, window, axis, start, stop, extents)
                left[rest] = left.get(rest, 0) + coefficient * factor
                if left[rest] == 0:
                    del left[rest]


def _opposites(
    universe: Universe, left: dict[Ref, Number], extents: tuple[int, ...]
) -> tuple[Ref, Ref, int, int] | None:
    """A slice and a window that holds minus the slice, with the window's axis and the place on it."""
    families: dict[Any, list[Ref]] = {}
    for ref in left:
        if ref[0].kind == "product":
            families.setdefault(family(ref[0]), []).append(ref)
    for members in families.values():
        members.sort(key=lambda ref: (len(ref[3]), order((1, ref))))
        for window in members:
            slices = {left[ref] for ref in members if len(ref[3]) < len(window[3])}
            if -left[window] not in slices and not _changes(window[0]):
                continue
            for axis, (low, high) in enumerate(window[3]):
                if high - low > _LONGEST:
                    continue
                for place in range(low, high):
                    factor, unit = _narrowed(universe, window, axis, place, place + 1, extents)
                    if unit != window and unit in left and left[unit] == -left[window] * factor:
                        return unit, window, axis, place
    return None


def _changes(kernel: Kernel) -> bool:
    """Whether a product may have other factors where it is narrowed: a position is a number at one place, and a mask is decided."""
    return any(part.placed or part.selects or part.kind == "iota" for part, *_ in kernel.factors)


def _narrowed(
    universe: Universe, ref: Ref, axis: int, low: int, high: int, extents: tuple[int, ...]
) -> tuple[Number, Ref]:
    """A term with one of its windows narrowed."""
    part = (*ref[:3], (*ref[3][:axis], (low, high), *ref[3][axis + 1 :]))
    key = ("narrowed", part, extents)
    known: Any = universe.memo.get(key)
    if known is None:
        known = universe.memo[key] = multiply(universe, [(part, 1)], extents)
    return known  # type: ignore[no-any-return]


def _lift_once(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term] | None:
    families: dict[Any, list[Term]] = {}
    for coefficient, ref in items:
        if ref[0].kind in ("one", "iota", "number", "infinity"):
            continue
        # masks stay apart: case distinction, range duties and products of masks look for single windows of one index
        if ref[0].kind != "product" or not mask_axes(ref[0]):
            families.setdefault((coefficient, family(ref[0])), []).append((coefficient, ref))
    for (coefficient, _), members in families.items():
        if not 2 <= len(members) <= _MEMBERS:
            continue
        shaped = [(_shape(universe, ref, extents), ref) for _, ref in members]
        found = _run(universe, shaped) or _continued(universe, shaped)
        if found is None:
            continue
        used, (factor, ref) = found
        kept = [(c, r) for c, r in items if r not in used]
        gathered = {r: c for c, r in kept}
        gathered[ref] = gathered.get(ref, 0) + coefficient * factor
        return [(c, r) for r, c in gathered.items() if c != 0]
    return None


def _shape(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> _Shape:
    key = ("shape", ref, extents)
    known: Any = universe.memo.get(key)
    if known is not None:
        return known  # type: ignore[no-any-return]
    sizes, dims, used = refine([ref], extents)
    outer = len(sizes)
    product = Product(universe, sizes, dims, set())
    if ref[0].kind == "product":
        product.include(ref[0].factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0], raw=True)
    else:
        product.parts.append(Part(ref[0], 1, ref[3], list(ref[1]), used[0]))
    product.parts.sort(key=_form)  # a kernel's factors are in the order of their offsets, which differ along a run
    rows = tuple((p.kernel.id, p.payload, p.window, tuple(sorted(p.expressions))) for p in product.parts)
    bound = tuple(range(outer, len(product.sizes)))
    shape = _Shape(
        (tuple(map(tuple, dims)), rows, tuple(product.sizes)),
        tuple(offset for part in product.parts for offset in part.offsets),
        tuple(product.sizes),
        tuple(map(tuple, dims)),
        bound,
        tuple(product.parts),
    )
    universe.memo[key] = shape  # type: ignore[assignment]
    return shape


def _form(part: Part) -> tuple[Any, ...]:
    return (part.kernel.id, part.payload, part.window, sorted(part.expressions))


def _run(universe: Universe, shaped: list[tuple[_Shape, Ref]]) -> tuple[set[Ref], tuple[Number, Ref]] | None:
    """The longest run of terms whose offsets grow by one step."""
    forms: dict[Any, list[tuple[_Shape, Ref]]] = {}
    for shape, ref in shaped:
        forms.setdefault(shape.form, []).append((shape, ref))
    for members in forms.values():
        if len(members) < 2:
            continue
        members.sort(key=lambda pair: pair[0].offsets)
        best: list[tuple[_Shape, Ref]] = []
        start = 0
        while start + 1 < len(members):
            step = _step(members[start][0], members[start + 1][0])
            stop = start + 1
            while stop + 1 < len(members) and _step(members[stop][0], members[stop + 1][0]) == step:
                stop += 1
            if stop - start + 1 > len(best) and _proper(members[start][0], step):
                best = members[start : stop + 1]
            start = stop
        if best:
            return {ref for _, ref in best}, _with_digit(universe, best[0][0], _step(best[0][0], best[1][0]), len(best))
    return None


def _step(a: _Shape, b: _Shape) -> tuple[int, ...]:
    return tuple(y - x for x, y in zip(a.offsets, b.offsets, strict=True))


def _proper(shape: _Shape, step: tuple[int, ...]) -> bool:
    """Whether the new digit's strides divide the axes they move along; others would make the result depend on the order of additions."""
    at = 0
    for part in shape.parts:
        for _axis, size in enumerate(part.kernel.shape):
            stride = step[at]
            at += 1
            if stride and (stride < 0 or size % stride):
                return False
    return True


def _with_digit(universe: Universe, shape: _Shape, step: tuple[int, ...], count: int) -> tuple[Number, Ref]:
    """The term with one more summed digit."""
    digit = len(shape.sizes)
    product = Product(universe, [*shape.sizes, count], [list(row) for row in shape.dims], {*shape.bound, digit})
    at = 0
    for part in shape.parts:
        own = part.copy()
        for axis in range(len(part.offsets)):
            if step[at]:
                own.expressions.append((axis, digit, step[at]))
            at += 1
        product.parts.append(own)
    return product.finish()


def _continued(universe: Universe, shaped: list[tuple[_Shape, Ref]]) -> tuple[set[Ref], tuple[Number, Ref]] | None:
    """A window and a single slice right before or after it."""
    for shape, ref in shaped:
        for digit in shape.bound:
            stride, form = _without(shape, digit)
            size = shape.sizes[digit]
            for other, single in shaped:
                if single is ref or len(other.bound) != len(shape.bound) - 1 or other.form != form:
                    continue
                distance = tuple(b - a for a, b in zip(shape.offsets, other.offsets, strict=True))
                for place in (-1, size):
                    if distance == tuple(place * s for s in stride):
                        return {ref, single}, _extended(universe, shape, digit, stride, place < 0)
    return None


def _without(shape: _Shape, digit: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    stride = []
    rows = []
    for part in shape.parts:
        steps = {axis: s for axis, d, s in part.expressions if d == digit}
        stride += [steps.get(axis, 0) for axis in range(len(part.offsets))]
        rows.append(
            (
                part.kernel.id,
                part.payload,
                part.window,
                tuple(sorted((a, _renamed(d, digit), s) for a, d, s in part.expressions if d != digit)),
            )
        )
    sizes = tuple(size for index, size in enumerate(shape.sizes) if index != digit)
    return tuple(stride), (shape.dims, tuple(rows), sizes)


def _renamed(digit: int, gone: int) -> int:
    return digit - 1 if digit > gone else digit


def _extended(
    universe: Universe, shape: _Shape, digit: int, stride: tuple[int, ...], before: bool
) -> tuple[Number, Ref]:
    sizes = list(shape.sizes)
    sizes[digit] += 1
    product = Product(universe, sizes, [list(row) for row in shape.dims], set(shape.bound))
    at = 0
    for part in shape.parts:
        own = part.copy()
        for axis in range(len(part.offsets)):
            if before:
                own.offsets[axis] -= stride[at]
            at += 1
        product.parts.append(own)
    return product.finish()
