"""Kernel construction: from factors over a tensor's digits to an interned kernel at its maximal domain.

The same operator on a shard and on the whole tensor must give one kernel, so every digit is first extended to all indices at which
all factors exist, digits that always move together are merged, and labels are put in canonical order.  The result is a reference: a window
onto the kernel ("Kernels, references and values" in docs/engine.md).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from operator import itemgetter
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.terms.domains import Domain
from graphguard.relations.terms.kernels import (
    UNBOUNDED,
    Alike,
    Digit,
    Digits,
    Factor,
    Kernel,
    Ref,
    Universe,
    ratio,
)
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.symmetry import orders
from graphguard.relations.terms.unify import matched, offer, skeleton
from graphguard.relations.terms.windows import joined

_NONE: Final = frozenset[int]()
_COLOUR: Final = itemgetter(0)
_STILL: Final = (-1, 0)  # no axis, along which a digit moves
_PERMUTED: Final = 4  # symmetric labels beyond this many are left in the order found: incomplete, never wrong
_MOST_ORDERS: Final = 600  # more are not written out one by one


@rule(
    "construction",
    "layout",
    "an expression of a shard is a window onto that of the whole: it is built over all coordinates at which its factors exist, its labels in one order, and may be a part of one that the specification has",
    "`x[:4] @ w` = `(x @ w)[:4]`",
    "construction",
)
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
    for part in parts:
        if part.payload.__class__ is Fraction:
            part.payload = ratio(part.payload)
    before = [(part.offsets.copy(), part.expressions) for part in parts]
    domain = Domain(parts, sizes, core)
    rows = tuple([(part.kernel, part.payload, part.window, *part.offsets, *part.expressions) for part in parts])
    partial = (
        frozenset([digit for digit in reduced if domain.below[digit] or domain.above[digit]]) if reduced else _NONE
    )
    name = (kind, attributes, rows, tuple(domain.full.items()), frozenset(reduced), partial, tuple(core.items()))
    known = universe.plans.setdefault(name, [])
    if not known:
        known.append(_planned(universe, kind, attributes, parts, domain.full, reduced, partial, core))
    plan = known[0]
    kernel = plan.kernel
    if kernel is None:
        kernel = plan.kernel = universe.table.get(plan.key)
    if kernel is None or not kernel.specified:
        alike = plan.alike
        if alike.whole or alike.solved:
            own = [Part(p.kernel, p.payload, p.window, *was) for p, was in zip(parts, before, strict=True)]
            found = matched(alike, own, sizes, dims, reduced, core)
            if found is not None:
                return found
    if kernel is None:
        kernel = plan.kernel = _intern(universe, plan, parts)
    elif universe.specifying and not kernel.specified:  # an implementation's, met by a later stage of the specification
        kernel.specified = True
        offer(universe, kernel, plan.alike)
    return _reference(kernel, domain, plan, dims, reduced, sizes)


@dataclass(slots=True)
class Plan:
    """What construction makes of factors whose digits are extended: the kernel's key, and its labels as digits, each with the digits merged into it.

    Shards of one tensor, on all ranks, differ in how far their digits had to be extended and in nothing after that: they share one plan.  ``members`` are
    ``(original digit, stride within)``, by the digit that stayed; ``kernel`` is the one of that key, once there is one; ``alike`` are those of the specification
    onto which it may be a window.
    """

    key: tuple[Any, ...]
    free: tuple[int, ...]
    bound: tuple[int, ...]
    members: dict[int, list[tuple[int, int]]]
    core: dict[int, Hashable]
    alike: Alike
    kernel: Kernel | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the kernel's axes."""
        return self.key[3]  # type: ignore[no-any-return]

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of its reduced axes."""
        return self.key[4]  # type: ignore[no-any-return]


def _planned(
    universe: Universe,
    kind: str,
    attributes: tuple[Hashable, ...],
    parts: list[Part],
    sizes: dict[int, int],
    reduced: set[int],
    partial: frozenset[int],
    core: dict[int, Hashable],
) -> Plan:
    """The plan for factors over digits of the given extents, of which those in ``partial`` are summed over a part only."""
    full = dict(sizes)
    touched = _touched(parts, [digit for digit in sorted(full) if full[digit] != 1 or digit in core])
    members = _Merging(touched, full, reduced, partial).merged(core)
    order, key_parts = _canonical(parts, members, full, reduced, core)
    free = tuple([digit for digit in order if digit not in reduced])
    bound = order[len(free) :]  # summed labels come last
    shape = tuple([full[digit] for digit in free])
    extents = tuple([full[digit] for digit in bound])
    cores = (
        tuple([(index, core[digit]) for index, digit in enumerate((*free, *bound)) if digit in core]) if core else ()
    )
    alike = universe.alike(skeleton(kind, attributes, [(part.kernel, part.payload) for part in parts]))
    return Plan((kind, attributes, key_parts, shape, extents, cores), free, bound, members, dict(cores), alike)


def _intern(universe: Universe, plan: Plan, parts: list[Part]) -> Kernel:
    """The kernel of a plan; its factors are those of the key, whose labels are the kernel's own."""
    kind, attributes, rows = plan.key[:3]
    kernels = {part.kernel.id: part.kernel for part in parts}
    factors: tuple[Factor, ...] = tuple(
        [(kernels[number], payload, window, offsets, steps) for (number, payload, window, offsets), steps in rows]
    )
    kernel = universe.add(plan.key, kind, "", plan.shape, plan.extents, factors, attributes)
    kernel.core = plan.core
    if universe.specifying:
        offer(universe, kernel, plan.alike)
    return kernel


def joined_digits(parts: list[Part], domain: Domain, reduced: set[int]) -> list[list[tuple[int, int]]]:
    """Digits that end somewhere, those that every part sees side by side together, each with its stride in the digit that they are."""
    full = {digit: size for digit, size in domain.full.items() if size != UNBOUNDED}
    partial = frozenset([digit for digit in reduced if domain.below[digit] or domain.above[digit]])
    touched = _touched(parts, sorted(full))
    return list(_Merging(touched, full, reduced, partial).merged({}).values())


def _touched(parts: list[Part], live: list[int]) -> dict[int, dict[int, tuple[int, int] | None]]:
    """For every live digit, the parts it touches and where; None where it touches a part twice."""
    touched: dict[int, dict[int, tuple[int, int] | None]] = {digit: {} for digit in live}
    for index, part in enumerate(parts):
        for axis, digit, stride in part.expressions:
            mine = touched.get(digit)
            if mine is not None:
                mine[index] = None if index in mine else (axis, stride)
    return touched


@dataclass(slots=True)
class _Merging:
    """Joins digits that every part sees side by side; ``full`` becomes the extents of the digits that stay."""

    touched: dict[int, dict[int, tuple[int, int] | None]]
    full: dict[int, int]
    reduced: set[int]
    partial: frozenset[int]

    def merged(self, core: dict[int, Hashable]) -> dict[int, list[tuple[int, int]]]:
        """The digits that stay, each with ``(original digit, stride within)`` of those that it stands for."""
        members = {digit: [(digit, 1)] for digit in self.touched}
        if len(members) < 2:
            return members
        rows: dict[tuple[Any, ...], list[int]] = {}  # only digits that move along the same axes can be side by side
        for digit, places in self.touched.items():
            if digit not in core:
                for index, place in places.items():
                    rows.setdefault((digit in self.reduced, len(places), index, place and place[0]), []).append(digit)
                    break
        for digits in rows.values():
            if len(digits) > 1:
                self._row(digits, members)
        return members

    def _row(self, digits: list[int], members: dict[int, list[tuple[int, int]]]) -> None:
        partial = set(self.partial)
        changed = True
        while changed:
            changed = False
            for outer in digits:
                for inner in digits:
                    if (
                        outer != inner
                        and outer in members
                        and inner in members
                        and inner not in partial
                        and self._step(outer, inner)
                    ):
                        step = self._step(outer, inner)
                        members[inner] += [(digit, stride * step) for digit, stride in members.pop(outer)]
                        full = self.full.pop(outer)
                        self.full[inner] = UNBOUNDED if full == UNBOUNDED else full * step
                        if outer in partial:
                            partial.add(inner)
                        changed = True
                        break

    def _step(self, outer: int, inner: int) -> int:
        """How far the outer digit moves along the inner one wherever they are seen; 0 where they are no one digit.

        That is the inner one's extent; where both may be any integer it may be any number: ``i - j`` is one digit if nothing sees i or j alone.
        """
        mine, other = self.touched[outer], self.touched[inner]
        step = self.full[inner]
        if step == UNBOUNDED:
            step = self._ratio(outer, inner)
        if not step:
            return 0
        for index, place in other.items():
            there = mine.get(index)
            if place is None or there is None or there[0] != place[0] or there[1] != place[1] * step:
                return 0
        return step

    def _ratio(self, outer: int, inner: int) -> int:
        """The outer digit's stride over the inner one's, where the first part sees them and both may be any integer; 0 where it is not whole."""
        if self.full[outer] != UNBOUNDED or outer in self.reduced:
            return 0
        index, place = next(iter(self.touched[inner].items()), (0, None))
        there = self.touched[outer].get(index)
        if place is None or there is None or there[1] % place[1]:
            return 0
        return there[1] // place[1]


def _canonical(
    parts: list[Part],
    members: dict[int, list[tuple[int, int]]],
    full: dict[int, int],
    reduced: set[int],
    core: dict[int, Hashable],
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Labels in an order that does not depend on how the factors were written, and the factors under it."""
    full_names = [(part.kernel.id, part.payload, part.window, tuple(part.offsets)) for part in parts]
    ordered, names = _numbered(full_names)

    def under(order: tuple[int, ...]) -> tuple[Any, ...]:
        label = {digit: index for index, digit in enumerate(order)}
        rows = []
        for name, part in zip(names, parts, strict=True):
            steps = [(axis, label[d], s) for axis, d, s in part.expressions if d in label]
            steps.sort()
            rows.append((name, tuple(steps)))
        rows.sort()
        return tuple(rows)

    def spelt(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([(ordered[name], steps) for name, steps in rows])

    if len(members) < 2:
        order = tuple(members)
        return order, spelt(under(order))
    groups = _alike(names, parts, members, full, reduced, core)
    if len(groups) == len(members):
        order = tuple([group[0] for group in groups])
        return order, spelt(under(order))
    tried: Iterable[tuple[int, ...]]
    if math.prod([math.factorial(len(group)) for group in groups if len(group) <= _PERMUTED]) <= _MOST_ORDERS:
        choices = [list(permutations(group)) if len(group) <= _PERMUTED else [tuple(group)] for group in groups]
        tried = (tuple([digit for group in combination for digit in group]) for combination in product(*choices))
    else:
        tried = orders(groups, [(names[index], part.expressions) for index, part in enumerate(parts)])
    best: tuple[Any, tuple[int, ...]] | None = None
    for order in tried:
        rows = under(order)
        if best is None or rows < best[0]:
            best = (rows, order)
    assert best is not None
    return best[1], spelt(best[0])


def _alike(
    names: list[int],
    parts: list[Part],
    members: dict[int, list[tuple[int, int]]],
    full: dict[int, int],
    reduced: set[int],
    core: dict[int, Hashable],
) -> list[list[int]]:
    """Digits by where they are met in the factors, in an order that this decides; summed ones come last."""
    seen: dict[int, list[tuple[int, int, int]]] = {digit: [] for digit in members}
    for name, part in zip(names, parts, strict=True):
        for axis, digit, stride in part.expressions:
            mine = seen.get(digit)
            if mine is not None:
                mine.append((name, axis, stride))
    coloured = []
    for digit, places in seen.items():
        places.sort()
        coloured.append(((digit in reduced, str(core.get(digit, "")) if core else "", full[digit], places), digit))
    coloured.sort(key=_COLOUR)
    groups: list[list[int]] = []
    last: Any = None
    for colour, digit in coloured:
        if colour == last:
            groups[-1].append(digit)
        else:
            groups.append([digit])
        last = colour
    return groups


def _numbered(rows: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The different rows in order, and the number of every row among them."""
    if len(rows) == 1:
        return rows, [0]
    ordered: list[tuple[Any, ...]] = []
    numbers = [0] * len(rows)
    for place in sorted(range(len(rows)), key=rows.__getitem__):
        if not ordered or rows[place] != ordered[-1]:
            ordered.append(rows[place])
        numbers[place] = len(ordered) - 1
    return ordered, numbers


def _reference(
    kernel: Kernel, domain: Domain, plan: Plan, dims: list[list[int]], reduced: set[int], sizes: list[int]
) -> Ref:
    offsets: list[int] = []
    where: dict[int, tuple[int, int]] = {}
    for axis, head in enumerate(plan.free):
        offset = 0
        for digit, stride in plan.members[head]:
            offset += domain.below[digit] * stride
            if digit in domain.flipped:
                offset += (sizes[digit] - 1) * stride
                stride = -stride
            where[digit] = (axis, stride)
        offsets.append(offset)
    out: list[Digits] = []
    for digits in dims:
        mine: list[Digit] = [(*where.get(digit, _STILL), sizes[digit]) for digit in digits if digit not in reduced]
        out.append(joined(mine) if len(mine) != 1 or mine[0][2] == 1 else (mine[0],))
    window = []
    for head in plan.bound:  # of merged digits all but the outermost are summed whole
        digit, stride = max(plan.members[head], key=_stride)
        low = domain.below[digit] * stride
        window.append((low, low + sizes[digit] * stride))
    return (kernel, tuple(offsets), tuple(out), tuple(window))


def _stride(member: tuple[int, int]) -> int:
    return member[1]
