"""accelerate (1): a training step over several batches, as its loop takes it.

A check is then a few lines, for :class:`graphguard.Same`::

    @gg.check(mesh={"dp": 2})
    def accumulated(mesh):
        model = Net()
        made = Accelerator(cpu=True, gradient_accumulation_steps=2)
        step = accelerate.step(made, model, torch.optim.AdamW(model.parameters(), lr=0.1), lambda y: y.square().mean())
        return gg.Same(step, (gg.tensor(4, 8),) * 2, in_relations={"dp": Shard(0)})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import graphguard as gg


def gradients(
    accelerator: Any, model: nn.Module, loss: Callable[[Any], torch.Tensor]
) -> Callable[[Any], dict[str, Any]]:
    """A function of a batch: the ranks' mean loss and the gradients, as accelerate works them out."""
    prepared = accelerator.prepare(model)

    def run(batch: Any) -> dict[str, Any]:
        found = loss(prepared(batch))
        accelerator.backward(found)
        return {"loss": accelerator.reduce(found.detach(), "mean"), "gradients": gg.gradients(prepared)}

    return run


def step(
    accelerator: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Any], torch.Tensor],
    clip: float | None = None,
) -> Callable[..., dict[str, Any]]:
    """A function of batches: the parameters after accelerate's loop over them, with gradients clipped to a norm of ``clip`` where they are synchronised."""
    model, optimizer = accelerator.prepare(model, optimizer)

    def run(*batches: Any) -> dict[str, Any]:
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model(batch)))
                if accelerator.sync_gradients and clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
        return dict(model.named_parameters())

    return run
