"""torchtitan's SimpleFSDP, which shards parameters by parametrisation: every gradient, replicated, sharded, hybrid, and with tensor parallelism."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torchtitan.experiments.graph_trainer.simple_fsdp import data_parallel

import graphguard as gg

BATCH, DIM, HIDDEN = 8, 6, 8
X = (gg.tensor(BATCH, DIM),)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def step(model: nn.Module, *groups):
    """Loss and gradients; the sums of what the ranks' parts of the mean give."""

    def run(x: torch.Tensor):
        ranks = 1
        for group in groups:
            ranks *= dist.get_world_size(group)
        loss = model(x).square().mean() / ranks
        loss.backward()
        loss = loss.detach().clone()
        for group in groups:
            dist.all_reduce(loss, group=group)
        return {"loss": loss, **{name: parameter.grad for name, parameter in model.named_parameters()}}

    return run


@gg.check(mesh={"dp": 2})
def replicated(mesh):
    model = data_parallel(Net(), mesh["dp"], "replicate")
    return gg.Refinement(step(Net()), step(model, mesh.get_group("dp")), X, in_relations={"dp": Shard(0)})


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def fully_sharded(mesh):
    model = data_parallel(Net(), mesh["dp"], "fully_shard")
    return gg.Refinement(step(Net()), step(model, mesh.get_group("dp")), X, in_relations={"dp": Shard(0)})


@gg.check(mesh={"replicate": 2, "shard": 2})
def hybrid(mesh):
    model = data_parallel(Net(), mesh["replicate", "shard"], "hybrid_shard")
    groups = (mesh.get_group("replicate"), mesh.get_group("shard"))
    placed = {"replicate": Shard(0), "shard": Shard(0)}
    return gg.Refinement(step(Net()), step(model, *groups), X, in_relations=placed)


@gg.check(mesh={"dp": 2, "tp": 2})
def with_tensor_parallelism(mesh):
    net = parallelize_module(Net(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    model = data_parallel(net, mesh["dp"], "fully_shard")
    return gg.Refinement(step(Net()), step(model, mesh.get_group("dp")), X, in_relations={"dp": Shard(0)})
