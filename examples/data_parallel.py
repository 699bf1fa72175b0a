"""One training step on a batch that is split over 'dp': the gradients must be the mean over the ranks, not their sum."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

LEARNING_RATE = 0.1


def gradients(weight, bias, x, target):
    """Gradients of the mean squared error over the given part of the batch."""
    weight, bias = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    loss = F.mse_loss(F.linear(x, weight, bias), target)
    return torch.autograd.grad(loss, (weight, bias))


def train_step(weight, bias, x, target):
    """The specification: the new parameters after one step of SGD."""
    weight_grad, bias_grad = gradients(weight, bias, x, target)
    return weight - LEARNING_RATE * weight_grad, bias - LEARNING_RATE * bias_grad


def train_step_with_mean(weight, bias, x, target):
    grads = gradients(weight, bias, x, target)
    for grad in grads:
        dist.all_reduce(grad)
        grad.div_(dist.get_world_size())
    return weight - LEARNING_RATE * grads[0], bias - LEARNING_RATE * grads[1]


def train_step_with_sum(weight, bias, x, target):
    grads = gradients(weight, bias, x, target)
    for grad in grads:
        dist.all_reduce(grad)
    return weight - LEARNING_RATE * grads[0], bias - LEARNING_RATE * grads[1]


def split_batch(inputs, mesh):
    """Every rank gets the parameters whole, and its part of the batch."""
    weight, bias, x, target = inputs
    rank, ranks = mesh.get_local_rank("dp"), mesh["dp"].size()
    return weight, bias, x.chunk(ranks)[rank], target.chunk(ranks)[rank]


INPUTS = (gg.tensor(3, 5), gg.tensor(3), gg.tensor(8, 5), gg.tensor(8, 3))


@gg.check(mesh={"dp": 2})
def step_with_mean(mesh):
    return gg.Refinement(train_step, train_step_with_mean, INPUTS, shard_inputs=split_batch, out_relations="replicate")


@gg.check(mesh={"dp": 2})
def step_with_sum(mesh):
    return gg.Refinement(train_step, train_step_with_sum, INPUTS, shard_inputs=split_batch, out_relations="replicate")
