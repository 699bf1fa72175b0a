"""Vocabulary-parallel cross entropy with a z-loss, forward and backward by hand as in Megatron.

The mistake: 'lse' is the logsumexp of the own part of the vocabulary: a part over 'tp' that is used as if it were the whole.

Rule: missing-reduction, nonlinear-on-partial
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

VOCAB, DIM, Z_LOSS, LR = 8, 5, 0.01, 0.1


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def loss_of(logits, labels):
    log_z = logits.logsumexp(-1)
    target = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (log_z - target + Z_LOSS * log_z.square()).mean()


def vocab_parallel_loss(logits, labels, group):
    rank, size = dist.get_rank(group), logits.shape[-1]
    local = labels - rank * size
    inside = (local >= 0) & (local < size)
    picked = logits.gather(-1, local.clamp(0, size - 1).unsqueeze(-1)).squeeze(-1) * inside
    target = ReduceFromTP.apply(picked, group)
    sum_exp = ReduceFromTP.apply(logits.exp().sum(-1), group)
    log_z = sum_exp.log()
    z_loss = Z_LOSS * logits.logsumexp(-1).square()  # fixed: z_loss = Z_LOSS * log_z.square()
    return (log_z - target + z_loss).mean()


class Head(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        world = 1 if group is None else dist.get_world_size(group)
        self.norm = nn.LayerNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB // world, bias=False)

    def forward(self, hidden, labels):
        hidden = self.norm(hidden)
        if self.group is None:
            return loss_of(self.output(hidden), labels)
        return vocab_parallel_loss(self.output(CopyToTP.apply(hidden, self.group)), labels, self.group)


def step_of(model):
    def step(hidden, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        model(hidden, labels).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(
        step_of(Head()),
        step_of(Head(mesh.get_group("tp"))),
        (gg.tensor(3, 4, DIM), gg.tensor(3, 4, dtype=torch.int64, high=VOCAB)),
        out_relations={"norm.*": {"tp": Replicate()}, "output.weight": {"tp": Shard(0)}},
        grads=False,
    )
