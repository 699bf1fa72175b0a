"""Functional training, weights in a dict. The loss is divided by world size AND gradients are averaged with AVG.

Rule: wrong-scale
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, LR = 3, 8, 5, 3, 0.1


def forward(params, x):
    h = torch.tanh(x @ params["w1"] + params["b1"])
    return h @ params["w2"] + params["b2"]


def train(w1, b1, w2, b2, xs, ys):
    params = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    for step in range(STEPS):
        params = {k: v.detach().requires_grad_() for k, v in params.items()}
        loss = (forward(params, xs[step]) - ys[step]).square().mean()
        grads = torch.autograd.grad(loss, list(params.values()))
        params = {k: v.detach() - LR * g for (k, v), g in zip(params.items(), grads)}
    return params


def train_dp(w1, b1, w2, b2, xs, ys):
    world = dist.get_world_size()
    params = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    for step in range(STEPS):
        params = {k: v.detach().requires_grad_() for k, v in params.items()}
        loss = (forward(params, xs[step]) - ys[step]).square().mean()
        loss = loss / world  # fixed:
        grads = torch.autograd.grad(loss, list(params.values()))
        for g in grads:
            dist.all_reduce(g, op=dist.ReduceOp.AVG)  # fault
        params = {k: v.detach() - LR * g for (k, v), g in zip(params.items(), grads)}
    return params


@gg.check(mesh={"dp": 2})
def check(mesh):
    return gg.Refinement(
        train,
        train_dp,
        inputs=(
            gg.tensor(DIM, HIDDEN), gg.tensor(HIDDEN), gg.tensor(HIDDEN, 1), gg.tensor(1),
            gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, 1),
        ),
        in_relations=({}, {}, {}, {}, {"dp": Shard(1)}, {"dp": Shard(1)}),
        out_relations="replicate",
        grads=False,
    )
