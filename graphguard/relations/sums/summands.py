"""Windows of one reduction: which of them select all that a mask can, and several as a step function."""

from __future__ import annotations

from typing import Any

from graphguard.relations.terms.kernels import UNBOUNDED, Factor, Kernel, Number, Window


def mask_axes(kernel: Kernel) -> list[tuple[int, tuple[int, int]]]:
    """Reduced axes of a product that only select by the column of one one-hot, each with the window that selects all."""
    known = kernel.masks
    if known is None:
        known = kernel.masks = _find_mask_axes(kernel)
    return known


def _find_mask_axes(kernel: Kernel) -> list[tuple[int, tuple[int, int]]]:
    free = len(kernel.shape)
    uses: dict[int, list[tuple[Factor, int, int]]] = {}
    for factor in kernel.factors:
        for axis, label, stride in factor[4]:
            if label >= free:
                uses.setdefault(label, []).append((factor, axis, stride))
    out = []
    for label, places in sorted(uses.items()):
        (part, power, _, base, _), axis, stride = places[0]
        column = part.kind == "onehot" and power == 1 and axis == len(part.shape) - 1 and stride == 1
        if column and len(places) == 1 and sum(1 for other, _, _ in places[0][0][4] if other == axis) == 1:
            low, high = part.factors[0][0].range or (-UNBOUNDED // 2, UNBOUNDED // 2)
            out.append((label - free, (low - base[axis], high - base[axis])))
    return out


def stepped(windows: dict[Window, Number]) -> dict[Window, Number]:
    """Coefficients as a step function over each reduced axis in turn: disjoint windows, none of which could be joined."""
    axes = len(next(iter(windows)))
    changed = True
    while changed and len(windows) > 1:
        changed = False
        for axis in range(axes):
            rows: dict[tuple[Any, ...], list[tuple[int, int, Number]]] = {}
            for window, coefficient in windows.items():
                rows.setdefault((*window[:axis], *window[axis + 1 :]), []).append((*window[axis], coefficient))
            fresh: dict[Window, Number] = {}
            for rest, steps in rows.items():
                for low, high, coefficient in _steps(steps) if len(steps) > 1 else steps:
                    fresh[(*rest[:axis], (low, high), *rest[axis:])] = coefficient
            if fresh != windows:
                changed = True
                windows = fresh
    return windows


def _steps(steps: list[tuple[int, int, Number]]) -> list[tuple[int, int, Number]]:
    change: dict[int, Number] = {}
    for low, high, coefficient in steps:
        change[low] = change[low] + coefficient if low in change else coefficient
        change[high] = change[high] - coefficient if high in change else -coefficient
    out: list[tuple[int, int, Number]] = []
    level: Number = 0
    start = 0
    for place in sorted(change):
        if change[place] == 0:
            continue
        if level:
            out.append((start, place, level))
        level += change[place]
        start = place
    return out
