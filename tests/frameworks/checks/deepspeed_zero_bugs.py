"""A natural mistake with DeepSpeed's engine: it takes the mean over ranks itself."""

import torch
from deepspeed_zero import DATA, Net, X, engine
from torch import nn

import graphguard as gg


def sequential(model: nn.Module):
    def run(x: torch.Tensor):
        model(x).square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters()}

    return run


@gg.check(mesh={"dp": 2})
def divided_twice(mesh):
    model, made = engine(0, 2)

    def run(x: torch.Tensor):
        loss = made(x).square().mean() / 2  # the mistake
        made.backward(loss)
        return {name: p.grad for name, p in model.named_parameters()}

    return gg.Refinement(sequential(Net()), run, X, in_relations=DATA)
