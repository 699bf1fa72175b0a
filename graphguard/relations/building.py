"""Kernel construction: from factors over a tensor's digits to an interned kernel at its maximal domain.

The same operator on a shard and on the whole tensor must give one kernel, so every digit is first extended to all indices at which
all factors exist, digits that always move together are merged, and labels are put in canonical order.  The result is a reference: a window
onto the kernel (Section "windows" of docs/engine.md).
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations, product
from typing import Any, Final

from graphguard.relations.kernels import (
    UNBOUNDED,
    Digit,
    Digits,
    Expression,
    Factor,
    Kernel,
    Number,
    Ref,
    Universe,
    Window,
)
from graphguard.relations.orientation import orient, origin
from graphguard.relations.unify import matched, offer
from graphguard.relations.windows import joined

_PERMUTED: Final = 4  # symmetric labels beyond this many are left in the order found: incomplete, never wrong


class Part:
    """A factor while its product is under construction; ``expressions`` are over digits instead of labels."""

    __slots__ = ("expressions", "kernel", "offsets", "payload", "window")

    def __init__(
        self, kernel: Kernel, payload: Any, window: Window, offsets: list[int], expressions: list[Expression]
    ) -> None:
        self.kernel = kernel
        self.payload = payload
        self.window = window
        self.offsets = offsets
        self.expressions = expressions

    def copy(self) -> Part:
        """A part that can be changed alone."""
        return Part(self.kernel, self.payload, self.window, list(self.offsets), list(self.expressions))

    def before(self) -> Part:
        """The part as it is before construction, which replaces lists of expressions but never changes one."""
        return Part(self.kernel, self.payload, self.window, self.offsets.copy(), self.expressions)


class _Domain:
    """How far every digit reaches below and above the tensor's own indices."""

    __slots__ = ("above", "below", "flipped", "full", "live", "sizes")

    def __init__(self, parts: list[Part], sizes: list[int], core: dict[int, Hashable]) -> None:
        self.sizes = list(sizes)
        self.flipped = orient(parts, sizes, core.keys())
        count = len(sizes)
        self.below: list[int] = [0] * count
        self.above: list[int] = [0] * count
        bounded: set[int] = set()
        free: set[int] = set()
        low: list[int | None] = [None] * count
        high: list[int | None] = [None] * count
        crossed: list[tuple[list[tuple[int, int]], int, int]] = []
        for part in parts:
            _reach(part, sizes, low, high, free, crossed)
        for steps, top, offset in crossed:
            _reach_crossed(steps, top, offset, sizes, low, high)
        for digit in range(count):
            below = low[digit]
            above = high[digit]
            if below is not None and above is not None:
                bounded.add(digit)
                if digit not in core:
                    self.below[digit], self.above[digit] = below, above
        for part in parts:
            _shift(part, self.below, bounded)
        free -= bounded
        self.full: dict[int, int] = {digit: sizes[digit] + self.below[digit] + self.above[digit] for digit in bounded}
        for digit in sorted(free):
            if digit in core:
                self.full[digit] = sizes[digit]
                continue
            self.below[digit] = _centre(parts, digit)
            self.full[digit] = UNBOUNDED
        for digit in core:
            self.full.setdefault(digit, sizes[digit])
        self.live = sorted(self.full)


def _reach(
    part: Part,
    sizes: list[int],
    low: list[int | None],
    high: list[int | None],
    free: set[int],
    crossed: list[tuple[list[tuple[int, int]], int, int]] | None = None,
) -> None:
    """Narrow the reach of the part's digits to where the part exists; axes whose digits overlap are left for ``crossed``."""
    by_axis: dict[int, list[tuple[int, int]]] = {}
    for axis, digit, stride in part.expressions:
        by_axis.setdefault(axis, []).append((stride, digit))
    for axis, steps in by_axis.items():
        top = part.kernel.shape[axis]
        if top == UNBOUNDED:
            free.update(digit for _, digit in steps)
            continue
        if len(steps) > 1:
            steps.sort(reverse=True)
        found = _radix(steps, top, part.offsets[axis], sizes)
        if found is None and crossed is not None:
            crossed.append((steps, top, part.offsets[axis]))
            continue
        for digit, below, above in found or [(digit, 0, 0) for _, digit in steps]:
            _narrow(digit, below, above, low, high)


def _narrow(digit: int, below: int, above: int, low: list[int | None], high: list[int | None]) -> None:
    old = low[digit]
    if old is None or below < old:
        low[digit] = below
    old = high[digit]
    if old is None or above < old:
        high[digit] = above


def _reach_crossed(
    steps: list[tuple[int, int]],
    top: int,
    offset: int,
    sizes: list[int],
    low: list[int | None],
    high: list[int | None],
) -> None:
    """Digits that overlap on an axis, as in a convolution: one may be extended where other factors hold all others."""
    movable = [(stride, digit) for stride, digit in steps if (low[digit], high[digit]) != (0, 0)]
    if len(movable) != 1 or any(stride <= 0 for stride, _ in steps):
        movable = []
    slack = top - 1 - offset - sum(stride * (sizes[digit] - 1) for stride, digit in steps)
    for stride, digit in steps:
        if (stride, digit) in movable and slack >= 0:
            _narrow(digit, offset // stride, slack // stride, low, high)
        else:
            _narrow(digit, 0, 0, low, high)


def reach(parts: list[Part], sizes: list[int], digit: int) -> tuple[int, int] | None:
    """How far one digit can be extended below and above; None where nothing bounds it."""
    low: list[int | None] = [None] * len(sizes)
    high: list[int | None] = [None] * len(sizes)
    for part in parts:
        if any(other == digit for _, other, _ in part.expressions):
            _reach(part, sizes, low, high, set())
    below, above = low[digit], high[digit]
    return None if below is None or above is None else (below, above)


def _radix(steps: list[tuple[int, int]], top: int, offset: int, sizes: list[int]) -> list[tuple[int, int, int]] | None:
    out = []
    for stride, digit in steps:
        if stride <= 0 or top % stride:
            return None
        below = offset // stride
        above = top // stride - below - sizes[digit]
        if above < 0 or below < 0:
            return None
        out.append((digit, below, above))
        offset -= below * stride
        top = stride
    return out


def _shift(part: Part, below: list[int], digits: set[int]) -> None:
    for axis, digit, stride in part.expressions:
        if digit in digits and below[digit]:
            part.offsets[axis] -= below[digit] * stride


def _centre(parts: list[Part], digit: int) -> int:
    """Move a digit that only unbounded axes carry to its origin; how far."""
    amount = origin(parts, digit)
    if amount:
        for part in parts:
            for axis, other, stride in part.expressions:
                if other == digit:
                    part.offsets[axis] -= amount * stride
    return amount


def build(
    universe: Universe,
    kind: str,
    attributes: tuple[Hashable, ...],
    parts: list[Part],
    sizes: list[int],
    dims: list[list[int]],
    reduced: set[int],
    core: dict[int, Hashable] | None = None,
) -> Ref:
    """The reference, over ``dims`` without the reduced digits, to the kernel of these factors; ``parts`` is consumed.

    ``core`` names digits that the kernel sees whole: they are neither extended nor merged.
    """
    universe.step()
    core = core or {}
    original = [part.before() for part in parts]
    domain = _Domain(parts, sizes, core)
    single = {digit for digit in domain.live if domain.full[digit] == 1 and digit not in core}
    if single:
        for part in parts:
            part.expressions = [step for step in part.expressions if step[1] not in single]
        reduced = reduced - single
    touched = _touched(parts, [digit for digit in domain.live if digit not in single])
    members = _merge(touched, domain, reduced, core)
    order, key_parts = _canonical(parts, members, touched, domain, reduced, core)
    free_labels = [digit for digit in order if digit not in reduced]
    bound_labels = [digit for digit in order if digit in reduced]
    shape = tuple(domain.full[digit] for digit in free_labels)
    extents = tuple(domain.full[digit] for digit in bound_labels)
    cores = tuple((index, core[digit]) for index, digit in enumerate((*free_labels, *bound_labels)) if digit in core)
    key = (kind, attributes, key_parts, shape, extents, cores)
    kernel = universe.table.get(key)
    if kernel is None or not kernel.specified:
        found = matched(universe, kind, attributes, original, sizes, dims, reduced, core)
        if found is not None:
            return found
    if kernel is None:
        kernel = _intern(universe, key, parts, (*free_labels, *bound_labels), shape, extents, dict(cores))
    elif universe.specifying and not kernel.specified:  # an implementation's, met by a later stage of the specification
        kernel.specified = True
        offer(universe, kernel)
    return _reference(kernel, domain, members, free_labels, bound_labels, dims, reduced, sizes)


def _intern(
    universe: Universe,
    key: tuple[Any, ...],
    parts: list[Part],
    labels: tuple[int, ...],
    shape: tuple[int, ...],
    extents: tuple[int, ...],
    core: dict[int, Hashable],
) -> Kernel:
    kind, attributes = key[0], key[1]
    number = {digit: index for index, digit in enumerate(labels)}
    factors: list[Factor] = []
    for part in parts:
        expressions = tuple(
            sorted((axis, number[digit], stride) for axis, digit, stride in part.expressions if digit in number)
        )
        factors.append((part.kernel, part.payload, part.window, tuple(part.offsets), expressions))
    factors.sort(key=_factor_key)
    kernel = universe.intern(key, kind, "", shape, extents, tuple(factors), attributes)
    kernel.core = core
    if universe.specifying:
        offer(universe, kernel)
    return kernel


def _factor_key(factor: Factor) -> tuple[Any, ...]:
    return (factor[0].id, factor[1], factor[2], factor[3], factor[4])


def _touched(parts: list[Part], live: list[int]) -> dict[int, dict[int, tuple[int, int] | None]]:
    """For every live digit, the parts it touches and where; None where it touches a part twice."""
    touched: dict[int, dict[int, tuple[int, int] | None]] = {digit: {} for digit in live}
    for index, part in enumerate(parts):
        for axis, digit, stride in part.expressions:
            mine = touched.get(digit)
            if mine is not None:
                mine[index] = None if index in mine else (axis, stride)
    return touched


def _merge(
    touched: dict[int, dict[int, tuple[int, int] | None]], domain: _Domain, reduced: set[int], core: dict[int, Hashable]
) -> dict[int, list[tuple[int, int]]]:
    """Join digits that every part sees side by side; maps the digits that stay to ``(original digit, stride within)``."""
    members = {digit: [(digit, 1)] for digit in touched}
    if len(touched) < 2:
        return members
    rows: dict[tuple[Any, ...], list[int]] = {}  # only digits that move along the same axes can be side by side
    for digit, places in touched.items():
        if digit not in core:
            for index, place in places.items():
                rows.setdefault((digit in reduced, len(places), index, place and place[0]), []).append(digit)
                break
    for digits in rows.values():
        if len(digits) > 1:
            _merge_row(digits, touched, domain, reduced, members)
    return members


def _merge_row(
    digits: list[int],
    touched: dict[int, dict[int, tuple[int, int] | None]],
    domain: _Domain,
    reduced: set[int],
    members: dict[int, list[tuple[int, int]]],
) -> None:
    changed = True
    while changed:
        changed = False
        for outer in digits:
            for inner in digits:
                if (
                    outer != inner
                    and outer in members
                    and inner in members
                    and _adjacent(outer, inner, touched, domain, reduced)
                ):
                    _absorb(outer, inner, members, domain, outer in reduced)
                    changed = True
                    break


def _adjacent(
    outer: int,
    inner: int,
    touched: dict[int, dict[int, tuple[int, int] | None]],
    domain: _Domain,
    reduced: set[int],
) -> bool:
    mine, other = touched[outer], touched[inner]
    size = domain.full[inner]
    if size == UNBOUNDED or (outer in reduced and (domain.below[inner] or domain.above[inner])):
        return False
    for index, place in other.items():
        there = mine.get(index)
        if place is None or there is None or there[0] != place[0] or there[1] != place[1] * size:
            return False
    return True


def _absorb(outer: int, inner: int, members: dict[int, list[tuple[int, int]]], domain: _Domain, bound: bool) -> None:
    size = domain.full[inner]
    if bound:
        domain.below[inner] = domain.below[outer] * size
        domain.above[inner] = domain.above[outer] * size
        domain.sizes[inner] = domain.sizes[outer] * size
    members[inner] += [(digit, stride * size) for digit, stride in members.pop(outer)]
    full = domain.full.pop(outer)
    domain.full[inner] = UNBOUNDED if full == UNBOUNDED else full * size


def _canonical(
    parts: list[Part],
    members: dict[int, list[tuple[int, int]]],
    touched: dict[int, dict[int, tuple[int, int] | None]],
    domain: _Domain,
    reduced: set[int],
    core: dict[int, Hashable],
) -> tuple[list[int], tuple[Any, ...]]:
    """Labels in an order that does not depend on how the factors were written, and the factors under it."""
    full_names = [(part.kernel.id, part.payload, part.window, tuple(part.offsets)) for part in parts]
    ordered = sorted(set(full_names)) if len(parts) > 1 else full_names
    number = {name: index for index, name in enumerate(ordered)}
    names = [number[name] for name in full_names]

    def colour(digit: int) -> tuple[Any, ...]:
        places = touched[digit]
        if None not in places.values():
            seen: list[Any] = [(names[index], *place) for index, place in places.items() if place is not None]
        else:
            seen = [
                (names[i], axis, s) for i, part in enumerate(parts) for axis, d, s in part.expressions if d == digit
            ]
        seen.sort()
        return (digit in reduced, str(core.get(digit, "")), domain.full[digit], seen)

    def under(order: tuple[int, ...]) -> tuple[Any, ...]:
        label = {digit: index for index, digit in enumerate(order)}
        rows = []
        for index, part in enumerate(parts):
            rows.append(
                (names[index], tuple(sorted((axis, label[d], s) for axis, d, s in part.expressions if d in label)))
            )
        rows.sort()
        return tuple(rows)

    def spelt(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([(ordered[name], steps) for name, steps in rows])

    if len(members) < 2:
        order = tuple(members)
        return list(order), spelt(under(order))
    coloured = sorted(((colour(digit), digit) for digit in members), key=lambda pair: pair[0])
    groups: list[list[int]] = []
    last: Any = None
    for name, digit in coloured:
        if groups and name == last:
            groups[-1].append(digit)
        else:
            groups.append([digit])
        last = name
    if len(groups) == len(members):
        order = tuple(group[0] for group in groups)
        return list(order), spelt(under(order))
    choices = [list(permutations(group)) if len(group) <= _PERMUTED else [tuple(group)] for group in groups]
    best: tuple[Any, tuple[int, ...]] | None = None
    for combination in product(*choices):
        order = tuple(digit for group in combination for digit in group)
        rows = under(order)
        if best is None or rows < best[0]:
            best = (rows, order)
    assert best is not None
    return list(best[1]), spelt(best[0])


def _reference(
    kernel: Kernel,
    domain: _Domain,
    members: dict[int, list[tuple[int, int]]],
    free_labels: list[int],
    bound_labels: list[int],
    dims: list[list[int]],
    reduced: set[int],
    sizes: list[int],
) -> Ref:
    label = {digit: index for index, digit in enumerate(free_labels)}
    offsets = [0] * len(free_labels)
    where: dict[int, tuple[int, int]] = {}
    for head in free_labels:
        for digit, stride in members[head]:
            step = stride
            offsets[label[head]] += domain.below[digit] * stride
            if digit in domain.flipped:
                offsets[label[head]] += (sizes[digit] - 1) * stride
                step = -stride
            where[digit] = (label[head], step)
    out: list[Digits] = []
    for digits in dims:
        mine: list[Digit] = []
        for digit in digits:
            if digit in reduced:
                continue
            axis, stride = where.get(digit, (-1, 0))
            mine.append((axis, stride, sizes[digit]))
        out.append(joined(mine))
    window = tuple((domain.below[digit], domain.below[digit] + domain.sizes[digit]) for digit in bound_labels)
    return (kernel, tuple(offsets), tuple(out), window)


__all__ = ["Number", "Part", "build", "reach"]
