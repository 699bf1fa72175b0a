"""Collectives on symmetric memory, products fused with them, and groups cut out of others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as memory
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS, WIDTH, RANKS = 4, 6, 2
X = (gg.tensor(ROWS, WIDTH), gg.tensor(WIDTH, WIDTH))
PART = {"tp": Shard(0)}


def verdict(spec: Callable[..., Any], impl: Callable[..., Any], **relations: Any) -> Any:
    relations = {"out_relations": "replicate"} | relations
    return gg.verify(
        spec, lambda mesh: lambda *given: impl(mesh.get_group("tp"), *given), X, mesh={"tp": RANKS}, **relations
    )


def reduced(group: Any, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    shared = memory.empty(ROWS, WIDTH, dtype=x.dtype, device="cuda")
    handle = memory.rendezvous(shared, group.group_name)
    shared.copy_(x)
    handle.barrier()
    return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group.group_name)


def reduced_in_place(group: Any, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    shared = memory.empty(ROWS, WIDTH, dtype=x.dtype, device="cuda")
    memory.rendezvous(shared, group)
    shared.copy_(x)
    torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group.group_name)
    return shared


def unused(group: Any, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    reduced(group, x, _)
    return x


@pytest.mark.parametrize("impl", [reduced, reduced_in_place])
def test_reductions_in_symmetric_memory(impl: Callable[..., Any]) -> None:
    assert verdict(lambda x, _: x * RANKS, impl).verdict is gg.Verdict.REFINES


def test_a_result_that_nobody_uses() -> None:
    assert verdict(lambda x, _: x * RANKS, unused).verdict is gg.Verdict.BROKEN


@pytest.mark.parametrize("dim", [0, 1])
def test_gathering_before_a_product(dim: int) -> None:
    def impl(group: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mine = x.chunk(RANKS, dim)[group.rank()].contiguous()
        return torch.ops.symm_mem.fused_all_gather_matmul(mine, [w], dim, group.group_name)[1][0]

    assert verdict(lambda x, w: x @ w, impl).verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(("reduce", "right"), [("avg", True), ("sum", False)])
def test_scattering_after_a_product(reduce: str, right: bool) -> None:
    def impl(group: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w, reduce, 0, group.group_name)

    found = verdict(lambda x, w: x @ w, impl, out_relations=PART)
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


def test_other_ranks_memory_is_out_of_reach() -> None:
    def impl(group: Any, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        handle = memory.rendezvous(memory.empty(ROWS, WIDTH, dtype=x.dtype, device="cuda"), group)
        return handle.get_buffer(1, (ROWS, WIDTH), x.dtype)

    found = verdict(lambda x, _: x, impl)
    assert found.diagnostics[0].message.startswith("'get_buffer' of symmetric memory reaches into other ranks' memory")


@pytest.mark.parametrize("parts", [[[0, 1]], [[0], [1]]])
def test_groups_cut_out_of_another(parts: list[list[int]]) -> None:
    def impl(_: Any, x: torch.Tensor, __: torch.Tensor) -> torch.Tensor:
        x = x.cuda()
        dist.all_reduce(x, group=dist.split_group(split_ranks=parts))
        return x

    right = len(parts) == 1
    assert verdict(lambda x, _: x * RANKS, impl).verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)
