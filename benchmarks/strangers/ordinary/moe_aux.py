"""A mixture of experts with all_to_all, two experts per rank, top-1 routing with capacity: trained for some steps. Load of the local tokens alone, squared.

Rule: nonlinear-on-partial, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, TOKENS, DIM, HIDDEN, EXPERTS, LR, AUX = 2, 12, 5, 7, 6, 0.1, 0.01


class AllReduce(torch.autograd.Function):
    """Adds in both directions."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class GatherTokens(torch.autograd.Function):
    """Tokens of all ranks; the gradient is reduce-scattered."""

    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // dist.get_world_size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous())
        return out


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] * dist.get_world_size(), *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous())
        return out


def gates_of(x, router):
    return (x @ router).softmax(-1)


def spec(router, up, down, xs, ys):
    for step in range(STEPS):
        router, up, down = (t.detach().requires_grad_() for t in (router, up, down))
        x = xs[step]
        gates = gates_of(x, router)
        out = torch.zeros_like(x)
        for e in range(EXPERTS):
            out = out + gates[:, e : e + 1] * (torch.relu(x @ up[e]) @ down[e])
        load = gates.mean(0)
        loss = (out - ys[step]).square().sum() / TOKENS + AUX * EXPERTS * load.square().sum()
        loss.backward()
        router, up, down = router - LR * router.grad, up - LR * up.grad, down - LR * down.grad
    return router.detach(), up.detach(), down.detach()


def moe(x, gates, up, down):
    rank = dist.get_rank()
    tokens, weights = GatherTokens.apply(x), GatherTokens.apply(gates)
    out = torch.zeros_like(tokens)
    local_experts = up.shape[0]
    for i in range(local_experts):
        e = rank * local_experts + i
        hidden = torch.relu(tokens @ up[i])
        out = out + weights[:, e : e + 1] * (hidden @ down[i])
    return ScatterSum.apply(out)


def impl(router, up, down, xs, ys):
    for step in range(STEPS):
        router, up, down = (t.detach().requires_grad_() for t in (router, up, down))
        x = xs[step]
        gates = gates_of(x, router)
        out = moe(x, gates, up, down)
        load = gates.mean(0)  # fixed: load = AllReduce.apply(gates.sum(0)) / TOKENS
        loss = (out - ys[step]).square().sum() / TOKENS + AUX * EXPERTS * load.square().sum() / dist.get_world_size()
        loss.backward()
        dist.all_reduce(router.grad)
        router, up, down = router - LR * router.grad, up - LR * up.grad, down - LR * down.grad
    return router.detach(), up.detach(), down.detach()


@gg.check(mesh={"ep": 3})
def check(mesh):
    experts, tokens = {"ep": Shard(0)}, {"ep": Shard(1)}
    return gg.Refinement(
        spec, impl,
        inputs=(
            gg.tensor(DIM, EXPERTS), gg.tensor(EXPERTS, DIM, HIDDEN), gg.tensor(EXPERTS, HIDDEN, DIM),
            gg.tensor(STEPS, TOKENS, DIM), gg.tensor(STEPS, TOKENS, DIM),
        ),
        in_relations=({"ep": Replicate()}, experts, experts, tokens, tokens),
        out_relations=("replicate", experts, experts),
        grads=False,
    )
