"""Experts' gradients hold the tokens of all expert ranks, and are averaged over the ranks that share the experts alone. Megatron-FSDP with expert parallelism.

Source: https://github.com/NVIDIA/Megatron-LM/pull/5956
Rule: wrong-scale
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS = 12, 2, 6, 4


class Experts(nn.Module):
    def __init__(self, w1, w2):
        super().__init__()
        self.w1 = nn.Parameter(w1.detach().clone())
        self.w2 = nn.Parameter(w2.detach().clone())

    def forward(self, x, probs):
        h = torch.tanh(torch.einsum("th,ehi->tei", x, self.w1))
        return torch.einsum("te,tei,eih->th", probs, h, self.w2)


class MoELayer(nn.Module):
    """All experts on one device: the specification."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = Experts(torch.randn(EXPERTS, HIDDEN, INNER), torch.randn(EXPERTS, INNER, HIDDEN))

    def forward(self, x):
        return x + self.experts(x, self.router(x).softmax(-1))


def spec_step(model):
    def step(x):
        model(x).square().mean().backward()
        return {
            "router": model.router.weight.grad,
            "w1": model.experts.w1.grad,
            "w2": model.experts.w2.grad,
        }

    return step


class GatherTokens(torch.autograd.Function):
    """Tokens of all expert ranks; what comes back for them is summed."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter(grad, ctx.group), None


class ScatterTokens(torch.autograd.Function):
    """The sums of the own tokens; their gradient goes to all expert ranks."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduce_scatter(x, group)

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(dist.get_world_size(ctx.group) * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


def reduce_scatter(x, group):
    out = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class ParallelMoELayer(nn.Module):
    """The own experts get the tokens of all ranks of the group."""

    def __init__(self, model, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.ep_rank, self.ep_size = dist.get_rank(ep_group), dist.get_world_size(ep_group)
        self.router = copy.deepcopy(model.router)
        own = [weight.chunk(self.ep_size)[self.ep_rank] for weight in model.experts.parameters()]
        self.experts = Experts(*own)

    def forward(self, x):
        tokens = GatherTokens.apply(x, self.ep_group)
        probs = GatherTokens.apply(self.router(x).softmax(-1), self.ep_group)
        out = self.experts(tokens, probs.chunk(self.ep_size, dim=1)[self.ep_rank])
        return x + ScatterTokens.apply(out, self.ep_group)


class FSDPParameterGroup:
    """Averages a module's gradients over its mesh, each rank keeping a part of the first inner dim."""

    def __init__(self, module, group, grad_divisor=1):
        self.module = module
        self.group = group
        self.grad_divisor = grad_divisor

    def reduce_gradients(self):
        reduced = []
        for parameter in self.module.parameters():
            grad = parameter.grad / self.grad_divisor
            dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=self.group)
            reduced.append(grad)
        return reduced


def fully_shard(module, group, grad_divisor=1):
    return FSDPParameterGroup(module, group, grad_divisor)


def train_step(model, mesh):
    dense = fully_shard(model.router, dist.group.WORLD)
    experts = fully_shard(model.experts, mesh.get_group("edp"))  # fixed: experts = fully_shard(model.experts, mesh.get_group("edp"), grad_divisor=model.ep_size)

    def step(x):
        model(x).square().mean().backward()
        (router,) = dense.reduce_gradients()
        w1, w2 = experts.reduce_gradients()  # near
        return {"router": router, "w1": w1, "w2": w2}

    return step


@gg.check(mesh={"edp": 3, "ep": 2})
def check(mesh):
    model = MoELayer()
    impl = train_step(ParallelMoELayer(model, mesh.get_group("ep")), mesh)
    rows, own = {"edp": Shard(0), "ep": Shard(0)}, {"ep": Shard(0)}
    return gg.Refinement(
        spec_step(model), impl, (gg.tensor(TOKENS, HIDDEN),), in_relations=rows, out_relations=({}, own, own), grads=False
    )
