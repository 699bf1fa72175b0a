"""Some experts are computed on the GPUs, others on the host, and the block scales their sum; a wrapper tells the GPUs' runner not to scale, but one quantization method reads the layer's settings. SGLang with KTransformers.

Source: https://github.com/kvcache-ai/sglang/pull/86
Rule: wrong-scale, wrong-relation
"""

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, GPU_EXPERTS, TOP_K, BLOCK = 7, 9, 24, 10, 6, 5, 3
ROUTED_SCALING_FACTOR = 1.5


def dequantize(weight, scale):
    """One scale for each block of columns, as in MXFP4."""
    return (weight.unflatten(-1, (-1, BLOCK)) * scale[..., None]).flatten(-2)


def select_experts(x, gate):
    """The chosen experts and their weights, which add up to one."""
    scores = torch.sigmoid(x @ gate.t())
    topk_weights, topk_ids = scores.topk(TOP_K, dim=-1)
    return topk_weights / topk_weights.sum(-1, keepdim=True), topk_ids


def expert_mlp(x, w13, w2):
    gate, up = F.linear(x, w13).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, w2)


def combine(x, topk_weights, topk_ids, experts):
    """The sum over (id, w13, w2) of what each expert gives, times its weight."""
    out = torch.zeros_like(x)
    for expert_id, w13, w2 in experts:
        weight = torch.where(topk_ids == expert_id, topk_weights, 0.0).sum(-1, keepdim=True)
        out = out + weight * expert_mlp(x, w13, w2)
    return out


def spec(x, gate, w13, w13_scale, w2, w2_scale):
    experts = zip(range(EXPERTS), dequantize(w13, w13_scale), dequantize(w2, w2_scale), strict=True)
    return combine(x, *select_experts(x, gate), experts) * ROUTED_SCALING_FACTOR


@dataclass(frozen=True)
class MoeRunnerConfig:
    num_local_experts: int
    routed_scaling_factor: float | None = None


class FusedMoEMethodBase:
    """Keeps the settings that it is to run with."""

    def create_moe_runner(self, layer, moe_runner_config):
        self.moe_runner_config = moe_runner_config

    def process_weights_after_loading(self, layer, w13, w13_scale, w2, w2_scale):
        raise NotImplementedError

    def run(self, x, topk_output, layer, factor):
        experts = zip(range(len(layer.w13)), layer.w13, layer.w2, strict=True)
        out = combine(x, *topk_output, experts)
        return out if factor is None else out * factor  # near


class DequantizedMoEMethod(FusedMoEMethodBase):
    """Weights are dequantized when they are loaded."""

    def process_weights_after_loading(self, layer, w13, w13_scale, w2, w2_scale):
        layer.w13, layer.w2 = dequantize(w13, w13_scale), dequantize(w2, w2_scale)

    def apply(self, layer, x, topk_output):
        return self.run(x, topk_output, layer, self.moe_runner_config.routed_scaling_factor)


class DeepSeekMxfp4MoEMethod(FusedMoEMethodBase):
    """Weights are dequantized where they are used."""

    def process_weights_after_loading(self, layer, w13, w13_scale, w2, w2_scale):
        layer.packed = (w13, w13_scale, w2, w2_scale)

    def apply(self, layer, x, topk_output):
        w13, w13_scale, w2, w2_scale = layer.packed
        layer.w13, layer.w2 = dequantize(w13, w13_scale), dequantize(w2, w2_scale)
        factor = layer.moe_runner_config.routed_scaling_factor  # fixed: factor = self.moe_runner_config.routed_scaling_factor
        return self.run(x, topk_output, layer, factor)


class KTEPWrapperMethod:
    """The first experts by another method, each rank with its part; the rest on the host, by the first rank."""

    def __init__(self, gpu_method, group):
        self.gpu_method = gpu_method
        self.group = group
        self.tp_rank, self.tp_size = dist.get_rank(group), dist.get_world_size(group)

    def create_moe_runner(self, layer, moe_runner_config):
        self.moe_runner_config = moe_runner_config
        gpu_config = replace(moe_runner_config, num_local_experts=GPU_EXPERTS, routed_scaling_factor=None)
        self.gpu_method.create_moe_runner(layer, gpu_config)

    def load(self, layer, w13, w13_scale, w2, w2_scale):
        def rows(tensor):
            halves = [half.chunk(self.tp_size, dim=1)[self.tp_rank] for half in tensor.chunk(2, dim=1)]
            return torch.cat(halves, dim=1)

        def columns(tensor):
            return tensor.chunk(self.tp_size, dim=2)[self.tp_rank]

        on_gpu = slice(GPU_EXPERTS)
        sharded = (rows(w13[on_gpu]), rows(w13_scale[on_gpu]), columns(w2[on_gpu]), columns(w2_scale[on_gpu]))
        self.gpu_method.process_weights_after_loading(layer, *sharded)
        on_host = slice(GPU_EXPERTS, None)
        host = dequantize(w13[on_host], w13_scale[on_host]), dequantize(w2[on_host], w2_scale[on_host])
        self.host_experts = list(zip(range(GPU_EXPERTS, EXPERTS), *host, strict=True))

    def apply(self, layer, x, topk_output):
        output = self.gpu_method.apply(layer, x, topk_output)
        if self.tp_rank == 0:
            output = output + combine(x, *topk_output, self.host_experts)
        return output


class FusedMoE(nn.Module):
    def __init__(self, quant_method, group):
        super().__init__()
        self.quant_method = KTEPWrapperMethod(quant_method, group)
        self.moe_runner_config = MoeRunnerConfig(EXPERTS, ROUTED_SCALING_FACTOR)
        self.quant_method.create_moe_runner(self, self.moe_runner_config)

    def forward(self, x, topk_output):
        return self.quant_method.apply(self, x, topk_output)


class DeepseekV2MoE(nn.Module):
    def __init__(self, quant_method, group):
        super().__init__()
        self.group = group
        self.experts = FusedMoE(quant_method, group)
        self.routed_scaling_factor = ROUTED_SCALING_FACTOR

    def load_weights(self, gate, *weights):
        self.gate = gate
        self.experts.quant_method.load(self.experts, *weights)

    def forward_normal(self, hidden_states):
        topk_output = select_experts(hidden_states, self.gate)
        final_hidden_states = self.experts(hidden_states, topk_output)
        final_hidden_states = final_hidden_states * self.routed_scaling_factor  # near
        dist.all_reduce(final_hidden_states, group=self.group)
        return final_hidden_states


def serve(quant_method, group):
    @torch.no_grad()
    def run(x, *weights):
        block = DeepseekV2MoE(quant_method, group)
        block.load_weights(*weights)
        return block.forward_normal(x)

    return run


@gg.check(mesh={"tp": 2})
def check(mesh):
    inputs = (
        gg.tensor(TOKENS, HIDDEN),
        gg.tensor(EXPERTS, HIDDEN),
        gg.tensor(EXPERTS, 2 * INTERMEDIATE, HIDDEN),
        gg.tensor(EXPERTS, 2 * INTERMEDIATE, HIDDEN // BLOCK),
        gg.tensor(EXPERTS, HIDDEN, INTERMEDIATE),
        gg.tensor(EXPERTS, HIDDEN, INTERMEDIATE // BLOCK),
    )
    impl = serve(DeepSeekMxfp4MoEMethod(), mesh.get_group("tp"))
    return gg.Refinement(spec, impl, inputs, out_relations="replicate", grads=False)
