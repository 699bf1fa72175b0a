"""A DTensor whose shard moves to another dim: on GPUs one exchange, on CPUs a gather."""

import pytest
import torch
from torch.distributed.tensor import DTensor, Shard

import graphguard as gg


def softmax(mesh, device, dim):
    def run(x):
        whole = DTensor.from_local(x.to(device), mesh, [Shard(0)], run_check=False)
        moved = whole.redistribute(placements=[Shard(1)]).to_local()
        return DTensor.from_local(torch.softmax(moved, 0), mesh, [Shard(dim)], run_check=False)

    return run


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("dim", "wanted"), [(1, gg.Verdict.REFINES), (0, gg.Verdict.BROKEN)])
def test_a_shard_moves(device, dim, wanted):
    report = gg.verify(
        lambda x: torch.softmax(x.to(device), 0),
        lambda mesh: softmax(mesh, device, dim),
        (gg.tensor(4, 6, 8),),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(0)},),
    )
    assert report.verdict is wanted
