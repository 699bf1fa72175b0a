"""Experts' weights are quantized in blocks, and a rank loads as many blocks as the ranks divide them into, rounded down; the last ones are loaded by nobody. SGLang's GPT-OSS.

Source: https://github.com/sgl-project/sglang/pull/9433
Rule: wrong-shard
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg


@dataclass(frozen=True)
class GptOssConfig:
    hidden_size: int = 10
    intermediate_size: int = 14
    num_local_experts: int = 4
    mxfp4_block: int = 2
    swiglu_alpha: float = 1.7
    tokens: int = 9


def dequantize(blocks, scales, block):
    """A scale for every block of the last dimension."""
    return blocks * scales.repeat_interleave(block, dim=-1)


def swiglu(x, alpha):
    gate, up = x.unflatten(-1, (-1, 2)).unbind(-1)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def experts_forward(x, probs, w13, w13_bias, w2, w2_bias, alpha):
    """Every expert on every token, weighted by the router."""
    hidden = torch.einsum("th,eih->tei", x, w13) + w13_bias
    out = torch.einsum("tei,ehi->teh", swiglu(hidden, alpha), w2) + w2_bias
    return torch.einsum("te,teh->th", probs, out)


class Experts(nn.Module):
    """Quantized weights; gate and up rows alternate in the first of them."""

    def __init__(self, config, intermediate_size):
        super().__init__()
        experts, hidden, block = config.num_local_experts, config.hidden_size, config.mxfp4_block
        self.config = config
        self.w13_weight = nn.Parameter(torch.zeros(experts, 2 * intermediate_size, hidden))
        self.w13_weight_scale = nn.Parameter(torch.zeros(experts, 2 * intermediate_size, hidden // block))
        self.w13_weight_bias = nn.Parameter(torch.zeros(experts, 2 * intermediate_size))
        self.w2_weight = nn.Parameter(torch.zeros(experts, hidden, intermediate_size))
        self.w2_weight_scale = nn.Parameter(torch.zeros(experts, hidden, intermediate_size // block))
        self.w2_weight_bias = nn.Parameter(torch.zeros(experts, hidden))

    def forward(self, x, probs):
        block = self.config.mxfp4_block
        w13 = dequantize(self.w13_weight, self.w13_weight_scale, block)
        w2 = dequantize(self.w2_weight, self.w2_weight_scale, block)
        biases = self.w13_weight_bias, self.w2_weight_bias
        return experts_forward(x, probs, w13, biases[0], w2, biases[1], self.config.swiglu_alpha)


class GptOssSparseMoeBlock(nn.Module):
    def __init__(self, config, intermediate_size=None, group=None):
        super().__init__()
        self.group = group
        self.router = nn.Linear(config.hidden_size, config.num_local_experts)
        self.experts = Experts(config, intermediate_size or config.intermediate_size)

    def forward(self, x):
        out = self.experts(x, self.router(x).softmax(-1))
        if self.group is not None:
            dist.all_reduce(out, group=self.group)
        return out


def padded_intermediate_size(config, moe_tp_size):
    """Per rank, in whole blocks; what has no weights stays zero."""
    blocks = config.intermediate_size // config.mxfp4_block
    return math.ceil(blocks / moe_tp_size) * config.mxfp4_block


class MxFp4Loader:
    def __init__(self, config, moe_tp_rank, moe_tp_size):
        self.config = config
        self.moe_tp_rank = moe_tp_rank
        intermediate_size = config.intermediate_size
        intermediate_size_block = intermediate_size // config.mxfp4_block
        per_rank_intermediate_size_block = intermediate_size_block // moe_tp_size  # fixed: per_rank_intermediate_size_block = math.ceil(intermediate_size_block / moe_tp_size)
        per_rank_intermediate_size = per_rank_intermediate_size_block * config.mxfp4_block
        self.start = moe_tp_rank * per_rank_intermediate_size
        self.end = min((moe_tp_rank + 1) * per_rank_intermediate_size, intermediate_size)

    def narrow(self, name, weight):
        """The rank's part of a tensor of the checkpoint."""
        block = self.config.mxfp4_block
        if "w13" in name:
            return weight[:, 2 * self.start : 2 * self.end]
        if "w2_weight_bias" in name:
            return weight if self.moe_tp_rank == 0 else torch.zeros_like(weight)
        if "w2_weight_scale" in name:
            return weight[..., self.start // block : self.end // block]
        if "w2_weight" in name:
            return weight[..., self.start : self.end]
        return weight

    def load_weights(self, model, checkpoint):
        for name, param in model.named_parameters():
            narrow_weight = self.narrow(name, checkpoint[name])
            where = tuple(slice(extent) for extent in narrow_weight.shape)
            with torch.no_grad():
                param[where].copy_(narrow_weight)


def whole_model(config):
    model = GptOssSparseMoeBlock(config)
    for param in model.parameters():
        nn.init.normal_(param)
    return model


@gg.check(mesh={"tp": 3})
def check(mesh):
    config, group = GptOssConfig(), mesh.get_group("tp")
    size = dist.get_world_size(group)
    loader = MxFp4Loader(config, dist.get_rank(group), size)
    return gg.Refinement(
        whole_model(config),
        GptOssSparseMoeBlock(config, padded_intermediate_size(config, size), group),
        (gg.tensor(config.tokens, config.hidden_size),),
        load=lambda state, impl, _: loader.load_weights(impl, state),
        out_relations="replicate",
        grads=False,
    )
