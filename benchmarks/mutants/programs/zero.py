"""A training step with a sharded optimizer: gradients go through one flat bucket, every rank updates its part, parameters are gathered."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

LEARNING_RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def gradients(weight, bias, x, target):
    weight, bias = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    loss = F.mse_loss(F.linear(x, weight, bias), target)
    return torch.autograd.grad(loss, (weight, bias))


def step(weight, bias, momentum, x, target):
    """The specification: SGD with momentum and weight decay, all parameters in one flat vector."""
    grads = gradients(weight, bias, x, target)
    flat = torch.cat([weight.flatten(), bias.flatten()])
    grad = torch.cat([each.flatten() for each in grads]) + DECAY * flat
    momentum = MOMENTUM * momentum + grad
    flat = flat - LEARNING_RATE * momentum
    return flat[: weight.numel()].view_as(weight), flat[weight.numel() :].view_as(bias), momentum


@gg.check(mesh={"dp": 2})
def zero_step(mesh):
    group, rank, ranks = mesh.get_group("dp"), mesh.get_local_rank("dp"), mesh["dp"].size()

    def impl(weight, bias, momentum, x, target):
        grads = gradients(weight, bias, x, target)
        bucket = torch.cat([each.flatten() for each in grads])
        bucket = bucket / ranks
        grad = bucket.new_empty(bucket.numel() // ranks)
        dist.reduce_scatter_tensor(grad, bucket, group=group)
        flat = torch.cat([weight.flatten(), bias.flatten()])
        own = flat.chunk(ranks)[rank]
        grad = grad + DECAY * own
        momentum = MOMENTUM * momentum + grad
        own = own - LEARNING_RATE * momentum
        flat = torch.empty_like(flat)
        dist.all_gather_into_tensor(flat, own, group=group)
        return flat[: weight.numel()].view_as(weight), flat[weight.numel() :].view_as(bias), momentum

    batch, shard = {"dp": Shard(0)}, {"dp": Shard(0)}
    inputs = (gg.tensor(3, 5), gg.tensor(3), gg.tensor(18), gg.tensor(8, 5), gg.tensor(8, 3))
    return gg.Refinement(step, impl, inputs, in_relations=({}, {}, shard, batch, batch), out_relations=({}, {}, shard))
