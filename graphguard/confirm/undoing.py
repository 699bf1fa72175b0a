"""Operators backward on numbers: what their operands must be for their results to be given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphguard.ir import Node

_CELLS = 1 << 20  # comparisons of elements
_RESHAPED = frozenset(
    {
        "aten.view.default",
        "aten._unsafe_view.default",
        "aten.reshape.default",
        "aten.unsqueeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.default",
        "aten.clone.default",
        "aten.alias.default",
        "aten.detach.default",
        "aten.contiguous.default",
    }
)
_TURNED = frozenset({"aten.permute.default", "aten.transpose.int", "aten.t.default"})
_PUT_TOGETHER = frozenset({"aten.cat.default", "aten.stack.default"})
MOVED = _RESHAPED | _TURNED | _PUT_TOGETHER
_PRODUCTS = frozenset({"aten.mm.default", "aten.bmm.default"})


def undone(node: Node, want: torch.Tensor, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The operands of which an operator that only moves elements makes a tensor."""
    if node.op in _RESHAPED:
        return [want.reshape(operands[0].shape)]
    if node.op in _TURNED:
        return [_turned_back(node, want)]
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if node.op == "aten.stack.default":
        return list(want.unbind(dim))
    return list(want.split([operand.shape[dim] for operand in operands], dim))


def _turned_back(node: Node, want: torch.Tensor) -> torch.Tensor:
    if node.op == "aten.t.default":
        return want.t()
    if node.op == "aten.transpose.int":
        first, second = (int(str(arg)) for arg in node.args[1:3])
        return want.transpose(first, second)
    order = [int(str(arg)) % want.dim() for arg in node.args[1]] if isinstance(node.args[1], tuple) else []
    return want.permute([order.index(dim) for dim in range(want.dim())])


def part_wanted(
    want: torch.Tensor, source: torch.Tensor, close: float, only: int | None = None
) -> tuple[int, tuple[int, ...]] | None:
    """The dim of a tensor, and the places along it, that a wanted tensor consists of, in its order; None where there are none.

    A tensor of one dim less is one place.  Of places that are alike the one that follows the last is taken, else the first.
    """
    for dim in range(source.dim()) if only is None else (only,):
        rows = want.unsqueeze(dim) if want.dim() == source.dim() - 1 else want
        if rows.dim() != source.dim() or rows.dtype != source.dtype:
            return None
        others = [place for place in range(source.dim()) if place != dim]
        if any(rows.shape[place] != source.shape[place] for place in others):
            continue
        if (found := _found(_rows(rows, dim), _rows(source, dim), close)) is not None:
            return dim, found
    return None


def with_elements(whole: torch.Tensor, part: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """A tensor with other elements: those of these numbers, counted in order."""
    return whole.reshape(-1).index_copy(0, numbers.reshape(-1).long(), part.reshape(-1)).reshape(whole.shape)


def _rows(value: torch.Tensor, dim: int) -> torch.Tensor:
    return value.movedim(dim, 0).reshape(value.shape[dim], -1)


def _found(wanted: torch.Tensor, rows: torch.Tensor, close: float) -> tuple[int, ...] | None:
    """For every row the place of its like."""
    if not wanted.numel() or len(wanted) * rows.numel() > _CELLS:
        return None
    if wanted.dtype.is_floating_point:
        apart = (wanted[:, None] - rows[None]).abs() > close * (1 + rows[None].abs())
    else:
        apart = wanted[:, None] != rows[None]
    alike = ~apart.any(-1)
    found: list[int] = []
    for row in alike:
        places = row.nonzero().flatten().tolist()
        if not places:
            return None
        following = found[-1] + 1 if found else -1
        found.append(following if following in places else places[0])
    return tuple(found)


def operand_parts(
    op: str, want: torch.Tensor, result: torch.Tensor, operands: Sequence[torch.Tensor], close: float
) -> list[torch.Tensor] | None:
    """The parts of an operator's operands that give a part of its result; None where it is none, or no part of the operands gives it."""
    if want.dim() != result.dim() or (found := part_wanted(want, result, close)) is None:
        return None
    dim, places = found
    index = torch.tensor(places)
    if op in _PRODUCTS:
        first, second = operands
        rows, columns = result.dim() - 2, result.dim() - 1
        chosen_first = first if dim == columns else first.index_select(dim, index)
        return [chosen_first, second if dim == rows else second.index_select(dim, index)]
    if any(operand.dim() > result.dim() for operand in operands):
        return None
    parts = []
    for operand in operands:
        own = dim - (result.dim() - operand.dim())
        broadcast = own < 0 or operand.shape[own] == 1 != result.shape[dim]
        if not broadcast and operand.shape[own] != result.shape[dim]:
            return None
        parts.append(operand if broadcast else operand.index_select(own, index))
    return parts
