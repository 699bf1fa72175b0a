"""Masks on positions, ``[a*i + b*j + c > 0]``: causal masks and windows of them.

Such a mask is an affine index under ``gt0``.  Three facts bring sums under it to one form: a term and minus the same term masked is the term under
the opposite mask; where the mask is 1 on all of a sum's window the sum may carry it; where it is 0 beyond the window the window may be extended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from graphguard.relations.facts.signs import positive_within
from graphguard.relations.rewrite.rule import Outcome, rule
from graphguard.relations.sums.products import Product, multiply
from graphguard.relations.terms.domains import reach
from graphguard.relations.terms.kernels import (
    Digits,
    Expression,
    Kernel,
    Number,
    Ref,
    Term,
    Universe,
    family,
)
from graphguard.relations.terms.orientation import is_delta, is_step
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import refine

_MASKS: Final = 4  # masks of one term that are turned
_WAITING: Final = 64  # terms under masks that are looked at


def steps_in(kernel: Kernel) -> int:
    """How many masks on positions a term has as factors."""
    if is_step(kernel):
        return 1
    return sum(1 for factor in kernel.factors if is_step(factor[0])) if kernel.kind == "product" else 0


def bounds(part: Part, sizes: list[int], without: int = -1) -> tuple[int, int]:
    """Smallest and largest index under a mask, one digit left out."""
    moves = [stride * (sizes[digit] - 1) for _, digit, stride in part.expressions if digit != without]
    return part.offsets[0] + sum(m for m in moves if m < 0), part.offsets[0] + sum(m for m in moves if m > 0)


@rule(
    "cases",
    "masks on positions",
    "`[i > j]` = 1 on a window on which it holds throughout, 0 on one on which it holds nowhere",
    "a causal mask on a rank whose queries all come later",
    "product",
)
def settle_steps(product: Product) -> Outcome:
    """Drop masks that are 1 throughout; zero where one is 0 throughout."""
    outcome = Outcome.SAME
    for part in () if product.keep_steps else list(product.parts):
        if is_step(part.kernel) and part.payload == 1:
            low, high = bounds(part, product.sizes)
            if high <= 0:
                return Outcome.ZERO
            if low > 0:
                product.parts.remove(part)
                outcome = Outcome.CHANGED
    return outcome


@rule(
    "half-lines",
    "masks on positions",
    "`[i > a] [i > b]` = `[i > max(a, b)]`, `[i > a] [-i > -b]` = 0 where no whole number lies between",
    "`x.tril(1).tril()` = `x.tril()`",
    "product",
)
def meet_steps(product: Product) -> Outcome:
    """Of masks on one index that run the same way keep the narrower; zero where two that run against each other exclude each other."""
    outcome = Outcome.SAME
    seen: dict[tuple[Expression, ...], Part] = {}
    for part in [product.parts[place] for place in _steps_of(product.parts)]:
        steps = tuple(sorted(part.expressions))
        against = seen.get(tuple((axis, digit, -stride) for axis, digit, stride in steps))
        if against is not None and against.offsets[0] + part.offsets[0] < 2:
            return Outcome.ZERO  # x > -a and -x > -b have a whole number between them where a + b > 1
        same = seen.setdefault(steps, part)
        if same is not part:
            same.offsets[0] = min(same.offsets[0], part.offsets[0])
            product.parts.remove(part)
            outcome = Outcome.CHANGED
    return outcome


def without_implied(universe: Universe, term: Term, extents: tuple[int, ...]) -> Term:
    """A term without the masks that are 1 wherever another of its masks is: a query that comes after the last of some keys comes after the first."""
    coefficient, ref = term
    if steps_in(ref[0]) < 2:
        return term
    product = _opened(universe, ref, extents)
    for part in [product.parts[place] for place in _steps_of(product.parts)]:
        others = [product.parts[place] for place in _steps_of(product.parts)]
        if any(_implies(other, part, product.sizes) for other in others if other is not part):
            product.parts.remove(part)
    factor, plain = product.finish()
    return coefficient * factor, plain


def _implies(mask: Part, other: Part, sizes: list[int]) -> bool:
    """Whether the index under the other mask is nowhere smaller than the one under the first."""
    more: dict[int, int] = {}
    for _, digit, stride in other.expressions:
        more[digit] = more.get(digit, 0) + stride
    for _, digit, stride in mask.expressions:
        more[digit] = more.get(digit, 0) - stride
    least = sum(min(0, stride * (sizes[digit] - 1)) for digit, stride in more.items())
    return other.offsets[0] - mask.offsets[0] + least >= 0


@rule(
    "windows under masks",
    "masks on positions",
    "`sum over i in [0, k) of [i < k] f(i)` = `sum over i in [0, n) of [i < k] f(i)`",
    "causal attention over the keys so far = causal attention over all keys",
    "product",
)
def extend_windows(product: Product) -> Outcome:
    """Extend summed digits to where a mask or an equation on positions is 0 anyway, as far as the other factors exist: the window no longer depends on the shard."""
    if not product.reduced:
        return Outcome.SAME
    before = list(product.sizes)
    zeros = [part for part in product.parts if part.payload == 1 and (is_step(part.kernel) or is_delta(part.kernel))]
    for zero in zeros:
        strides: dict[int, int] = {}
        for _, digit, stride in zero.expressions:
            strides[digit] = strides.get(digit, 0) + stride
        for digit, stride in strides.items():
            if (
                digit in product.reduced
                and stride
                and all(
                    p.payload > 0 or _untouched(p, digit) or positive_within(p.kernel, p.window) for p in product.parts
                )
            ):
                _extend(product, zero, digit, stride)
    return Outcome.SAME if product.sizes == before else Outcome.CHANGED


def _untouched(part: Part, digit: int) -> bool:
    return all(other != digit for _, other, _ in part.expressions)


def _extend(product: Product, zero: Part, digit: int, stride: int) -> None:
    room = reach(list(product.parts), product.sizes, digit)
    if room is None:
        return
    below, above = room
    size = product.sizes[digit]
    if above and _vanishes(product, zero, digit, stride * size, stride):
        product.sizes[digit] += above
    if below and _vanishes(product, zero, digit, -stride, -stride):
        product.sizes[digit] += below
        for part in product.parts:
            for axis, other, step in part.expressions:
                if other == digit:
                    part.offsets[axis] -= step * below


def _vanishes(product: Product, zero: Part, digit: int, start: int, stride: int) -> bool:
    """Whether a mask or an equation is 0 throughout where its digit goes on from a place that adds ``start`` to the index, in steps of ``stride``."""
    low, high = bounds(zero, product.sizes, digit)
    if stride < 0 and high + start < (0 if is_delta(zero.kernel) else 1):
        return True
    return stride > 0 and is_delta(zero.kernel) and low + start > 0


def _opened(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Product:
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    if ref[0].kind == "product":
        product.include(ref[0].factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0], raw=True)
    else:
        product.parts.append(Part(ref[0], 1, ref[3], list(ref[1]), used[0]))
    return product


def _steps_of(parts: list[Part]) -> list[int]:
    """Places of the masks on positions among parts."""
    return [place for place, part in enumerate(parts) if is_step(part.kernel) and part.payload == 1]


@dataclass(frozen=True, slots=True)
class _Masked:
    """One mask on positions of a term; what it is without it, or under another, is worked out when it is asked for."""

    ref: Ref
    extents: tuple[int, ...]
    place: int

    def plain(self, universe: Universe) -> Term:
        """The term without the mask."""
        return self._known(universe, "plain", self._plain)

    def turned(self, universe: Universe) -> Term:
        """The term under the opposite mask."""
        return self._known(universe, "turned", self._turned)

    def mask(self, universe: Universe) -> Ref | None:
        """The mask alone; None where a sum ties it to the rest."""
        factor, mask = self._known(universe, "mask", self._mask)
        return mask if factor and is_step(mask[0]) else None

    def line(self, universe: Universe, sign: int = 1) -> tuple[Digits, ...] | None:
        """The direction in which the mask runs, or the opposite one."""
        mask = self.mask(universe)
        if mask is None:
            return None
        return tuple(tuple((axis, sign * stride, size) for axis, stride, size in digits) for digits in mask[2])

    def opposite(self, universe: Universe) -> Ref | None:
        """The mask that holds where this one does not."""
        mask, turned = self.mask(universe), self.line(universe, -1)
        return None if mask is None or turned is None else (mask[0], (1 - mask[1][0],), turned, ())

    def _known(self, universe: Universe, name: str, make: Callable[[Product], Term]) -> Term:
        key = (name, self)
        known: Any = universe.memo.get(key)
        if known is None:
            known = universe.memo[key] = make(_opened(universe, self.ref, self.extents))
        return known  # type: ignore[no-any-return]

    def _plain(self, product: Product) -> Term:
        del product.parts[self.place]
        return product.finish()

    def _turned(self, product: Product) -> Term:
        part = product.parts[self.place]
        part.offsets[0] = 1 - part.offsets[0]
        part.expressions = [(axis, digit, -stride) for axis, digit, stride in part.expressions]
        return product.finish()

    def _mask(self, product: Product) -> Term:
        product.parts = [product.parts[self.place]]
        if any(digit in product.reduced for _, digit, _ in product.parts[0].expressions):
            return 0, self.ref
        product.reduced = set()
        return 1, product.finish()[1]


def _masks_of(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[_Masked]:
    key = ("masks of", ref, extents)
    known: Any = universe.memo.get(key)
    if known is None:
        places = _steps_of(_opened(universe, ref, extents).parts)[:_MASKS]
        known = universe.memo[key] = [_Masked(ref, extents, place) for place in places]  # type: ignore[assignment]
    return known  # type: ignore[no-any-return]


@rule(
    "complement",
    "masks on positions",
    "`t - [m] t` = `[not m] t`; `[i > a] t - [i > b] t` = `[a < i <= b] t`",
    "`x - x.tril()` = `x.triu(1)`",
    "sum",
)
def join_steps(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """Terms under masks on positions, joined with what they complete."""
    waiting = [ref for _, ref in items if ref[0].placed and steps_in(ref[0])]
    if len(items) < 2 or not waiting:
        return items
    found: dict[Ref, Number] = {ref: coefficient for coefficient, ref in items}
    for ref in waiting:
        if ref not in found or len(waiting) > _WAITING:
            continue
        fresh = _completed(universe, found, ref, extents)
        if fresh is None:
            fresh = _between(universe, found, ref, extents)
        if fresh is not None:
            waiting += fresh  # under their masks they may complete other terms
        elif steps_in(ref[0]) == 1:
            _join_equals(universe, found, ref, extents)
    return [(coefficient, ref) for ref, coefficient in found.items() if coefficient != 0]


def _replace(found: dict[Ref, Number], old: tuple[Ref, Ref], fresh: list[Term]) -> list[Ref]:
    """Put terms in place of two others; those of them that are under masks."""
    del found[old[0]], found[old[1]]
    for coefficient, ref in fresh:
        found[ref] = found.get(ref, 0) + coefficient
        if found[ref] == 0:
            del found[ref]
    return [ref for _, ref in fresh if ref in found and steps_in(ref[0])]


def _completed(universe: Universe, found: dict[Ref, Number], ref: Ref, extents: tuple[int, ...]) -> list[Ref] | None:
    """Replace a masked term and minus the same term by minus the term under the opposite mask; what is new, or None where nothing is."""
    present = {family(other[0]) for other in found}
    if not any(without in present for without in _unmasked(universe, ref[0])):
        return None
    for masked in _masks_of(universe, ref, extents):
        factor, plain = masked.plain(universe)
        if factor and found.get(plain) == -found[ref] * factor:
            other, turned = masked.turned(universe)
            if other == factor:
                return _replace(found, (ref, plain), [(-found[ref] * other, turned)])
    return None


def _between(universe: Universe, found: dict[Ref, Number], ref: Ref, extents: tuple[int, ...]) -> list[Ref] | None:
    """Join two terms that differ in one mask: a half-line less a part of it is an interval, two half-lines apart are all but one."""
    coefficient = found[ref]
    others = [other for other in found if other is not ref and family(other[0]) == family(ref[0])]
    for other in others:
        if found[other] not in (coefficient, -coefficient):
            continue
        for mine, its in product(_masks_of(universe, ref, extents), _masks_of(universe, other, extents)):
            a, b = mine.mask(universe), its.mask(universe)
            if a is None or b is None:
                continue
            along = found[other] == -coefficient and mine.line(universe) == its.line(universe)
            apart = (
                found[other] == coefficient and mine.line(universe) == its.line(universe, -1) and a[1][0] + b[1][0] < 2
            )
            if not (along or apart) or mine.plain(universe) != its.plain(universe):
                continue
            if along:
                wide, narrow = (mine, its) if a[1] > b[1] else (its, mine)
                factor, interval = _under_mask(universe, narrow.turned(universe), wide.mask(universe), extents)
                return _replace(found, (ref, other), [(found[ref if wide is mine else other] * factor, interval)])
            factor, interval = _under_mask(universe, mine.turned(universe), its.opposite(universe), extents)
            number, plain = mine.plain(universe)
            return _replace(found, (ref, other), [(coefficient * number, plain), (-coefficient * factor, interval)])
    return None


def _under_mask(universe: Universe, term: Term, mask: Ref | None, extents: tuple[int, ...]) -> Term:
    assert mask is not None
    factor, ref = multiply(universe, [(term[1], 1), (mask, 1)], extents)
    return term[0] * factor, ref


def _join_equals(universe: Universe, found: dict[Ref, Number], ref: Ref, extents: tuple[int, ...]) -> None:
    """Put sums of the same form, with the same coefficient, under a term's mask where it is 1 on all of their windows."""
    without = _unmasked(universe, ref[0])
    for candidate in list(found):
        own = found[candidate]
        if own != found.get(ref) or steps_in(candidate[0]) or family(candidate[0]) not in without:
            continue
        masked = _under(universe, candidate, ref, extents)
        if masked is not None:
            del found[candidate]
            found[masked[1]] = found.get(masked[1], 0) + own * masked[0]


def _unmasked(universe: Universe, kernel: Kernel) -> list[Any]:
    """For each mask on positions among a term's factors, the family of the term without it."""
    if is_step(kernel):
        return [family(universe.one)]
    rows = [(factor[0].id, factor[1]) for factor in kernel.factors]
    steps = [place for place, factor in enumerate(kernel.factors) if is_step(factor[0]) and factor[1] == 1]
    return [tuple(sorted(rows[:place] + rows[place + 1 :])) for place in steps]


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
