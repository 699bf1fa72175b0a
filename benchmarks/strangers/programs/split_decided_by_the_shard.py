"""Muon makes queries, keys and values orthogonal one by one where the rows are a multiple of a group's; asked of a rank's part of the weight, the answer is no, and all three become one matrix. Megatron-LM with GTP.

Source: https://github.com/NVIDIA/Megatron-LM/pull/7117
Rule: wrong-relation, nonlinear-on-partial
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, SEQ, HIDDEN, LR = 6, 4, 5, 0.2
NS_COEFFICIENTS, NS_STEPS, EPS = (3.4445, -4.775, 2.0315), 2, 1e-7


@dataclass
class TransformerConfig:
    num_query_groups: int = 2
    heads_per_group: int = 2
    kv_channels: int = 3
    muon_split_qkv: bool = True
    gtp_group: Any = None

    @property
    def qkv_split_shapes(self):
        """Rows of a group: its queries, its key, its value."""
        return (self.heads_per_group * self.kv_channels, self.kv_channels, self.kv_channels)

    @property
    def gtp_size(self):
        return 1 if self.gtp_group is None else dist.get_world_size(self.gtp_group)


def gather_rows(shard, config):
    if config.gtp_size == 1:
        return shard
    out = torch.empty(config.gtp_size * shard.shape[0], *shard.shape[1:])
    dist.all_gather_into_tensor(out, shard.contiguous(), group=config.gtp_group)
    return out


class _MaterializeWeight(torch.autograd.Function):
    """Rows of all ranks; their gradients are averaged, and each rank keeps its own."""

    @staticmethod
    def forward(ctx, shard, config):
        ctx.config = config
        return gather_rows(shard, config)

    @staticmethod
    def backward(ctx, grad):
        size = ctx.config.gtp_size
        out = torch.empty(grad.shape[0] // size, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.config.gtp_group)
        return out / size, None


class GTPLinear(nn.Module):
    def __init__(self, weight, config):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.config = config

    def forward(self, x):
        weight = self.weight
        if self.config.gtp_size > 1:
            weight = _MaterializeWeight.apply(weight, self.config)
        return F.linear(x, weight)


class SelfAttention(nn.Module):
    def __init__(self, qkv, proj, config):
        super().__init__()
        self.config = config
        self.linear_qkv = GTPLinear(qkv, config)
        self.linear_proj = GTPLinear(proj, config)

    def forward(self, x):
        config = self.config
        batch, seq, _ = x.shape
        mixed = self.linear_qkv(x).view(batch, seq, config.num_query_groups, sum(config.qkv_split_shapes))
        query, key, value = mixed.split(config.qkv_split_shapes, dim=-1)
        query = query.reshape(batch, seq, config.num_query_groups, config.heads_per_group, config.kv_channels)
        scores = torch.einsum("bsghc,btgc->bghst", query, key) / config.kv_channels**0.5
        causal = torch.ones(seq, seq, dtype=torch.bool).tril()
        probs = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        context = torch.einsum("bghst,btgc->bsghc", probs, value).reshape(batch, seq, -1)
        return self.linear_proj(context)


def newton_schulz(x):
    a, b, c = NS_COEFFICIENTS
    transposed = x.shape[-2] > x.shape[-1]
    x = x.mT if transposed else x
    x = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + EPS)
    for _ in range(NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if transposed else x


class TensorParallelMuon:
    """Works on gathered gradients; a rank updates its rows."""

    def __init__(self, parameters, config, lr):
        self.parameters = parameters
        self.config = config
        self.lr = lr

    def scaled_orthogonalize(self, grad):
        return newton_schulz(grad) * max(1.0, grad.shape[-2] / grad.shape[-1]) ** 0.5

    def orthogonalize(self, param, grad):
        grad = gather_rows(grad, self.config)
        if self.config.muon_split_qkv and param.is_qkv:  # near
            shapes = self.config.qkv_split_shapes
            groups = grad.view(self.config.num_query_groups, sum(shapes), -1).split(shapes, dim=1)
            parts = [self.scaled_orthogonalize(part.reshape(-1, grad.shape[-1])) for part in groups]
            parts = [part.view(self.config.num_query_groups, -1, grad.shape[-1]) for part in parts]
            update = torch.cat(parts, dim=1).reshape(grad.shape)
        else:
            update = self.scaled_orthogonalize(grad)
        if self.config.gtp_size == 1:
            return update
        return update.chunk(self.config.gtp_size)[dist.get_rank(self.config.gtp_group)]

    @torch.no_grad()
    def step(self):
        for param in self.parameters:
            param -= self.lr * self.orthogonalize(param, param.grad)


def get_megatron_muon_optimizer(model, config):
    parameters = []
    group_rows = sum(config.qkv_split_shapes)
    for name, param in model.named_parameters():
        param.is_qkv = False
        if name.endswith("linear_qkv.weight"):
            rows = param.shape[0]  # fixed: rows = param.shape[0] * config.gtp_size
            # other layouts, as those with a gate, are one matrix
            param.is_qkv = rows % group_rows == 0  # fault
        parameters.append(param)
    return TensorParallelMuon(parameters, config, LR)


def train_step(config):
    def step(x, target, qkv, proj):
        model = SelfAttention(qkv, proj, config)
        optimizer = get_megatron_muon_optimizer(model, config)
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if config.gtp_size > 1:
            dist.all_reduce(loss, group=config.gtp_group)
            loss = loss / config.gtp_size
        return {"loss": loss, **{name: param.detach() for name, param in model.named_parameters()}}

    return step


@gg.check(mesh={"gtp": 3})
def check(mesh):
    config = TransformerConfig()
    rows = config.num_query_groups * sum(config.qkv_split_shapes)
    width = config.num_query_groups * config.heads_per_group * config.kv_channels
    cut, whole = {"gtp": Shard(0)}, {"gtp": Replicate()}
    x = gg.tensor(BATCH, SEQ, HIDDEN)
    return gg.Refinement(
        train_step(config),
        train_step(TransformerConfig(gtp_group=mesh.get_group("gtp"))),
        (x, gg.tensor(BATCH, SEQ, HIDDEN + 1), gg.tensor(rows, HIDDEN), gg.tensor(HIDDEN + 1, width)),
        in_relations=cut,
        out_relations={"loss": whole, "linear_qkv.weight": cut, "linear_proj.weight": cut},
        grads=False,
    )
