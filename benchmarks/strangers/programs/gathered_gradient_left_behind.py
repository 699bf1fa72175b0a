"""The backward pass of a gather has its gradient reduced into a tensor that it made; where that is not contiguous the reduction writes to a copy, which is thrown away. PyTorch.

Source: https://github.com/pytorch/pytorch/pull/120582
Rule: missing-reduction, gradient-not-reduced, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, FEATURES, CHANNELS, OUTPUTS, KERNEL = 7, 5, 12, 4, 3
NAMES = ("in_proj", "conv", "out_proj")


class _ReduceScatter(torch.autograd.Function):
    """Returns the tensor it reduced into."""

    @staticmethod
    def forward(ctx, op, group, tensor, *input_tensor_list):
        ctx.group = group
        tensor = tensor.contiguous()
        inputs = torch.cat([t.contiguous().reshape(-1) for t in input_tensor_list])
        dist.reduce_scatter_tensor(tensor.view(-1), inputs, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None, *_AllGather.apply(ctx.group, grad_output))


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        out = torch.empty(dist.get_world_size(group), *tensor.shape)
        dist.all_gather_into_tensor(out.view(-1), tensor.contiguous().view(-1), group=group)
        return tuple(part.clone() for part in out.unbind(0))

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(ctx.group)
        gx = torch.zeros_like(grad_outputs[rank])  # near
        _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, gx, *grad_outputs)  # fixed: gx = _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, gx, *grad_outputs)
        return None, gx


def all_gather(tensor, group):
    """Differentiable: gradients of all ranks are summed."""
    return _AllGather.apply(group, tensor)


def causal_conv(x, weight):
    """(channels, tokens), every channel by itself."""
    channels, tokens = x.shape
    padded = torch.cat([torch.zeros(channels, KERNEL - 1), x], dim=1)
    taps = [padded[:, k : k + tokens] * weight[:, k : k + 1] for k in range(KERNEL)]
    return torch.stack(taps).sum(0)


class ConvMixer(nn.Module):
    """A projection, a convolution over the tokens of each channel, and a projection."""

    def __init__(self, in_proj, conv, out_proj):
        super().__init__()
        self.in_proj, self.conv, self.out_proj = (nn.Parameter(t.detach().clone()) for t in (in_proj, conv, out_proj))

    def channels_first(self, x):
        return x.t()

    def forward(self, x):
        hidden = self.channels_first(x @ self.in_proj.t())
        hidden = torch.tanh(causal_conv(hidden, self.conv))
        return self.out_proj @ hidden


class ParallelConvMixer(ConvMixer):
    """Both projections by rows; each rank needs all channels for its outputs."""

    def __init__(self, in_proj, conv, out_proj, group):
        super().__init__(in_proj, conv, out_proj)
        self.group = group

    def channels_first(self, x):
        return torch.cat([part.t() for part in all_gather(x, self.group)], dim=0)


def spec(x, target, *weights):
    model = ConvMixer(*weights)
    loss = (model(x) - target).square().sum()
    loss.backward()
    return {"loss": loss.detach(), **{name: getattr(model, name).grad for name in NAMES}}


def train_step(group):
    def step(x, target, *weights):
        model = ParallelConvMixer(*weights, group)
        loss = (model(x) - target).square().sum()
        loss.backward()
        loss = loss.detach()
        for tensor in (loss, model.conv.grad):
            dist.all_reduce(tensor, group=group)
        return {"loss": loss, **{name: getattr(model, name).grad for name in NAMES}}

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    whole, rows = {"tp": Replicate()}, {"tp": Shard(0)}
    batch = (gg.tensor(TOKENS, FEATURES), gg.tensor(OUTPUTS, TOKENS))
    weights = (gg.tensor(CHANNELS, FEATURES), gg.tensor(CHANNELS, KERNEL), gg.tensor(OUTPUTS, CHANNELS))
    return gg.Refinement(
        spec,
        train_step(mesh.get_group("tp")),
        (*batch, *weights),
        in_relations=(whole, rows, rows, whole, rows),
        out_relations=(whole, rows, whole, rows),
        grads=False,
    )
