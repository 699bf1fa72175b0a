"""accelerate, unmodified: models and optimisers that it prepares, gradients over several batches, clipping."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

X = gg.tensor(4, 8)
ROWS = {"dp": Shard(0)}


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def whole_step():
    """Loss and gradients of one process."""
    model = MLP()

    def run(x):
        loss = model(x).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def prepared_step(accelerator):
    """Loss and gradients as accelerate works them out."""
    model = accelerator.prepare(MLP())

    def run(x):
        loss = model(x).square().mean()
        accelerator.backward(loss)
        mean = accelerator.reduce(loss.detach(), "mean")
        return {"loss": mean, **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"dp": 2})
def distributed(mesh):
    return gg.Refinement(whole_step(), prepared_step(Accelerator(cpu=True)), (X,), in_relations=ROWS)


@gg.check(mesh={"dp": 2})
def fully_sharded(mesh):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    return gg.Refinement(
        whole_step(), prepared_step(Accelerator(cpu=True, fsdp_plugin=plugin)), (X,), in_relations=ROWS
    )


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def one_batch(model, optimiser):
    """A step on two batches at once."""

    def run(x, y):
        model(torch.cat([x, y])).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return dict(model.named_parameters())

    return run


def two_batches(accelerator, model, optimiser):
    """A step on two batches in turn; the optimiser steps with the second."""
    model, optimiser = accelerator.prepare(model, optimiser)

    def run(x, y):
        for batch in (x, y):
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                optimiser.zero_grad()
        return dict(model.named_parameters())

    return run


@gg.check(mesh={"dp": 2})
def accumulated(mesh):
    whole, parts = MLP(), MLP()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    return gg.Refinement(
        one_batch(whole, adamw(whole)), two_batches(accelerator, parts, adamw(parts)), (X, X), in_relations=ROWS
    )
