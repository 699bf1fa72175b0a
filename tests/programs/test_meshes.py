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
