"""Weights are quantized when they have been loaded, each by its largest entry; a rank has loaded its part, and takes the largest entry of that, so that the packed weights are not those of one rank. vLLM's online quantization.

Source: https://github.com/vllm-project/vllm/pull/49764
Rule: missing-reduction, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INTERMEDIATE, MOE_INTERMEDIATE, NUM_EXPERTS = 5, 8, 12, 9, 4


@dataclass(frozen=True)
class VllmConfig:
    """``quant_max``: the largest number of the format; its numbers here lie one step apart."""

    tp_group: Any = None
    quant_max: float = 7.0

    @property
    def tp_size(self):
        return 1 if self.tp_group is None else dist.get_world_size(self.tp_group)

    @property
    def tp_rank(self):
        return 0 if self.tp_group is None else dist.get_rank(self.tp_group)

    def tensor_model_parallel_all_reduce(self, x):
        if self.tp_size == 1:
            return x
        x = x.contiguous()
        dist.all_reduce(x, group=self.tp_group)
        return x


class OnlineQuantMethod:
    """What layers of all kinds have in common."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config

    def weight_amax(self, layer, weight, dims):
        amax = weight.abs().amax(dims, keepdim=True)  # fault
        # fixed, insert: if layer.is_tp_sharded:
        # fixed, insert:     dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=self.vllm_config.tp_group)
        return amax

    def scaled_quant(self, weight, scale):
        quant_max = self.vllm_config.quant_max
        return torch.round(weight / scale).clamp(-quant_max, quant_max)


class OnlineLinearMethod(OnlineQuantMethod):
    """One scale for a weight."""

    def process_weights_after_loading(self, layer):
        scale = self.weight_amax(layer, layer.weight, (0, 1)) / self.vllm_config.quant_max
        layer.weight, layer.weight_scale = self.scaled_quant(layer.weight, scale), scale

    def apply(self, layer, x):
        return F.linear(x, layer.weight) * layer.weight_scale.squeeze()  # near


class OnlineMoEMethod(OnlineQuantMethod):
    """One scale for each expert's weight."""

    def process_weights_after_loading(self, layer):
        for name in ("w13", "w2"):
            weight = getattr(layer, name)
            scale = self.weight_amax(layer, weight, (1, 2)) / self.vllm_config.quant_max
            setattr(layer, name, self.scaled_quant(weight, scale))
            setattr(layer, f"{name}_scale", scale)

    def apply(self, layer, x, router_weights):
        hidden = torch.einsum("th,efh->etf", x, layer.w13) * layer.w13_scale
        gate, up = hidden.chunk(2, dim=-1)
        out = torch.einsum("etf,ehf->eth", F.silu(gate) * up, layer.w2) * layer.w2_scale
        return torch.einsum("eth,te->th", out, router_weights)


class ParallelLayer(nn.Module):
    def __init__(self, vllm_config):
        super().__init__()
        self.vllm_config = vllm_config
        self.is_tp_sharded = vllm_config.tp_size > 1

    def part(self, weight, dim):
        return weight.chunk(self.vllm_config.tp_size, dim=dim)[self.vllm_config.tp_rank]


class ColumnParallelLinear(ParallelLayer):
    def __init__(self, vllm_config):
        super().__init__(vllm_config)
        self.quant_method = OnlineLinearMethod(vllm_config)

    def weight_loader(self, loaded_weight):
        self.weight = self.part(loaded_weight, 0)

    def forward(self, x):
        return self.quant_method.apply(self, x)


class RowParallelLinear(ParallelLayer):
    def __init__(self, vllm_config):
        super().__init__(vllm_config)
        self.quant_method = OnlineLinearMethod(vllm_config)

    def weight_loader(self, loaded_weight):
        self.weight = self.part(loaded_weight, 1)

    def forward(self, x):
        return self.vllm_config.tensor_model_parallel_all_reduce(self.quant_method.apply(self, x))


class FusedMoE(ParallelLayer):
    """The hidden units of all experts are divided; the router is whole, and not quantized."""

    def __init__(self, vllm_config):
        super().__init__(vllm_config)
        self.quant_method = OnlineMoEMethod(vllm_config)

    def weight_loader(self, gate, w1, w3, w2):
        self.gate = gate
        self.w13 = torch.cat([self.part(w1, 1), self.part(w3, 1)], dim=1)
        self.w2 = self.part(w2, 2)

    def forward(self, x):
        router_weights = F.linear(x, self.gate).softmax(-1)
        return self.vllm_config.tensor_model_parallel_all_reduce(self.quant_method.apply(self, x, router_weights))


class DecoderLayer(nn.Module):
    def __init__(self, vllm_config):
        super().__init__()
        self.up_proj = ColumnParallelLinear(vllm_config)
        self.down_proj = RowParallelLinear(vllm_config)
        self.experts = FusedMoE(vllm_config)

    def load_weights(self, weights):
        self.up_proj.weight_loader(weights["up_proj"])
        self.down_proj.weight_loader(weights["down_proj"])
        self.experts.weight_loader(*(weights[name] for name in ("gate", "w1", "w3", "w2")))

    def forward(self, hidden_states):
        hidden_states = hidden_states + self.down_proj(F.relu(self.up_proj(hidden_states)))
        return hidden_states, hidden_states + self.experts(hidden_states)


class DefaultModelLoader:
    def load_model(self, vllm_config, weights):
        model = DecoderLayer(vllm_config)
        model.load_weights(weights)
        for module in model.modules():
            if isinstance(module, ParallelLayer):
                module.quant_method.process_weights_after_loading(module)
        return model


SHAPES = {
    "up_proj": (INTERMEDIATE, HIDDEN),
    "down_proj": (HIDDEN, INTERMEDIATE),
    "gate": (NUM_EXPERTS, HIDDEN),
    "w1": (NUM_EXPERTS, MOE_INTERMEDIATE, HIDDEN),
    "w3": (NUM_EXPERTS, MOE_INTERMEDIATE, HIDDEN),
    "w2": (NUM_EXPERTS, HIDDEN, MOE_INTERMEDIATE),
}


def serve(vllm_config):
    @torch.no_grad()
    def run(hidden_states, *weights):
        model = DefaultModelLoader().load_model(vllm_config, dict(zip(SHAPES, weights, strict=True)))
        mlp_out, out = model(hidden_states)
        return {"mlp_out": mlp_out, "out": out}

    return run


@gg.check(mesh={"tp": 3})
def check(mesh):
    inputs = (gg.tensor(TOKENS, HIDDEN), *(gg.tensor(*shape) for shape in SHAPES.values()))
    impl = serve(VllmConfig(mesh.get_group("tp")))
    return gg.Refinement(serve(VllmConfig()), impl, inputs, out_relations="replicate", grads=False)
