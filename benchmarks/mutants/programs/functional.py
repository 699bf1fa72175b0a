"""Inference with functional collectives: an MLP, a sharded norm and attention over split heads."""

import torch
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor

import graphguard as gg

EPS = 1e-5


def mlp(x, up, down, bias):
    return F.gelu(x @ up) @ down + bias


def part(t, dim, mesh):
    """This rank's part of a tensor along a dim."""
    return t.chunk(mesh.size(), dim)[mesh.get_local_rank()]


@gg.check(mesh={"tp": 2})
def functional_mlp(mesh):
    tp = mesh["tp"]

    def impl(x, up, down, bias):
        h = F.gelu(x @ part(up, 1, tp))
        y = h @ part(down, 0, tp)
        y = all_reduce(y, "sum", tp)
        return y + bias

    inputs = (gg.tensor(3, 5), gg.tensor(5, 8), gg.tensor(8, 6), gg.tensor(6))
    return gg.Refinement(mlp, impl, inputs, out_relations="replicate", grads=False)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


@gg.check(mesh={"tp": 2})
def functional_norm(mesh):
    tp = mesh["tp"]

    def impl(x, weight):
        own, scale = part(x, 1, tp), part(weight, 0, tp)
        square = own.pow(2).sum(-1, keepdim=True)
        square = all_reduce(square, "sum", tp)
        mean = square / x.shape[-1]
        y = own * torch.rsqrt(mean + EPS) * scale
        return all_gather_tensor(y, 1, tp)

    return gg.Refinement(rms_norm, impl, (gg.tensor(3, 8), gg.tensor(8)), out_relations="replicate", grads=False)


@gg.check(mesh={"tp": 2})
def functional_sequence(mesh):
    tp = mesh["tp"]

    def impl(x, up, down, bias):
        local = part(x, 0, tp)
        whole = all_gather_tensor(local, 0, tp)
        h = F.gelu(whole @ part(up, 1, tp))
        partial = h @ part(down, 0, tp)
        y = reduce_scatter_tensor(partial, "sum", 0, tp)
        y = y + bias
        return all_gather_tensor(y, 0, tp)

    inputs = (gg.tensor(6, 5), gg.tensor(5, 8), gg.tensor(8, 3), gg.tensor(3))
    return gg.Refinement(mlp, impl, inputs, out_relations="replicate", grads=False)
