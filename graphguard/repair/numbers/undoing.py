"""Operators backward on numbers: what their operands must be for their results to be given ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphguard.ir import Node
from graphguard.ops import aten, operators

Array = NDArray[np.int64]
_CELLS = 1 << 20  # comparisons of elements
_RESHAPED = operators(lambda op: op.moves in ("same", "view"))
_TURNED = frozenset({aten.permute.default, aten.transpose.int, aten.t.default})
_PUT_TOGETHER = operators(lambda op: op.moves == "join")
MOVED = _RESHAPED | _TURNED | _PUT_TOGETHER
_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default})


def undone(node: Node, want: Array, operands: Sequence[Array]) -> list[Array]:
    """The operands of which an operator that only moves elements makes a tensor."""
    if node.op in _RESHAPED:
        return [want.reshape(operands[0].shape), *operands[1:]]
    if node.op in _TURNED:
        return [_turned_back(node, want)]
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if node.op == aten.stack.default:
        return [np.squeeze(part, dim) for part in np.split(want, want.shape[dim], dim)]
    ends = np.cumsum([operand.shape[dim] for operand in operands])
    return np.split(want, ends[:-1], dim)


def _turned_back(node: Node, want: Array) -> Array:
    if node.op == aten.t.default:
        return want.T
    if node.op == aten.transpose.int:
        first, second = (int(str(arg)) for arg in node.args[1:3])
        return want.swapaxes(first, second)
    order = [int(str(arg)) % want.ndim for arg in node.args[1]] if isinstance(node.args[1], tuple) else []
    return want.transpose([order.index(dim) for dim in range(want.ndim)])


def part_wanted(want: Array, source: Array, only: int | None = None) -> tuple[int, tuple[int, ...]] | None:
    """The dim of a tensor, and the places along it, that a wanted tensor consists of, in its order; None where there are none.

    A tensor of one dim less is one place.  Of places that are alike the one that follows the last is taken, else the first.
    """
    for dim in range(source.ndim) if only is None else (only,):
        rows = np.expand_dims(want, dim) if want.ndim == source.ndim - 1 else want
        if rows.ndim != source.ndim:
            return None
        others = [place for place in range(source.ndim) if place != dim]
        if any(rows.shape[place] != source.shape[place] for place in others):
            continue
        if (found := _found(_rows(rows, dim), _rows(source, dim))) is not None:
            return dim, found
    return None


def with_elements(whole: Array, part: Array, numbers: Array) -> Array:
    """A tensor with other elements: those of these numbers, counted in order."""
    elements = whole.reshape(-1).copy()
    elements[numbers.reshape(-1)] = part.reshape(-1)
    return elements.reshape(whole.shape)


def _rows(value: Array, dim: int) -> Array:
    lines = np.moveaxis(value, dim, 0)
    return lines.reshape(len(lines), prod(lines.shape[1:]))


def _found(wanted: Array, rows: Array) -> tuple[int, ...] | None:
    """For every row the place of its like."""
    if not wanted.size or len(wanted) * rows.size > _CELLS:
        return None
    alike = (wanted[:, None] == rows[None]).all(-1)
    found: list[int] = []
    for row in alike:
        places = row.nonzero()[0].tolist()
        if not places:
            return None
        following = found[-1] + 1 if found else -1
        found.append(following if following in places else places[0])
    return tuple(found)


def operand_parts(op: str, want: Array, result: Array, operands: Sequence[Array]) -> list[Array] | None:
    """The parts of an operator's operands that give a part of its result; None where it is none, or no part of the operands gives it."""
    if want.ndim != result.ndim or (found := part_wanted(want, result)) is None:
        return None
    dim, places = found
    if op in _PRODUCTS:
        first, second = operands
        rows, columns = result.ndim - 2, result.ndim - 1
        chosen_first = first if dim == columns else first.take(places, dim)
        return [chosen_first, second if dim == rows else second.take(places, dim)]
    if any(operand.ndim > result.ndim for operand in operands):
        return None
    parts = []
    for operand in operands:
        own = dim - (result.ndim - operand.ndim)
        broadcast = own < 0 or operand.shape[own] == 1 != result.shape[dim]
        if not broadcast and operand.shape[own] != result.shape[dim]:
            return None
        parts.append(operand if broadcast else operand.take(places, own))
    return parts
