"""Masks on positions, ``[a*i + b*j + c > 0]``: causal masks and windows of them.

Such a mask is an affine index under ``gt0``.  Three facts bring sums under it to one form: a term and minus the same term masked is the term under
the opposite mask; where the mask is 1 on all of a sum's window the sum may carry it; where it is 0 beyond the window the window may be extended.
"""

from __future__ import annotations

from typing import Any

from graphguard.relations.building import Part, reach
from graphguard.relations.kernels import Factor, Kernel, Number, Ref, Term, Universe, Window
from graphguard.relations.lifting import family
from graphguard.relations.products import Product
from graphguard.relations.windows import refine


def is_step(kernel: Kernel) -> bool:
    """Whether a kernel is a mask on positions."""
    return kernel.kind == "function" and kernel.name == "gt0" and kernel.factors[0][0].kind == "iota"


def steps_in(kernel: Kernel) -> int:
    """How many masks on positions a term has as factors."""
    if is_step(kernel):
        return 1
    return sum(1 for factor in kernel.factors if is_step(factor[0])) if kernel.kind == "product" else 0


def bounds(part: Part, sizes: list[int], without: int = -1) -> tuple[int, int]:
    """Smallest and largest index under a mask, one digit left out."""
    moves = [stride * (sizes[digit] - 1) for _, digit, stride in part.expressions if digit != without]
    return part.offsets[0] + sum(m for m in moves if m < 0), part.offsets[0] + sum(m for m in moves if m > 0)


def settle_steps(product: Product) -> bool:
    """Drop masks that are 1 throughout; False where one is 0 throughout."""
    for part in list(product.parts):
        if is_step(part.kernel) and part.payload == 1:
            low, high = bounds(part, product.sizes)
            if high <= 0:
                return False
            if low > 0:
                product.parts.remove(part)
    return True


def extend_windows(product: Product) -> None:
    """Extend summed digits to where a mask is 0 anyway, as far as the other factors exist: the window no longer depends on the shard."""
    masks = [part for part in product.parts if is_step(part.kernel) and part.payload == 1]
    for mask in masks:
        strides: dict[int, int] = {}
        for _, digit, stride in mask.expressions:
            strides[digit] = strides.get(digit, 0) + stride
        for digit, stride in strides.items():
            if (
                digit in product.reduced
                and stride
                and all(p.payload > 0 or _untouched(p, digit) or is_positive(p.kernel, p.window) for p in product.parts)
            ):
                _extend(product, mask, digit, stride)


def is_positive(kernel: Kernel, window: Window) -> bool:
    """Whether a kernel is seen to be more than zero at all its places: an exponential, or a sum of some that a mask never hides all of."""
    if kernel.kind == "function":
        return kernel.name == "exp"
    if kernel.kind != "product":
        return False
    masks = [factor for factor in kernel.factors if is_step(factor[0]) and factor[1] == 1]
    others = [factor for factor in kernel.factors if factor not in masks]
    return (
        len(masks) <= 1
        and all(is_positive(f[0], f[2]) for f in others)
        and all(_shows(kernel, window, m) for m in masks)
    )


def _shows(kernel: Kernel, window: Window, mask: Factor) -> bool:
    """Whether wherever one looks, some place of the sum is under a mask that is 1 there."""
    free = len(kernel.shape)
    index = mask[3][0]
    for _, label, stride in mask[4]:
        if label < free:
            index += min(0, stride * (kernel.shape[label] - 1))
        else:
            low, high = window[label - free]
            index += max(stride * low, stride * (high - 1))
    return index > 0


def _untouched(part: Part, digit: int) -> bool:
    return all(other != digit for _, other, _ in part.expressions)


def _extend(product: Product, mask: Part, digit: int, stride: int) -> None:
    room = reach(list(product.parts), product.sizes, digit)
    if room is None:
        return
    below, above = room
    size = product.sizes[digit]
    _, high = bounds(mask, product.sizes, digit)
    if stride < 0 and above and high + stride * size <= 0:
        product.sizes[digit] = size + above
    elif stride > 0 and below and high - stride <= 0:
        product.sizes[digit] = size + below
        for part in product.parts:
            for axis, other, step in part.expressions:
                if other == digit:
                    part.offsets[axis] -= step * below


def _opened(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Product:
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    if ref[0].kind == "product":
        product.include(ref[0].factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0], raw=True)
    else:
        product.parts.append(Part(ref[0], 1, ref[3], list(ref[1]), used[0]))
    return product


def opposite(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> tuple[tuple[Number, Ref], tuple[Number, Ref]]:
    """For a term with one mask on positions: the term without it, and the term under the opposite mask."""
    key = ("opposite", ref, extents)
    known: Any = universe.memo.get(key)
    if known is None:
        plain = _opened(universe, ref, extents)
        plain.parts = [part for part in plain.parts if not is_step(part.kernel)]
        turned = _opened(universe, ref, extents)
        for part in turned.parts:
            if is_step(part.kernel):
                part.offsets[0] = 1 - part.offsets[0]
                part.expressions = [(axis, digit, -stride) for axis, digit, stride in part.expressions]
        known = universe.memo[key] = (plain.finish(), turned.finish())
    return known  # type: ignore[no-any-return]


def join_steps(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """Terms under masks on positions, joined with what they complete."""
    if len(items) < 2 or not any(steps_in(ref[0]) == 1 for _, ref in items):
        return items
    found: dict[Ref, Number] = {ref: coefficient for coefficient, ref in items}
    present = {family(universe, ref[0]) for _, ref in items}
    for ref in [ref for _, ref in items if steps_in(ref[0]) == 1]:
        if ref not in found or _unmasked(universe, ref[0]) not in present:
            continue
        (factor, plain), (other, turned) = opposite(universe, ref, extents)
        coefficient = found[ref]
        if factor and plain in found and found[plain] * factor == -coefficient * factor * factor and factor == other:
            del found[ref], found[plain]
            if other:
                found[turned] = found.get(turned, 0) - coefficient * other
            continue
        for candidate in list(found):
            own = found[candidate]
            if candidate is not ref and own == coefficient and steps_in(candidate[0]) == 0:
                masked = _under(universe, candidate, ref, extents)
                if masked is not None:
                    del found[candidate]
                    found[masked[1]] = found.get(masked[1], 0) + own * masked[0]
    return [(coefficient, ref) for ref, coefficient in found.items() if coefficient != 0]


def _unmasked(universe: Universe, kernel: Kernel) -> Any:
    """The family of a term without its mask on positions."""
    if is_step(kernel):
        return family(universe, universe.one)
    return tuple(sorted((f[0].id, f[1]) for f in kernel.factors if not is_step(f[0])))


def _under(universe: Universe, ref: Ref, model: Ref, extents: tuple[int, ...]) -> tuple[Number, Ref] | None:
    """A sum with the mask of a model of the same form, where that mask is 1 on all of the sum's window."""
    mine, other = _opened(universe, ref, extents), _opened(universe, model, extents)
    mask = next((part for part in other.parts if is_step(part.kernel)), None)
    rest = [part for part in other.parts if part is not mask]
    if mask is None or len(rest) != len(mine.parts) or len(mine.sizes) != len(other.sizes) or mine.dims != other.dims:
        return None
    outer = len(mine.sizes) - len(mine.reduced)
    if mine.sizes[:outer] != other.sizes[:outer]:
        return None
    shift: dict[int, int] = {}
    for a, b in zip(mine.parts, rest, strict=True):
        if (
            a.kernel is not b.kernel
            or a.payload != b.payload
            or a.window != b.window
            or sorted(a.expressions) != sorted(b.expressions)
        ):
            return None
        if not _shifted(a, b, outer, shift):
            return None
    part = mask.copy()
    for axis, digit, stride in mask.expressions:
        part.offsets[axis] += stride * shift.get(digit, 0)
    if bounds(part, mine.sizes)[0] <= 0:
        return None
    mine.parts.append(part)
    mine.keep_steps = True
    return mine.finish()


def _shifted(a: Part, b: Part, outer: int, shift: dict[int, int]) -> bool:
    """Whether offsets differ by a move along summed digits only; the moves are noted."""
    for axis, (x, y) in enumerate(zip(a.offsets, b.offsets, strict=True)):
        moving = [(digit, stride) for other, digit, stride in a.expressions if other == axis and digit >= outer]
        if x == y:
            if any(shift.setdefault(digit, 0) for digit, _ in moving):
                return False
            continue
        if len(moving) != 1 or (x - y) % moving[0][1]:
            return False
        digit, stride = moving[0]
        if shift.setdefault(digit, (x - y) // stride) != (x - y) // stride:
            return False
    return True
