"""DeepSpeed (0.19): its engine with a small configuration, and a training step whose result is the parameters, gathered where ZeRO shards them.

A check is then a few lines, for :class:`graphguard.Same`::

    @gg.check(mesh={"dp": 2})
    def zero_2(mesh):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        engine = deepspeed.engine(model, optimizer, stage=2, batch=8 // mesh.size())
        return gg.Same(deepspeed.step(engine, lambda y: y.square().mean()), (gg.tensor(8, 6),), in_relations={"dp": Shard(0)})
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

os.environ.setdefault("DS_ACCELERATOR", "cuda")  # what a job on GPUs finds; on a CPU DeepSpeed builds an extension

import deepspeed


def engine(model: nn.Module, optimizer: torch.optim.Optimizer, *, stage: int, batch: int, **others: Any) -> Any:
    """DeepSpeed's engine under a stage of ZeRO, for ``batch`` rows a rank; ``others`` are entries of its configuration.  Gradients are not clipped unless these say so."""
    config = {
        "train_micro_batch_size_per_gpu": batch,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    made, *_ = deepspeed.initialize(model=model.cuda(), optimizer=optimizer, config={**config, **others})
    return made


def step(engine: Any, loss: Callable[[Any], torch.Tensor]) -> Callable[..., dict[str, Any]]:
    """A function of the model's inputs: the parameters after one step on the loss of what the model gives."""

    def run(*inputs: Any) -> dict[str, Any]:
        engine.backward(loss(engine(*inputs)))
        engine.step()
        parameters = dict(engine.module.named_parameters())
        sharded = engine.zero_optimization_partition_weights()
        with deepspeed.zero.GatheredParameters(list(parameters.values())) if sharded else nullcontext():
            return {name: each.clone() if sharded else each for name, each in parameters.items()}

    return run
