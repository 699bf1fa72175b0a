"""A row-parallel layer adds its bias divided by the ranks, since their outputs are summed; the division is differentiated as well. torchtitan.

Source: https://github.com/pytorch/torchtitan/pull/4332
Rule: wrong-scale, gradient-not-reduced
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, DIM, INNER = 4, 5, 6


class _CopyToRanks(torch.autograd.Function):
    """The same on every rank; the gradients of the ranks are summed."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _PartialToReplicate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Linear:
    """A layer that can be told how it is parallelized; each rank then holds its part of the weight."""

    def __init__(self, weight, bias, tp_mesh=None):
        self.weight, self.bias, self.tp_mesh = weight, bias, tp_mesh

    def __call__(self, x):
        return F.linear(x, self.weight, self.bias)


class ColwiseLinear(Linear):
    def __call__(self, x):
        return F.linear(_CopyToRanks.apply(x, self.tp_mesh.get_group()), self.weight, self.bias)


class RowwiseLinear(Linear):
    def partial_bias(self):
        """What each rank contributes, so that the sum over the ranks holds the bias once."""
        tp_degree = self.tp_mesh.size()
        return self.bias / tp_degree  # fixed: return self.bias + (self.bias / tp_degree - self.bias).detach()

    def __call__(self, x):
        partial = F.linear(x, self.weight, self.partial_bias())  # near
        return _PartialToReplicate.apply(partial, self.tp_mesh.get_group())


class FeedForward:
    def __init__(self, parameters, tp_mesh=None):
        colwise, rowwise = (Linear, Linear) if tp_mesh is None else (ColwiseLinear, RowwiseLinear)
        self.w1 = colwise(parameters["w1.weight"], parameters["w1.bias"], tp_mesh)
        self.w2 = rowwise(parameters["w2.weight"], parameters["w2.bias"], tp_mesh)

    def __call__(self, x):
        return x + self.w2(F.silu(self.w1(x)))


NAMES = ("w1.weight", "w1.bias", "w2.weight", "w2.bias")


def train_step(tp_mesh=None, dp_group=None):
    """The output and the gradients, these as the mean over the data-parallel ranks."""

    def step(x, target, *weights):
        parameters = {name: weight.detach().requires_grad_() for name, weight in zip(NAMES, weights)}
        output = FeedForward(parameters, tp_mesh)(x)
        (output - target).square().mean().backward()
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
        if dp_group is not None:
            for gradient in gradients.values():
                dist.all_reduce(gradient, op=dist.ReduceOp.AVG, group=dp_group)
        return {"output": output.detach(), **gradients}

    return step


@gg.check(mesh={"dp": 2, "tp": 3})
def check(mesh):
    batch, rows, columns = {"dp": Shard(0)}, {"tp": Shard(0)}, {"tp": Shard(1)}
    weights = (gg.tensor(INNER, DIM), gg.tensor(INNER), gg.tensor(DIM, INNER), gg.tensor(DIM))
    return gg.Refinement(
        train_step(),
        train_step(mesh["tp"], mesh.get_group("dp")),
        (gg.tensor(TOKENS, DIM), gg.tensor(TOKENS, DIM), *weights),
        in_relations=(batch, batch, rows, rows, columns, {}),
        out_relations=(batch, rows, rows, columns, {}),
        grads=False,
    )
