"""Training on a mesh of two axes: the batch is split over 'dp', hidden features over 'tp'."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

RATE = 0.1


def step(up, down, x, target):
    """The specification."""
    up, down = up.detach().requires_grad_(), down.detach().requires_grad_()
    loss = F.mse_loss(F.relu(x @ up) @ down, target)
    up_grad, down_grad = torch.autograd.grad(loss, (up, down))
    return up - RATE * up_grad, down - RATE * down_grad, loss.detach()


class Reduce(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@gg.check(mesh={"dp": 2, "tp": 2})
def two_axes(mesh):
    dp_group, tp_group = mesh.get_group("dp"), mesh.get_group("tp")
    dp_ranks = mesh["dp"].size()

    def impl(up, down, x, target):
        up, down = up.detach().requires_grad_(), down.detach().requires_grad_()
        partial = F.relu(x @ up) @ down
        y = Reduce.apply(partial, tp_group)
        loss = F.mse_loss(y, target)
        up_grad, down_grad = torch.autograd.grad(loss, (up, down))
        dist.all_reduce(up_grad, group=dp_group)
        dist.all_reduce(down_grad, group=dp_group)
        up_grad, down_grad = up_grad / dp_ranks, down_grad / dp_ranks
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=dp_group)
        mean = mean / dp_ranks
        return up - RATE * up_grad, down - RATE * down_grad, mean

    columns, rows, batch = {"tp": Shard(1)}, {"tp": Shard(0)}, {"dp": Shard(0)}
    inputs = (gg.tensor(5, 8), gg.tensor(8, 3), gg.tensor(6, 5), gg.tensor(6, 3))
    return gg.Refinement(
        step, impl, inputs, in_relations=(columns, rows, batch, batch), out_relations=(columns, rows, {})
    )
