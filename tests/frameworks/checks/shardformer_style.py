"""Layers in ColossalAI's ShardFormer idiom: linears made from native ones, fused projections that are cut part by part, and copies with collectives in their gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import graphguard as gg

WIDTH, HEADS, INNER = 16, 4, 32


class LinearWithAsyncCommunication(torch.autograd.Function):
    """A linear whose input is whole: the gradient of the input is summed while that of the weight is computed."""

    @staticmethod
    def forward(ctx, x, weight, bias, group):
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.has_bias = group, bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        total = grad @ weight
        handle = dist.all_reduce(total, group=ctx.group, async_op=True)
        rows, x = grad.flatten(0, -2), x.flatten(0, -2)
        weight_grad, bias_grad = rows.t() @ x, rows.sum(0) if ctx.has_bias else None
        handle.wait()
        return total, weight_grad, bias_grad, None


class ReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def rows_of(tensor, group, parts=1):
    """This rank's rows of every part of a fused parameter."""
    mine = [part.chunk(dist.get_world_size(group))[dist.get_rank(group)] for part in tensor.chunk(parts)]
    return torch.cat(mine).clone()


class Linear1D_Col(nn.Module):
    @classmethod
    def from_native_module(cls, module, group, parts=1):
        self = cls()
        self.group = group
        self.weight = nn.Parameter(rows_of(module.weight.detach(), group, parts))
        self.bias = nn.Parameter(rows_of(module.bias.detach(), group, parts))
        return self

    def forward(self, x):
        return LinearWithAsyncCommunication.apply(x, self.weight, self.bias, self.group)


class Linear1D_Row(nn.Module):
    @classmethod
    def from_native_module(cls, module, group):
        self = cls()
        self.group = group
        self.weight = nn.Parameter(rows_of(module.weight.detach().t(), group).t().contiguous())
        self.bias = nn.Parameter(module.bias.detach().clone())
        return self

    def forward(self, x):
        return ReduceForward.apply(F.linear(x, self.weight), self.group) + self.bias


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = HEADS
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        heads = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.c_proj(mixed)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


def shard(block, group, parts=3):
    """The policy: which layer becomes which."""
    block.heads //= dist.get_world_size(group)
    block.c_attn = Linear1D_Col.from_native_module(block.c_attn, group, parts)
    block.c_fc = Linear1D_Col.from_native_module(block.c_fc, group)
    block.c_proj = Linear1D_Row.from_native_module(block.c_proj, group)
    block.c_out = Linear1D_Row.from_native_module(block.c_out, group)
    return block


def load(parts):
    def run(state, block, mesh):
        group = mesh.get_group("tp")
        with torch.no_grad():
            for name, parameter in block.named_parameters():
                value = state[name]
                if name.startswith(("c_attn", "c_fc")):
                    value = rows_of(value, group, parts if name.startswith("c_attn") else 1)
                elif name in ("c_proj.weight", "c_out.weight"):
                    value = rows_of(value.t(), group).t()
                parameter.copy_(value)

    return run


X = (gg.tensor(2, 6, WIDTH),)


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def block(mesh):
    return gg.Refinement(Block(), shard(Block(), mesh.get_group("tp")), X, load=load(3), out_relations="replicate")
