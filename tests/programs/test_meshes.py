"""Meshes that a program makes while it runs, of literals or of another mesh's own tensor."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import graphguard as gg


def of_literals(_: Any) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("outer", "inner"))


def of_a_mesh(mesh: DeviceMesh) -> DeviceMesh:
    return DeviceMesh("cpu", mesh.mesh.view(-1, 2), mesh_dim_names=("outer", "inner"))


@pytest.mark.parametrize("make", [of_literals, of_a_mesh])
@pytest.mark.parametrize(("axis", "right"), [("inner", True), ("outer", False)])
def test_a_mesh_made_while_the_program_runs(make: Any, axis: str, right: bool) -> None:
    """The first ranks of the mesh hold the input, the others hold none of it."""

    def impl(mesh: DeviceMesh) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            y = x if mesh.get_local_rank() in (0, 2) else torch.zeros_like(x)
            y = y.clone()
            dist.all_reduce(y, group=make(mesh).get_group(axis))
            return y

        return run

    found = gg.verify(lambda x: x * 1, impl, (gg.tensor(4, 6),), mesh={"dp": 4}, out_relations="replicate", grads=False)
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN), found.diagnostics


def in_blocks(swapped: bool = False) -> Any:
    """A product in blocks of rows and columns (SUMMA) on ranks that are one axis: the row's blocks go round, the column's as well."""
    rank = dist.get_rank()
    row, column = divmod(rank, 2)
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])][row]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])][column]

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a.chunk(2, 0)[row].chunk(2, 1)[column]
        b = b.chunk(2, 0)[row].chunk(2, 1)[column]
        out = torch.zeros(a.shape[0], b.shape[1])
        for step in range(2):
            left, right = a.clone(), b.clone()
            dist.broadcast(left, group_src=step, group=rows)
            dist.broadcast(right, group_src=1 - step if swapped else step, group=columns)
            torch.addmm(out, left, right, out=out)
        return out

    return run


@pytest.mark.parametrize("swapped", [False, True])
def test_blocks_of_two_dims_over_one_axis(swapped: bool) -> None:
    inputs = (gg.tensor(4, 8), gg.tensor(8, 12))
    found = gg.verify(torch.matmul, lambda _: in_blocks(swapped), inputs, mesh={"tp": 4})
    assert found.verdict is (gg.Verdict.BROKEN if swapped else gg.Verdict.REFINES), found.diagnostics
    if not swapped:
        assert str(found.relations["out"]) == "concat(concat(out@0, out@1; dim=1), concat(out@2, out@3; dim=1); dim=0)"
