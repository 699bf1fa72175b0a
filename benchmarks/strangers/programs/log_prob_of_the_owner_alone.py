"""The token's log-probability is taken on the rank that has the token and zero elsewhere, then summed: the other ranks' logits get no gradient. ms-swift's GRPO.

Source: https://github.com/modelscope/ms-swift/pull/9947
Rule: wrong-relation, gradient-not-reduced
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, VOCABULARY = 4, 3, 6


class CopyToTensorModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTensorModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def policy_loss(log_probs, old_log_probs, advantages):
    return -((log_probs - old_log_probs).exp() * advantages).mean()


def spec_step(hidden, weight, labels, old_log_probs, advantages):
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    log_probs = (hidden @ weight.t()).log_softmax(-1)
    log_probs = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    policy_loss(log_probs, old_log_probs, advantages).backward()
    return {"log_probs": log_probs.detach(), "hidden": hidden.grad, "weight": weight.grad}


class VocabUtility:
    @staticmethod
    def vocab_range_from_per_partition_vocab_size(size, rank):
        return rank * size, (rank + 1) * size


class MegatronGRPOTrainer:
    def __init__(self, tp_group):
        self.tp_group = tp_group
        self.rank = dist.get_rank(tp_group)

    def reduce(self, x):
        return ReduceFromTensorModelParallelRegion.apply(x, self.tp_group)

    def log_normalizer(self, logits):
        """Of all parts of the vocabulary."""
        highest = logits.detach().amax(-1, keepdim=True)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=self.tp_group)
        return (self.reduce((logits - highest).exp().sum(-1, keepdim=True)).log() + highest).squeeze(-1)

    def selected(self, values, labels):
        """What stands at the labels; zero where another rank has the label."""
        start, end = VocabUtility.vocab_range_from_per_partition_vocab_size(values.shape[-1], self.rank)
        elsewhere = (labels < start) | (labels >= end)
        local = (labels - start).masked_fill(elsewhere, 0)
        return values.gather(1, local.unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0.0)

    def get_log_probs(self, logits, labels):
        log_normalizer = self.log_normalizer(logits)
        log_probs = self.selected(logits - log_normalizer.unsqueeze(-1), labels)  # fixed: target_logits = self.selected(logits, labels)
        return self.reduce(log_probs)  # fixed: return self.reduce(target_logits) - log_normalizer

    def step(self, hidden, weight, labels, old_log_probs, advantages):
        hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
        logits = CopyToTensorModelParallelRegion.apply(hidden, self.tp_group) @ weight.t()
        log_probs = self.get_log_probs(logits, labels)  # near
        policy_loss(log_probs, old_log_probs, advantages).backward()
        return {"log_probs": log_probs.detach(), "hidden": hidden.grad, "weight": weight.grad}


@gg.check(mesh={"tp": 3})
def check(mesh):
    labels = gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY)
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(VOCABULARY, HIDDEN), labels, gg.tensor(TOKENS), gg.tensor(TOKENS))
    rows, whole = {"tp": Shard(0)}, {}
    return gg.Refinement(
        spec_step,
        MegatronGRPOTrainer(mesh.get_group("tp")).step,
        inputs,
        in_relations=(whole, rows, whole, whole, whole),
        out_relations=(whole, whole, rows),
        grads=False,
    )
