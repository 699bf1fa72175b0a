"""Vocabulary-parallel log-softmax leaves its gradient to the cross entropy, and another loss reads it. DTensor.

Source: https://github.com/pytorch/pytorch/issues/190746
Rule: wrong-relation, missing-reduction, gradient-not-reduced
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, VOCABULARY, ALPHA = 5, 3, 7, 8, 0.3


class VocabularyShard:
    """This rank's words."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.words = VOCABULARY // self.size
        self.first = self.rank * self.words

    def sum(self, x):
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x

    def max(self, x):
        x = x.clone()
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=self.group)
        return x

    def local_targets(self, targets):
        """Positions among the own words, and where they are none of them."""
        local = targets - self.first
        other = (local < 0) | (local >= self.words)
        return local.masked_fill(other, 0), other


class _CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.shard = shard
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.shard.sum(grad), None


class _ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        return shard.sum(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _LogSoftmax(torch.autograd.Function):
    """Over the words of all ranks."""

    @staticmethod
    def forward(ctx, logits, shard):
        shifted = logits - shard.max(logits.amax(-1, keepdim=True))
        result = shifted - shard.sum(shifted.exp().sum(-1, keepdim=True)).log()
        ctx.save_for_backward(result)
        ctx.shard = shard
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad, None  # fixed: return grad - result.exp() * ctx.shard.sum(grad.sum(-1, keepdim=True)), None


class _NLLLoss(torch.autograd.Function):
    """The mean over tokens; the rank that has a token's target looks it up."""

    @staticmethod
    def forward(ctx, log_probs, targets, shard):
        local, other = shard.local_targets(targets)
        picked = log_probs.gather(-1, local[:, None]).squeeze(-1).masked_fill(other, 0.0)
        ctx.save_for_backward(log_probs, local, other)
        return -shard.sum(picked).mean()

    @staticmethod
    def backward(ctx, grad):
        log_probs, local, other = ctx.saved_tensors
        hot = F.one_hot(local, log_probs.shape[-1]).to(log_probs.dtype).masked_fill(other[:, None], 0.0)
        grad_input = log_probs.exp() - hot  # fixed: grad_input = -hot
        return grad_input * (grad / local.shape[0]), None, None  # fault


class LossParallel:
    """Cross entropy with the labels, and the distance to a teacher."""

    def __init__(self, shard):
        self.shard = shard

    def __call__(self, logits, teacher_logits, targets):
        log_probs = _LogSoftmax.apply(logits, self.shard)
        hard = _NLLLoss.apply(log_probs, targets, self.shard)
        with torch.no_grad():
            teacher = _LogSoftmax.apply(teacher_logits, self.shard)
        soft = (teacher.exp() * (teacher - log_probs)).sum(-1)  # near
        soft = _ReduceFromRegion.apply(soft, self.shard).mean()
        return ALPHA * hard + (1 - ALPHA) * soft


def whole_loss(logits, teacher_logits, targets):
    log_probs, teacher = logits.log_softmax(-1), teacher_logits.log_softmax(-1)
    soft = (teacher.exp() * (teacher - log_probs)).sum(-1).mean()
    return ALPHA * F.cross_entropy(logits, targets) + (1 - ALPHA) * soft


class Student:
    """A hidden layer, then the output layer, of which a rank has the rows of its words."""

    def __init__(self, hidden_weight, output_weight, shard=None):
        self.hidden_weight, self.output_weight, self.shard = hidden_weight, output_weight, shard

    def __call__(self, x):
        hidden = torch.tanh(x @ self.hidden_weight.t())
        if self.shard is not None:
            hidden = _CopyToRegion.apply(hidden, self.shard)
        return hidden @ self.output_weight.t()


def train_step(shard=None):
    def step(x, hidden_weight, output_weight, teacher_logits, targets):
        hidden_weight, output_weight = (w.detach().requires_grad_() for w in (hidden_weight, output_weight))
        logits = Student(hidden_weight, output_weight, shard)(x)
        loss_fn = whole_loss if shard is None else LossParallel(shard)
        loss = loss_fn(logits, teacher_logits, targets)
        loss.backward()
        return {"loss": loss.detach(), "hidden_weight": hidden_weight.grad, "output_weight": output_weight.grad}

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    targets = gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY)
    weights = (gg.tensor(INNER, HIDDEN), gg.tensor(VOCABULARY, INNER))
    inputs = (gg.tensor(TOKENS, HIDDEN), *weights, gg.tensor(TOKENS, VOCABULARY), targets)
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    return gg.Refinement(
        train_step(),
        train_step(VocabularyShard(mesh.get_group("tp"))),
        inputs,
        in_relations=(whole, whole, rows, columns, whole),
        out_relations=(whole, whole, rows),
        grads=False,
    )
