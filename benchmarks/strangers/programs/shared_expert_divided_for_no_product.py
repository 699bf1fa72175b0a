"""The fused shared expert is weighted by one over the routed experts' factor, which is to be multiplied in afterwards; a gate that has multiplied it in already leaves it divided. SGLang on ROCm.

Source: https://github.com/sgl-project/sglang/pull/28237
Rule: wrong-scale, wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, EXPERTS, INNER, FACTOR, EPS = 12, 5, 6, 7, 2.5, 1e-6


@dataclass(frozen=True)
class Config:
    routed_scaling_factor: float = FACTOR
    use_aiter: bool = True
    num_fused_shared_experts: int = 1

    def scaled_in_gate(self):
        """Whether the kernel that chooses experts puts the factor into their weights."""
        return self.use_aiter


class Ranks:
    def __init__(self, group):
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def dispatch(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def combine(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out


def rms_norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def grouped_weights(logits, correction_bias):
    scores = torch.sigmoid(logits) * torch.exp(correction_bias)
    return scores / scores.sum(-1, keepdim=True)


def aiter_biased_grouped_weights(logits, correction_bias, routed_scaling_factor):
    return grouped_weights(logits, correction_bias) * routed_scaling_factor


class TopK(nn.Module):
    """Weights of the routed experts, and one column more for the shared one that runs with them."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(EXPERTS, HIDDEN))
        self.e_score_correction_bias = nn.Parameter(torch.empty(EXPERTS))

    def select_experts(self, x):
        logits = x @ self.weight.t()
        if self.config.use_aiter:
            factor = self.config.routed_scaling_factor
            return aiter_biased_grouped_weights(logits, self.e_score_correction_bias, factor)
        return grouped_weights(logits, self.e_score_correction_bias)

    def remap_for_deepep(self, weights):
        factor = self.config.routed_scaling_factor
        scale = 1.0 / factor  # fixed: scale = 1.0 if self.config.scaled_in_gate() else 1.0 / factor
        shared = torch.full((weights.shape[0], self.config.num_fused_shared_experts), scale)
        return torch.cat([weights, shared], dim=-1)

    def forward(self, x):
        return self.remap_for_deepep(self.select_experts(x))


def expert(x, up, down):
    return torch.tanh(x @ up.t()) @ down.t()


class DeepEPMoE(nn.Module):
    """A rank's experts for all tokens, and the shared one for the rank's tokens."""

    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        self.local = EXPERTS // ranks.size
        self.up = nn.Parameter(torch.empty(self.local, INNER, HIDDEN))
        self.down = nn.Parameter(torch.empty(self.local, HIDDEN, INNER))
        self.shared_up = nn.Parameter(torch.empty(INNER, HIDDEN))
        self.shared_down = nn.Parameter(torch.empty(HIDDEN, INNER))

    def forward(self, x, weights):
        tokens, gates = self.ranks.dispatch(x), self.ranks.dispatch(weights[:, :EXPERTS])
        first = self.ranks.rank * self.local
        outs = [gates[:, first + i, None] * expert(tokens, self.up[i], self.down[i]) for i in range(self.local)]
        routed = self.ranks.combine(torch.stack(outs).sum(0))
        return routed + weights[:, EXPERTS:] * expert(x, self.shared_up, self.shared_down)


class DeepseekV2MoE(nn.Module):
    def __init__(self, config, ranks):
        super().__init__()
        self.config = config
        self.norm = nn.Parameter(torch.empty(HIDDEN))
        self.topk = TopK(config)
        self.experts = DeepEPMoE(ranks)

    @torch.no_grad()
    def forward(self, x):
        hidden = rms_norm(x, self.norm)
        out = self.experts(hidden, self.topk(hidden))
        if not self.config.scaled_in_gate():
            out = out * self.config.routed_scaling_factor  # near
        return x + out


class Reference(nn.Module):
    """As the model is published."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.rand(HIDDEN) + 0.5)
        self.gate, self.bias = nn.Parameter(torch.randn(EXPERTS, HIDDEN)), nn.Parameter(torch.randn(EXPERTS))
        self.up = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN))
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))
        self.shared_up = nn.Parameter(torch.randn(INNER, HIDDEN))
        self.shared_down = nn.Parameter(torch.randn(HIDDEN, INNER))

    @torch.no_grad()
    def forward(self, x):
        hidden = rms_norm(x, self.norm)
        weights = grouped_weights(hidden @ self.gate.t(), self.bias)
        outs = [weights[:, i, None] * expert(hidden, self.up[i], self.down[i]) for i in range(EXPERTS)]
        return x + FACTOR * torch.stack(outs).sum(0) + expert(hidden, self.shared_up, self.shared_down)


@torch.no_grad()
def load_weights(state, model, mesh):
    model.norm.copy_(state["norm"])
    model.topk.weight.copy_(state["gate"])
    model.topk.e_score_correction_bias.copy_(state["bias"])
    for name, parameter in model.experts.named_parameters():
        tensor = state[name]
        parameter.copy_(tensor if "shared" in name else tensor.chunk(mesh.size())[mesh.get_local_rank("ep")])


@gg.check(mesh={"ep": 3})
def check(mesh):
    rows = {"ep": Shard(0)}
    return gg.Refinement(
        Reference(),
        DeepseekV2MoE(Config(), Ranks(mesh.get_group("ep"))),
        (gg.tensor(TOKENS, HIDDEN),),
        load=load_weights,
        in_relations=rows,
        out_relations=(rows,),
        grads=False,
    )
