"""How kernels are looked at: the digits that move their labels, and the windows of their sums, run by run and where masks on positions hold.

A sum over several runs of one axis (chunks of a shard, some of them mirrored) may have its masks decided in each run by itself; in what stands for all of them they are open.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from graphguard.relations.sums.products import compose
from graphguard.relations.terms.kernels import Expression, Factor, Kernel, Universe
from graphguard.relations.terms.orientation import is_step

_RUNS: Final = 64  # of one sum that are written down each by itself


@dataclass(frozen=True, slots=True)
class View:
    """Where a kernel's labels start, and the digits with their strides that move them, of these extents."""

    origins: tuple[int, ...]
    steps: tuple[Expression, ...]
    sizes: tuple[int, ...]

    def wider(self, window: Sequence[tuple[int, int]]) -> View:
        """The view of all labels, reduced ones included, each of which is one digit more."""
        first, count = len(self.origins), len(self.sizes)
        steps = tuple((first + place, count + place, 1) for place in range(len(window)))
        sizes = tuple(high - low for low, high in window)
        return View((*self.origins, *(low for low, _ in window)), (*self.steps, *steps), (*self.sizes, *sizes))

    def of(self, factor: Factor) -> View:
        """The view of a factor of the kernel."""
        digits: list[list[tuple[int, int]]] = [[] for _ in self.origins]
        for label, digit, stride in self.steps:
            digits[label].append((digit, stride))
        moved, composed = compose(factor[3], factor[4], list(self.origins), digits)
        return View(tuple(moved), tuple(composed), self.sizes)


def positional(universe: Universe, kernel: Kernel) -> bool:
    """Whether positions, or elements of a known table, are part of a kernel."""
    if kernel.kind in ("iota", "literal"):
        return True
    key = ("positions", kernel.id)
    known: Any = universe.memo.get(key)
    if known is None:
        known = any(positional(universe, factor[0]) for factor in kernel.factors)
        universe.memo[key] = known
    return bool(known)


def _strided(factors: Sequence[Factor], free: int) -> set[int]:
    """The reduced labels that move along an axis of a factor in larger steps than another reduced label: each of their values is a run of its own."""
    found: set[int] = set()
    for factor in factors:
        along: dict[int, list[tuple[int, int]]] = {}
        for axis, label, stride in factor[4]:
            if label >= free:
                along.setdefault(axis, []).append((abs(stride), label))
        for steps in along.values():
            finest = min(steps)[0]
            found.update(label for stride, label in steps if stride > finest)
    return found


def runs(factors: Sequence[Factor], window: Sequence[tuple[int, int]], free: int) -> list[list[tuple[int, int]]]:
    """A window as windows in which every axis is one run; the window itself where there are too many."""
    labels = sorted(label - free for label in _strided(factors, free))
    if prod(window[label][1] - window[label][0] for label in labels) > _RUNS:
        return [list(window)]
    found = []
    for place in itertools.product(*(range(*window[label]) for label in labels)):
        run = list(window)
        for label, at in zip(labels, place, strict=True):
            run[label] = (at, at + 1)
        found.append(run)
    return found


def where_held(
    factors: Sequence[Factor], window: Sequence[tuple[int, int]], view: View
) -> list[tuple[int, int]] | None:
    """The part of a window on which masks on positions may be 1 somewhere; None where there is none."""
    spans, count = list(window), len(view.sizes)
    for factor in factors:
        if factor[1] != 1 or not is_step(factor[0]):
            continue
        own, sign = view.wider(spans).of(factor), 1 if factor[0].factors[0][1] > 0 else -1
        steps: dict[int, int] = {}
        for _, digit, stride in own.steps:
            steps[digit] = steps.get(digit, 0) + sign * stride
        start = sign * own.origins[0]
        most = {digit: max(0, stride * (own.sizes[digit] - 1)) for digit, stride in steps.items()}
        if start + sum(most.values()) <= 0:
            return None
        for digit, stride in steps.items():
            if digit >= count and stride:
                others = sum(most.values()) - most[digit]
                held = above_zero(start + others, stride, own.sizes[digit])
                low = spans[digit - count][0]
                spans[digit - count] = (low + held[0], low + held[-1] + 1)
                if held[0] > 0:  # the digit starts later
                    start += stride * held[0]
                most[digit] = max(0, stride * (len(held) - 1))
                own = view.wider(spans).of(factor)
    return spans


def in_runs(universe: Universe, kernel: Kernel) -> bool:
    """Whether a kernel, or what it is made of, is a sum over several runs of one axis, with positions in it."""
    if not kernel.factors or not positional(universe, kernel):
        return False
    key = ("in runs", kernel.id)
    known: Any = universe.memo.get(key)
    if known is None:
        known = (kernel.kind == "product" and bool(_strided(kernel.factors, len(kernel.shape)))) or any(
            in_runs(universe, factor[0]) for factor in kernel.factors
        )
        universe.memo[key] = known
    return bool(known)


def mask_along(factor: Factor, view: View, count: int) -> tuple[int | None, range]:
    """The reduced label, one of the digits from ``count`` on, along which a factor is a mask by itself, and where it holds; None where it is no such mask."""
    kernel, power = factor[:2]
    if power != 1 or not is_step(kernel):
        return None, range(0)
    own = view.of(factor)
    if len(own.steps) != 1 or own.steps[0][1] < count:
        return None, range(0)
    ((_, digit, stride),) = own.steps
    positive = kernel.factors[0][1] > 0
    start, step = (own.origins[0], stride) if positive else (-own.origins[0], -stride)
    return digit - count, above_zero(start, step, own.sizes[digit])


def above_zero(start: int, step: int, size: int) -> range:
    """Where ``start + step * at`` is above zero, of ``size`` places, which may be without end."""
    if step > 0:
        return range(min(size, max(0, -start // step + 1)), size)
    return range(max(0, min(size, -(start // step))))
