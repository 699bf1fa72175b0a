"""Steps of data-parallel training: micro-batches, clipping by the global norm, and losses over uneven numbers of tokens."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

MICRO_BATCHES, LIMIT, RATE, IGNORED = 2, 1.0, 0.1, 3


def loss_of(weight, x, target):
    return F.mse_loss(torch.tanh(x @ weight), target)


def step(weight, x, target):
    """The specification of accumulation: one step on the mean of the whole batch."""
    weight = weight.detach().requires_grad_()
    (grad,) = torch.autograd.grad(loss_of(weight, x, target), weight)
    return weight - RATE * grad


BATCH = {"dp": Shard(0)}


@gg.check(mesh={"dp": 2})
def accumulation(mesh):
    group, ranks = mesh.get_group("dp"), mesh["dp"].size()

    def impl(weight, x, target):
        weight = weight.detach().requires_grad_()
        total = torch.zeros_like(weight)
        for part, wanted in zip(x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True):
            loss = loss_of(weight, part, wanted) / MICRO_BATCHES
            (grad,) = torch.autograd.grad(loss, weight)
            total = total + grad
        dist.all_reduce(total, group=group)
        total = total / ranks
        return weight - RATE * total

    inputs = (gg.tensor(5, 3), gg.tensor(8, 5), gg.tensor(8, 3))
    return gg.Refinement(step, impl, inputs, in_relations=({}, BATCH, BATCH), out_relations="replicate")


def clipped(weight_grad, norm_grad):
    """The specification of clipping: both gradients scaled by the norm over all of them."""
    norm = (weight_grad.pow(2).sum() + norm_grad.pow(2).sum()).sqrt()
    factor = LIMIT / torch.clamp(norm, min=LIMIT)
    return weight_grad * factor, norm_grad * factor


@gg.check(mesh={"tp": 2})
def clipping(mesh):
    group = mesh.get_group("tp")

    def impl(weight_grad, norm_grad):
        square = weight_grad.pow(2).sum()
        dist.all_reduce(square, group=group)
        square = square + norm_grad.pow(2).sum()
        norm = square.sqrt()
        factor = LIMIT / torch.clamp(norm, min=LIMIT)
        return weight_grad * factor, norm_grad * factor

    shard = {"tp": Shard(0)}
    inputs = (gg.tensor(6, 4), gg.tensor(4))
    return gg.Refinement(clipped, impl, inputs, in_relations=(shard, {}), out_relations=(shard, {}), grads=False)


def token_loss(logits, mask):
    """The specification of a masked loss: the mean over the tokens that count."""
    losses = torch.logsumexp(logits, -1)
    return (losses * mask).sum() / mask.sum()


@gg.check(mesh={"dp": 2})
def masked_loss(mesh):
    group = mesh.get_group("dp")

    def impl(logits, mask):
        losses = torch.logsumexp(logits, -1)
        total = (losses * mask).sum()
        count = mask.sum()
        dist.all_reduce(total, group=group)
        dist.all_reduce(count, group=group)
        return total / count

    inputs = (gg.tensor(6, 5), gg.tensor(6))
    return gg.Refinement(token_loss, impl, inputs, in_relations=BATCH, out_relations="replicate", grads=False)


def normalized(x, scale, shift):
    """The specification of batch normalization over the whole batch."""
    mean = x.mean(0)
    variance = (x - mean).pow(2).mean(0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * scale + shift


@gg.check(mesh={"dp": 2})
def synchronized_norm(mesh):
    group, ranks = mesh.get_group("dp"), mesh["dp"].size()

    def impl(x, scale, shift):
        count = x.shape[0] * ranks
        total = x.sum(0)
        dist.all_reduce(total, group=group)
        mean = total / count
        square = (x - mean).pow(2).sum(0)
        dist.all_reduce(square, group=group)
        variance = square / count
        return (x - mean) * torch.rsqrt(variance + 1e-5) * scale + shift

    inputs = (gg.tensor(6, 4), gg.tensor(4), gg.tensor(4))
    return gg.Refinement(normalized, impl, inputs, in_relations=(BATCH, {}, {}), out_relations=BATCH, grads=False)
