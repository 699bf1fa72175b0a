"""Vocabulary-parallel cross entropy of a step of training.

The mistake: a label equal to 'end' counts on two ranks: the mask must be `labels < end`.

Rule: wrong-relation, wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

DIM, VOCAB, LR = 5, 8, 0.2


class ReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def vocab_range(group):
    size = VOCAB // dist.get_world_size(group)
    start = dist.get_rank(group) * size
    return start, start + size


def vocab_parallel_cross_entropy(logits, labels, group):
    start, end = vocab_range(group)
    inside = (labels >= start) & (labels <= end)  # fixed: inside = (labels >= start) & (labels < end)
    local = (labels - start).clamp(0, logits.shape[-1] - 1)
    picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * inside  # fault
    target = ReduceSum.apply(picked, group)
    log_z = ReduceSum.apply(logits.exp().sum(-1), group).log()
    return (log_z - target).mean()


class Head(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        world = 1 if group is None else dist.get_world_size(group)
        self.norm = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB // world, bias=False)

    def forward(self, hidden, labels):
        hidden = self.norm(hidden)
        if self.group is None:
            return F.cross_entropy(self.lm_head(hidden), labels)
        return vocab_parallel_cross_entropy(self.lm_head(CopyIn.apply(hidden, self.group)), labels, self.group)


def step_of(model):
    def step(hidden, labels):
        loss = model(hidden, labels)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
        return {"loss": loss.detach(), **dict(model.named_parameters())}

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(
        step_of(Head()),
        step_of(Head(mesh.get_group("tp"))),
        (gg.tensor(6, DIM), gg.tensor(6, dtype=torch.int64, high=VOCAB)),
        out_relations={"loss": "replicate", "norm.*": {"tp": Replicate()}, "lm_head.weight": {"tp": Shard(0)}},
        grads=False,
    )
