"""Vocab-parallel cross entropy, forward and backward by autograd. Maximum is each rank's own.

Rule: missing-reduction
"""
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, TOKENS, DIM, VOCAB, LR = 2, 5, 4, 15, 0.1


class AllReduce(torch.autograd.Function):
    """Sum in the forward pass, identity in the backward pass."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def vocab_parallel_cross_entropy(logits, target):
    rank, world = dist.get_rank(), dist.get_world_size()
    part = logits.shape[-1]
    top = logits.detach().max(-1).values  # fault
    # fixed, insert: dist.all_reduce(top, op=dist.ReduceOp.MAX)
    logits = logits - top[:, None]
    total = AllReduce.apply(logits.exp().sum(-1))
    first = rank * part
    outside = (target < first) | (target >= first + part)
    local = (target - first).masked_fill(outside, 0)
    picked = logits.gather(-1, local[:, None]).squeeze(-1).masked_fill(outside, 0.0)
    picked = AllReduce.apply(picked)
    return (total.log() - picked).mean()


def train(head, xs, targets):
    for step in range(STEPS):
        head = head.detach().requires_grad_()
        loss = F.cross_entropy(xs[step] @ head.t(), targets[step])
        loss.backward()
        head = head - LR * head.grad
    return loss.detach(), head.detach()


def train_tp(head, xs, targets):
    for step in range(STEPS):
        head = head.detach().requires_grad_()
        loss = vocab_parallel_cross_entropy(xs[step] @ head.t(), targets[step])
        loss.backward()
        head = head - LR * head.grad
    return loss.detach(), head.detach()


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        train,
        train_tp,
        inputs=(gg.tensor(VOCAB, DIM), gg.tensor(STEPS, TOKENS, DIM), gg.tensor(STEPS, TOKENS, dtype=torch.int64, high=VOCAB)),
        in_relations=({"tp": Shard(0)}, {}, {}),
        out_relations=("replicate", {"tp": Shard(0)}),
        grads=False,
    )
