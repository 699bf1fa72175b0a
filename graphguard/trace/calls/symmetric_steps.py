"""Operators on symmetric memory in the steps that they fuse, as PyTorch's own fallbacks have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.distributed_c10d import _resolve_process_group


def _gathered(x: torch.Tensor, group: str) -> torch.Tensor:
    ops = torch.ops._c10d_functional  # noqa: SLF001
    ranks = _resolve_process_group(group).size()
    return ops.wait_tensor(ops.all_gather_into_tensor(x.contiguous(), ranks, group))


def _scattered(x: torch.Tensor, reduce: str, group: str) -> torch.Tensor:
    ops = torch.ops._c10d_functional  # noqa: SLF001
    ranks = _resolve_process_group(group).size()
    return ops.wait_tensor(ops.reduce_scatter_tensor(x.contiguous(), reduce, ranks, group))


def _reduced(x: torch.Tensor, reduce: str, group: str) -> torch.Tensor:
    ops = torch.ops._c10d_functional  # noqa: SLF001
    return ops.wait_tensor(ops.all_reduce(x, reduce, group))


def _reduced_in_place(x: torch.Tensor, reduce: str, group: str) -> torch.Tensor:
    return x.copy_(_reduced(x, reduce, group))


def _gather_and_multiply(
    shard: torch.Tensor,
    matrices: list[torch.Tensor],
    gather_dim: int,
    group: str,
    *,
    return_A: bool = True,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Shards joined along a dim in rank order, and their products."""
    whole = _gathered(shard.movedim(gather_dim, 0), group).movedim(0, gather_dim)
    return (whole if return_A else None), [torch.matmul(whole, matrix) for matrix in matrices]


def _multiply_and_scatter(a: torch.Tensor, b: torch.Tensor, reduce: str, scatter_dim: int, group: str) -> torch.Tensor:
    """This rank's part, along a dim, of the products of all ranks reduced."""
    return _scattered(torch.matmul(a, b).movedim(scatter_dim, 0), reduce, group).movedim(0, scatter_dim)


STEPS: dict[str, Callable[..., Any]] = {
    "symm_mem::fused_all_gather_matmul": _gather_and_multiply,
    "symm_mem::fused_matmul_reduce_scatter": _multiply_and_scatter,
    "symm_mem::_low_contention_all_gather": _gathered,
    "symm_mem::_low_contention_reduce_scatter": _scattered,
    "symm_mem::one_shot_all_reduce": _reduced,
    "symm_mem::multimem_one_shot_all_reduce": _reduced,
    "symm_mem::two_shot_all_reduce_": _reduced_in_place,
    "symm_mem::multimem_all_reduce_": _reduced_in_place,
}
