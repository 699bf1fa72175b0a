"""DeepSpeed's engine as it is: one training step under ZeRO's stages, whose result is the parameters."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cuda")  # what a job on GPUs finds; on a CPU DeepSpeed builds an extension

import deepspeed
import torch
from torch import nn
from torch.distributed.tensor import Shard
from torch.nn import functional as F

import graphguard as gg

BATCH, DIM, HIDDEN = 8, 6, 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


def optimiser_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def sequential(model: nn.Module):
    optimiser = optimiser_of(model)

    def run(x: torch.Tensor):
        model(x).square().mean().backward()
        optimiser.step()
        return dict(model.named_parameters())

    return run


def engine(stage: int, ranks: int, **others):
    """DeepSpeed's engine; unless it is told, it clips gradients to a norm of one."""
    model = Net().cuda()
    config = {
        "train_micro_batch_size_per_gpu": BATCH // ranks,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    made, *_ = deepspeed.initialize(model=model, optimizer=optimiser_of(model), config={**config, **others})
    return model, made


def step(model: nn.Module, made, *, whole: bool):
    """The parameters after one step; under stage 3 (``whole`` false) they are gathered."""

    def run(x: torch.Tensor):
        made.backward(made(x).square().mean())
        made.step()
        if whole:
            return dict(model.named_parameters())
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return {name: p.clone() for name, p in model.named_parameters()}

    return run


X = (gg.tensor(BATCH, DIM),)
DATA = {"dp": Shard(0)}


def zero(stage: int, mesh) -> gg.Refinement:
    run = step(*engine(stage, mesh.size()), whole=stage < 3)
    return gg.Refinement(sequential(Net()), run, X, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def without_zero(mesh):
    return zero(0, mesh)


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def optimiser_states(mesh):
    return zero(1, mesh)


@gg.check(mesh={"dp": 2})
def gradients(mesh):
    return zero(2, mesh)


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def parameters(mesh):
    return zero(3, mesh)
