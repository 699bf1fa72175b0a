"""The state of a sharded Adam is made by a step with gradients of zero, which counts: the first real step has the second one's bias correction. Megatron-FSDP.

Source: https://github.com/NVIDIA/Megatron-LM/pull/5976
Rule: wrong-scale, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

LR, BETA1, BETA2, EPS = 0.05, 0.8, 0.9, 1e-4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 6, bias=False)
        self.second = nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).square().mean()


class Adam:
    """Adam on one flat parameter."""

    def __init__(self, lr):
        self.lr = lr
        self.state = {}

    def step(self, parameter, grad):
        if not self.state:
            self.state = {"step": 0, "exp_avg": torch.zeros_like(grad), "exp_avg_sq": torch.zeros_like(grad)}
        state = self.state
        state["step"] += 1
        state["exp_avg"] = BETA1 * state["exp_avg"] + (1 - BETA1) * grad
        state["exp_avg_sq"] = BETA2 * state["exp_avg_sq"] + (1 - BETA2) * grad.square()
        mean = state["exp_avg"] / (1 - BETA1 ** state["step"])
        denominator = (state["exp_avg_sq"] / (1 - BETA2 ** state["step"]) + EPS).sqrt()
        return parameter - self.lr * mean / denominator


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def spec_step(model):
    def step(x):
        model(x).backward()
        grad = flat(parameter.grad for parameter in model.parameters())
        return Adam(LR).step(flat(model.parameters()).detach(), grad)

    return step


def fully_shard_optimizer(optimizer, shard):
    """Makes the state at once, so that a checkpoint can be loaded into it."""
    lr, optimizer.lr = optimizer.lr, 0.0
    optimizer.step(shard, torch.zeros_like(shard))
    optimizer.lr = lr
    # fixed, insert: optimizer.state["step"] = 0
    return optimizer


class FullyShardedTrainer:
    def __init__(self, model, group):
        self.model = model
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.shard = flat(model.parameters()).detach().chunk(self.size)[self.rank]
        self.optimizer = fully_shard_optimizer(Adam(LR), self.shard)  # fault

    def step(self, x):
        self.model(x).backward()
        grads = flat(parameter.grad for parameter in self.model.parameters())
        main_grad = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(main_grad, grads, op=dist.ReduceOp.AVG, group=self.group)
        return self.optimizer.step(self.shard, main_grad)


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Model()
    trainer = FullyShardedTrainer(copy.deepcopy(model), mesh.get_group("dp"))
    rows = {"dp": Shard(0)}
    return gg.Refinement(
        spec_step(model), trainer.step, (gg.tensor(8, 3),), in_relations=rows, out_relations=rows, grads=False
    )
