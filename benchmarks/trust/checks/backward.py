"""Correct programs whose gradients are made by autograd: losses over split vocabularies, normalisation over split sequences, weights used twice."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

RANKS = 2


class Copy(torch.autograd.Function):
    """The identity, whose gradient is added up over all ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    """The sum over all ranks, whose gradient is the identity."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def gradients(loss, *tensors):
    """The loss and its gradients."""
    return (loss.detach(), *torch.autograd.grad(loss, tensors))


def asked(*tensors):
    """Copies of which gradients are wanted."""
    return tuple(tensor.detach().requires_grad_() for tensor in tensors)


@gg.check(mesh={"tp": RANKS})
def vocabulary_loss(mesh):
    """Cross entropy over logits of which each rank has half of the columns."""
    low = 4 * mesh.get_local_rank("tp")

    def spec(x, weight, target):
        x, weight = asked(x, weight)
        return gradients(F.cross_entropy(x @ weight, target), x, weight)

    def impl(x, weight, target):
        x, weight = asked(x, weight)
        logits = Copy.apply(x) @ weight
        largest = logits.detach().amax(1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        shifted = logits - largest[:, None]
        total = Reduce.apply(shifted.exp().sum(1))
        inside = (target >= low) & (target < low + 4)
        mine = shifted.gather(1, (target - low).clamp(0, 3)[:, None])[:, 0]
        chosen = Reduce.apply(torch.where(inside, mine, 0.0))
        return gradients((total.log() - chosen).mean(), x, weight)

    columns = {"tp": Shard(1)}
    inputs = (gg.tensor(5, 3), gg.tensor(3, 8), gg.tensor(5, dtype=torch.int64, low=0, high=8))
    return gg.Refinement(spec, impl, inputs, in_relations=({}, columns, {}), out_relations=({}, {}, columns))


@gg.check(mesh={"sp": RANKS})
def sequence_norm(mesh):
    """A layer norm and a tied projection on halves of a sequence; gradients of the shared weights are added up."""

    def forward(x, scale, weight):
        hidden = F.layer_norm(x, (4,), scale)
        return torch.tanh(hidden @ weight) @ weight.t()

    def spec(x, scale, weight):
        x, scale, weight = asked(x, scale, weight)
        return gradients(forward(x, scale, weight).pow(2).sum(), x, scale, weight)

    def impl(x, scale, weight):
        x, scale, weight = asked(x, scale, weight)
        loss, *found = gradients(forward(x, scale, weight).pow(2).sum(), x, scale, weight)
        for shared in (loss, *found[1:]):
            dist.all_reduce(shared)
        return (loss, *found)

    rows = {"sp": Shard(0)}
    inputs = (gg.tensor(6, 4), gg.tensor(4), gg.tensor(4, 4))
    return gg.Refinement(spec, impl, inputs, in_relations=(rows, {}, {}), out_relations=({}, rows, {}, {}))


@gg.check(mesh={"tp": RANKS})
def attention(mesh):
    """Causal attention with a head on every rank, and its gradients."""

    def heads(x, weights, count):
        query, key, value = ((x @ w).view(5, count, 3).transpose(0, 1) for w in weights)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1).reshape(5, 3 * count)

    def spec(x, q, k, v, out):
        x, q, k, v, out = asked(x, q, k, v, out)
        return gradients((heads(x, (q, k, v), RANKS) @ out).square().mean(), x, q, k, v, out)

    def impl(x, q, k, v, out):
        x, q, k, v, out = asked(x, q, k, v, out)
        y = Reduce.apply(heads(Copy.apply(x), (q, k, v), 1) @ out)
        return gradients(y.square().mean(), x, q, k, v, out)

    columns, rows = {"tp": Shard(1)}, {"tp": Shard(0)}
    inputs = (gg.tensor(5, 4), gg.tensor(4, 6), gg.tensor(4, 6), gg.tensor(4, 6), gg.tensor(6, 4))
    split = (columns, columns, columns, rows)
    return gg.Refinement(spec, impl, inputs, in_relations=({}, *split), out_relations=({}, {}, *split))
