"""The experts' operator counts a rank's experts from zero; it gets the numbers among all of them. vLLM on Gaudi.

Source: https://github.com/vllm-project/vllm-gaudi/pull/1796
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, EPS = 5, 1e-6


@dataclass
class MoEConfig:
    hidden: int = 6
    inner: int = 7
    num_experts: int = 8
    top_k: int = 3


@dataclass
class ExpertParallel:
    group: object
    rank: int
    size: int

    @classmethod
    def of(cls, mesh):
        return cls(mesh.get_group("ep"), mesh.get_local_rank("ep"), mesh["ep"].size())


class ExpertMapManager:
    """From an expert's number to its place on this rank, or -1 where another rank has it."""

    def __init__(self, num_experts, ep=None):
        rank, size = (0, 1) if ep is None else (ep.rank, ep.size)
        self.local_num_experts = num_experts // size
        self.first = rank * self.local_num_experts
        owned = range(self.first, self.first + self.local_num_experts)
        self.expert_map = torch.tensor([e - self.first if e in owned else -1 for e in range(num_experts)])


def mixture_of_experts(hidden, expert_routing_table, router_weights, w13, w2, experts_min, experts_max):
    """Runs the experts of the lists, from the first number to the last; other entries of the table are none."""
    out = torch.zeros_like(hidden)
    for expert, (gate_up, down) in enumerate(zip(w13, w2, strict=True)):
        if expert < experts_min or expert > experts_max:
            continue
        weight = router_weights.masked_fill(expert_routing_table != expert, 0.0).sum(-1, keepdim=True)
        gate, up = (hidden @ gate_up.t()).chunk(2, dim=-1)
        out = out + weight * ((torch.sigmoid(gate) * gate * up) @ down.t())
    return out


class FusedMoE(nn.Module):
    """The experts of this rank."""

    def __init__(self, config, ep=None):
        super().__init__()
        self.config, self.ep = config, ep
        self.map_manager = ExpertMapManager(config.num_experts, ep)
        local = self.map_manager.local_num_experts
        self.w13 = nn.Parameter(torch.randn(local, 2 * config.inner, config.hidden) * 0.5)
        self.w2 = nn.Parameter(torch.randn(local, config.hidden, config.inner) * 0.5)

    def select_experts(self, router_logits):
        weights, ids = router_logits.softmax(-1).topk(self.config.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), ids

    def forward(self, hidden, router_logits):
        topk_weights, topk_ids = self.select_experts(router_logits)
        local = self.map_manager.local_num_experts
        ep_shift = self.map_manager.first  # fixed: ep_shift = 0
        experts_min, experts_max = ep_shift, local + ep_shift - 1
        table = topk_ids  # fixed: table = self.map_manager.expert_map[topk_ids]
        return mixture_of_experts(hidden, table, topk_weights, self.w13, self.w2, experts_min, experts_max)  # fault


class SharedExpert(nn.Module):
    """For all tokens; every rank has it whole and adds it after the sum."""

    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(self, hidden):
        return self.down(torch.tanh(self.up(hidden)))


class SparseMoeBlock(nn.Module):
    """All ranks have all tokens."""

    def __init__(self, config, ep=None):
        super().__init__()
        self.ep = ep
        self.gate = nn.Linear(config.hidden, config.num_experts, bias=False)
        self.experts = FusedMoE(config, ep)
        self.shared_expert = SharedExpert(config)

    def forward(self, hidden):
        routed = self.experts(hidden, self.gate(hidden))
        if self.ep is not None:
            dist.all_reduce(routed, group=self.ep.group)  # near
        return routed + self.shared_expert(hidden)


class DecoderLayer(nn.Module):
    """Only the half with the experts: norm, experts, residual."""

    def __init__(self, config, ep=None):
        super().__init__()
        self.post_attention_layernorm = nn.Parameter(torch.rand(config.hidden) + 0.5)
        self.mlp = SparseMoeBlock(config, ep)

    def forward(self, hidden):
        normed = hidden * (hidden.square().mean(-1, keepdim=True) + EPS).rsqrt()
        return hidden + self.mlp(normed * self.post_attention_layernorm)


def load_weights(state, layer, mesh):
    rank, ranks = mesh.get_local_rank("ep"), mesh["ep"].size()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            own = name.startswith("mlp.experts.")
            parameter.copy_(state[name].chunk(ranks)[rank] if own else state[name])


@gg.check(mesh={"ep": 2})
def check(mesh):
    config = MoEConfig()
    impl = DecoderLayer(config, ExpertParallel.of(mesh))
    inputs = (gg.tensor(TOKENS, config.hidden),)
    return gg.Refinement(DecoderLayer(config), impl, inputs, load=load_weights, out_relations="replicate", grads=False)
