"""Which way digits run: signs and origins that do not depend on how an expression was written.

A digit that moves along an axis of finite extent runs with it.  One that only moves along axes over all integers (positions under a mask, the places that a
convolution meets) could run either way from any origin, and ``[e == 0]`` is ``[-e == 0]``: here both are chosen by what the digit and its
neighbours touch, which is the same for every spelling.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from graphguard.relations.terms.kernels import UNBOUNDED, Kernel
from graphguard.relations.terms.parts import Part

_Colour = tuple[tuple[int, Any, int, int], ...]


def is_delta(kernel: Kernel) -> bool:
    """Whether a kernel says that an affine index is 0."""
    return kernel.kind == "function" and kernel.name == "eq0" and kernel.factors[0][0].kind == "iota"


def is_step(kernel: Kernel) -> bool:
    """Whether a kernel is a mask on positions."""
    return kernel.kind == "function" and kernel.name == "gt0" and kernel.factors[0][0].kind == "iota"


def grows_along(kernel: Kernel) -> int | None:
    """The axis of an index in the exponent of a kernel ``exp(rate * index)``; None of any other kernel."""
    if kernel.name != "exp" or kernel.kind != "function":
        return None
    inner = kernel.factors[0][0]
    if inner.kind == "iota":
        return 0
    if inner.kind != "product" or inner.reduced:
        return None
    indices = [factor for factor in inner.factors if factor[0].kind == "iota"]
    if len(indices) != 1 or indices[0][1] != 1 or indices[0][3] != (0,) or len(indices[0][4]) != 1:
        return None
    _, label, stride = indices[0][4][0]
    read = sum(step[1] == label for factor in inner.factors for step in factor[4])
    return label if stride == 1 and read == 1 else None


def orient(parts: list[Part], sizes: list[int], core: Set[int]) -> set[int]:
    """Turn digits and equations in place; the digits that were turned.  ``core`` digits stay: a closed function sees their order."""
    if not _runs_back(parts):
        return set()
    deltas = [part for part in parts if is_delta(part.kernel)]
    limited = {digit for part in parts for axis, digit, _ in part.expressions if part.kernel.shape[axis] != UNBOUNDED}
    turned = _turn(parts, sizes, limited - core, limited)
    colours = _colours(parts, limited) if deltas else {}
    for part in deltas:
        _turn_equation(part, colours)
    free = {digit for part in parts for _, digit, _ in part.expressions} - limited - core
    if free:
        turned |= _turn(parts, sizes, free, limited)
    return turned


def _runs_back(parts: list[Part]) -> bool:
    for part in parts:
        for step in part.expressions:
            if step[2] < 0:
                return True
    return False


def _turn(parts: list[Part], sizes: list[int], wanted: set[int], limited: set[int]) -> set[int]:
    """Reverse the digits, of those wanted, that run backwards where their direction is read."""
    colours = {} if wanted <= limited else _colours(parts, limited)  # which only free digits are compared by
    read: dict[int, tuple[Any, bool]] = {}
    for part in parts:
        for axis, digit, stride in part.expressions:
            if digit not in wanted:
                continue
            if digit in limited:
                if part.kernel.shape[axis] == UNBOUNDED:
                    continue
                key: tuple[Any, ...] = (part.kernel.id, axis, abs(stride))
            else:
                key = (is_delta(part.kernel), signature(part, colours), axis, abs(stride))
            old = read.get(digit)
            if old is None or key < old[0]:
                read[digit] = (key, stride < 0)
    turned = {digit for digit, (_, negative) in read.items() if negative and sizes[digit] < UNBOUNDED // 2}
    if turned:
        for part in parts:
            fresh = []
            for axis, digit, stride in part.expressions:
                if digit in turned:
                    part.offsets[axis] += stride * (sizes[digit] - 1)
                    stride = -stride
                fresh.append((axis, digit, stride))
            part.expressions = fresh
    return turned


def _turn_equation(part: Part, colours: dict[int, _Colour]) -> None:
    """Write ``e == 0`` so that the digit of the smallest colour counts upwards."""
    held = [(colours[digit], abs(stride), stride) for _, digit, stride in part.expressions if digit in colours]
    steps = held or [((), abs(stride), stride) for _, _, stride in part.expressions]
    if steps and min(steps, key=lambda step: step[:2])[2] < 0:
        part.offsets[0] = -part.offsets[0]
        part.expressions = [(axis, digit, -stride) for axis, digit, stride in part.expressions]


def _colours(parts: list[Part], limited: set[int]) -> dict[int, _Colour]:
    """What each digit with a finite axis touches, apart from equations."""
    seen: dict[int, list[tuple[int, Any, int, int]]] = {}
    for part in parts:
        for axis, digit, stride in part.expressions:
            if digit in limited and part.kernel.shape[axis] != UNBOUNDED:
                seen.setdefault(digit, []).append((part.kernel.id, part.payload, axis, abs(stride)))
    return {digit: tuple(sorted(places)) for digit, places in seen.items()}


def signature(part: Part, colours: dict[int, _Colour]) -> tuple[Any, ...]:
    """A name of a factor for comparisons: its kernel, and what the digits that move it touch."""
    return (part.kernel.id, tuple(sorted(colours.get(digit, ()) for _, digit, _ in part.expressions)))


def origin(parts: list[Part], digit: int) -> int:
    """Where to put the origin of a digit that only axes over all integers carry: at offset 0 of the first of them, equations last but for exponentials of an index, which begin anywhere (``growth``)."""
    places = [(part, axis, stride) for part in parts for axis, other, stride in part.expressions if other == digit]
    part, axis, stride = places[0]
    if len(places) > 1:
        limited = {d for part in parts for axis, d, _ in part.expressions if part.kernel.shape[axis] != UNBOUNDED}
        colours = _colours(parts, limited)

        def rank(place: tuple[Part, int, int]) -> tuple[Any, ...]:
            part, axis, stride = place
            grows = grows_along(part.kernel) == axis
            return (
                grows,
                is_delta(part.kernel),
                abs(stride) != 1,
                signature(part, colours),
                len(part.expressions),
                axis,
            )

        part, axis, stride = min(places, key=rank)
    return part.offsets[axis] // stride
