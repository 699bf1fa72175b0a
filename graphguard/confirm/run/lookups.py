"""Look-ups and their gradients on numbers: a position outside the table, which torch refuses, gives no number.

Only indexing by brackets counts positions below zero from the end; for all other look-ups they are outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from graphguard.ir import Node, Var
from graphguard.ops import aten


def _inside(index: torch.Tensor | None, extent: int, low: int = 0) -> torch.Tensor:
    if index is None or index.dtype == torch.bool:
        return torch.ones((), dtype=torch.bool)
    return (index < extent) & (index >= low)


def _look_up(
    x: torch.Tensor,
    indices: list[torch.Tensor | None],
    inside: list[torch.Tensor],
    run: Callable[[torch.Tensor, list[torch.Tensor | None]], torch.Tensor],
) -> torch.Tensor:
    if all(bool(flags.all()) for flags in inside) or x.dtype != torch.float64:
        return run(x, indices)
    safe = [
        i if i is None or i.dtype == torch.bool else torch.where(ok, i, 0)
        for i, ok in zip(indices, inside, strict=True)
    ]
    found = run(x, safe)
    known = functools.reduce(torch.logical_and, inside)
    if indices[0] is not None:  # a look-up of the first dims: what follows are whole rows
        known = known.reshape(*known.shape, *(1,) * (found.dim() - known.dim()))
    return torch.where(known, found, torch.nan)


def _index(x: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor:
    inside = [_inside(i, n, -n) for i, n in zip(indices, x.shape, strict=False)]
    return _look_up(x, indices, inside, torch.ops.aten.index.Tensor)


def _embedding(table: torch.Tensor, index: torch.Tensor, *_: Any) -> torch.Tensor:
    inside = _inside(index, table.shape[0])
    if table.dtype != torch.float64 and not inside.all():
        raise IndexError("index out of range in a table of whole numbers")
    return _look_up(table, [index], [inside], torch.ops.aten.index.Tensor)


def _gather(x: torch.Tensor, dim: int, index: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    inside = _inside(index, x.shape[dim] if x.dim() else 1)

    def run(table: torch.Tensor, found: list[torch.Tensor | None]) -> torch.Tensor:
        assert found[0] is not None
        return torch.gather(table, dim, found[0])

    return _look_up(x, [index], [inside], run)


def _scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Zero that is added outside changes nothing, as where a mask stopped the gradient of a look-up; anything else leaves no number on its line."""
    inside = _inside(index, x.shape[dim] if x.dim() else 1)
    if x.dtype != torch.float64 or inside.all():
        return torch.ops.aten.scatter_add(x, dim, index, src)
    added = src[tuple(slice(n) for n in index.shape)]
    known = torch.where(inside, added, 0)
    out = torch.ops.aten.scatter_add(x, dim, torch.where(inside, index, 0), known)
    lost = (~inside & (added != 0)).any(dim, keepdim=True)
    corner = tuple(slice(None) if d == dim % x.dim() else slice(n) for d, n in enumerate(lost.shape))
    out[corner] = torch.where(lost, torch.nan, out[corner])
    return out


def _embedding_gradient(
    grad: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    inside = _inside(indices, rows)
    run = torch.ops.aten.embedding_dense_backward
    if grad.dtype != torch.float64 or inside.all():
        return run(grad, indices, rows, padding, by_frequency)
    known = torch.where(inside.unsqueeze(-1), grad, 0)
    out = run(known, torch.where(inside, indices, 0), rows, padding, by_frequency)
    return out if bool((known == grad).all()) else torch.full_like(out, torch.nan)


LOOKUPS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    aten.index.Tensor: _index,
    aten.embedding.default: _embedding,
    aten.embedding_dense_backward.default: _embedding_gradient,
    aten.gather.default: _gather,
    aten.scatter_add.default: _scatter_add,
}


def is_outside(node: Node, values: Mapping[Var, torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
    """Whether a call looks up what its table does not have: its result lacks numbers that are in the table."""
    table = node.args[0] if node.op in LOOKUPS else None
    if not isinstance(table, Var) or not results[0].dtype.is_floating_point:
        return False
    return bool(results[0].isnan().any()) and not any(bool(values[each].isnan().any()) for each in node.operands())
