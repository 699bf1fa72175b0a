"""Numbers of a program's calls that came through float32, as ``tensor.item()`` and ``tolist()`` give them: what was rounded before says nothing.

Such a number has no short decimal, and is one that float32 holds, or lies within float32's rounding of one that the other program has in its place.  Calls on doubles keep their numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from graphguard.ir import Capture, Graph, Node
from graphguard.ir.written import single

_NEAR: Final = 2.0**-22
_WIDTH: Final = 2.0**-23  # of an even spread: what float32 rounds away
_SHORT: Final = 12  # digits of a number that was written by hand


def rounded_numbers(capture: Capture) -> frozenset[float]:
    """The numbers that only the specification or only the ranks have, and that float32 gave, or may have rounded away from one of the other's."""
    assert capture.spec is not None
    ours, theirs = (sorted(set(_numbers(graphs))) for graphs in ((capture.spec,), capture.ranks))
    return frozenset((*_beside(ours, theirs), *_beside(theirs, ours)))


def moved(node: Node, numbers: frozenset[float], generator: torch.Generator) -> Node:
    """The call with these numbers moved at random by as much as float32 rounds."""
    if not any(one in numbers for one in _floats((node.args, tuple(node.kwargs.values())))):
        return node

    def move(arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(move, arg))
        if not isinstance(arg, float) or arg not in numbers:
            return arg
        return arg * (1.0 + _WIDTH * (float(torch.rand((), generator=generator)) - 0.5))

    return replace(node, args=move(node.args), kwargs={name: move(arg) for name, arg in node.kwargs.items()})


def _numbers(graphs: Sequence[Graph]) -> Iterator[float]:
    for graph in graphs:
        for node in graph.nodes:
            yield from _floats((node.args, tuple(node.kwargs.values())))


def _floats(arg: Any) -> Iterator[float]:
    if isinstance(arg, tuple):
        if {*map(type, arg)} == {int}:  # the ranks of a group may be very many
            return
        for item in arg:
            yield from _floats(item)
    elif isinstance(arg, float) and math.isfinite(arg):
        yield arg


def _beside(numbers: list[float], others: list[float]) -> Iterator[float]:
    """The long numbers that are none of ``others``, and lie beside one of them or are in float32: a long number hardly is by chance."""
    for number in numbers:
        digits = repr(number).partition("e")[0].replace(".", "").replace("-", "").strip("0")
        if len(digits) <= _SHORT:
            continue
        place = bisect_left(others, number)
        near = others[max(0, place - 1) : place + 1]
        if number in near:
            continue
        if single(number) == number or any(abs(number - other) <= _NEAR * abs(other) for other in near):
            yield number
