"""Experts have moved between the ranks' slots, as their loads asked for; new weights from the trainer are loaded into the slots that the experts had at first, while tokens are sent to where they are now. prime-rl with vLLM's expert load balancer.

Source: https://github.com/PrimeIntellect-ai/prime-rl/pull/3583
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, REDUNDANT, TOP_K = 7, 4, 3, 5, 1, 2
LOADS = (4, 9, 3, 12, 6)  # tokens of each expert in the window that the balancer has seen


@dataclass
class ParallelConfig:
    ep_group: Any

    @property
    def ep_size(self):
        return dist.get_world_size(self.ep_group)

    @property
    def ep_rank(self):
        return dist.get_rank(self.ep_group)

    @property
    def slots(self):
        return (EXPERTS + REDUNDANT) // self.ep_size


@dataclass
class EplbState:
    """Which expert is in which slot; the ranks' slots are numbered one after the other."""

    physical_to_logical: list = field(default_factory=lambda: [i % EXPERTS for i in range(EXPERTS + REDUNDANT)])

    def replicas(self, expert):
        return [slot for slot, logical in enumerate(self.physical_to_logical) if logical == expert]


def rebalance_experts(loads, ep_size, slots):
    """The busiest experts get the spare slots, then the heaviest goes to the rank with the least load."""
    counts = [1] * EXPERTS
    for _ in range(REDUNDANT):
        busiest = max(range(EXPERTS), key=lambda expert: loads[expert] / counts[expert])
        counts[busiest] += 1
    items = [(loads[expert] / counts[expert], expert) for expert in range(EXPERTS) for _ in range(counts[expert])]
    ranks = [[] for _ in range(ep_size)]
    for load, expert in sorted(items, reverse=True):
        free = [rank for rank in ranks if len(rank) < slots]
        min(free, key=lambda rank: sum(each for each, _ in rank)).append((load, expert))
    return [expert for rank in ranks for _, expert in rank]


def expert_mlp(x, w1, w2):
    return torch.tanh(x @ w1.t()) @ w2.t()


def route(x, gate):
    """Weights of all experts, of which all but the best are zero."""
    scores = (x @ gate.t()).softmax(-1)
    values, ids = scores.topk(TOP_K, dim=-1)
    return torch.zeros_like(scores).scatter(-1, ids, values / values.sum(-1, keepdim=True))


class FusedMoE(nn.Module):
    """The experts in this rank's slots."""

    def __init__(self, config):
        super().__init__()
        self.config, self.eplb_state = config, EplbState()
        self.w1 = nn.Parameter(torch.zeros(config.slots, INNER, HIDDEN), requires_grad=False)
        self.w2 = nn.Parameter(torch.zeros(config.slots, HIDDEN, INNER), requires_grad=False)
        first = config.ep_rank * config.slots
        self.own_slots = range(first, first + config.slots)
        self.expert_params_mapping = self.make_expert_params_mapping()

    def make_expert_params_mapping(self):
        """For each own slot the expert to be loaded."""
        return [self.eplb_state.physical_to_logical[slot] for slot in self.own_slots]  # near

    def load_weights(self, weights):
        # fixed, insert: self.expert_params_mapping = self.make_expert_params_mapping()
        for local, expert in enumerate(self.expert_params_mapping):  # fault
            self.w1.data[local].copy_(weights["w1"][expert])
            self.w2.data[local].copy_(weights["w2"][expert])

    def rearrange(self, physical_to_logical):
        """Each slot is filled from the first one that has had its expert."""
        for parameter in (self.w1, self.w2):
            gathered = torch.empty(self.config.ep_size * self.config.slots, *parameter.shape[1:])
            dist.all_gather_into_tensor(gathered, parameter.data, group=self.config.ep_group)
            for local, slot in enumerate(self.own_slots):
                source = self.eplb_state.replicas(physical_to_logical[slot])[0]
                parameter.data[local].copy_(gathered[source])
        self.eplb_state.physical_to_logical = physical_to_logical  # near

    def forward(self, x, weights):
        out, tokens = torch.zeros_like(x), torch.arange(x.shape[0])
        for local, slot in enumerate(self.own_slots):
            expert = self.eplb_state.physical_to_logical[slot]  # near
            replicas = self.eplb_state.replicas(expert)
            mine = (tokens % len(replicas)) == replicas.index(slot)
            weight = (weights[:, expert] * mine).unsqueeze(-1)
            out = out + weight * expert_mlp(x, self.w1[local], self.w2[local])
        dist.all_reduce(out, group=self.config.ep_group)
        return out


class NCCLWeightBroadcastReceiver:
    """The trainer's weights, as the first rank has them."""

    def __init__(self, group):
        self.group = group

    def receive_state_dict(self, weights):
        for name, weight in weights.items():
            received = weight.clone()
            dist.broadcast(received, dist.get_global_rank(self.group, 0), group=self.group)
            yield name, received


class InferenceWorker:
    def __init__(self, config):
        self.config = config
        self.experts = FusedMoE(config)
        self.receiver = NCCLWeightBroadcastReceiver(config.ep_group)
        self.gate = torch.zeros(EXPERTS, HIDDEN)

    def update_weights(self, checkpoint):
        weights = dict(self.receiver.receive_state_dict(checkpoint))
        self.gate = weights["gate"]
        self.experts.load_weights(weights)

    def eplb_step(self):
        placement = rebalance_experts(LOADS, self.config.ep_size, self.config.slots)
        self.experts.rearrange(placement)

    def generate(self, x):
        return x + self.experts(x, route(x, self.gate))


def rollouts(config):
    """A policy's step, the balancer's, and that of the next policy."""

    @torch.no_grad()
    def run(x, *tensors):
        names = ("gate", "w1", "w2")
        worker = InferenceWorker(config)
        worker.update_weights(dict(zip(names, tensors[:3], strict=True)))
        first = worker.generate(x)
        worker.eplb_step()
        moved = worker.generate(x)
        worker.update_weights(dict(zip(names, tensors[3:], strict=True)))
        return {"first": first, "moved": moved, "updated": worker.generate(x)}

    return run


def moe(x, gate, w1, w2):
    weights = route(x, gate)
    return x + sum(weights[:, i, None] * expert_mlp(x, w1[i], w2[i]) for i in range(EXPERTS))


def spec(x, *tensors):
    first = moe(x, *tensors[:3])
    return {"first": first, "moved": first.clone(), "updated": moe(x, *tensors[3:])}


@gg.check(mesh={"ep": 3})
def check(mesh):
    policy = (gg.tensor(EXPERTS, HIDDEN), gg.tensor(EXPERTS, INNER, HIDDEN), gg.tensor(EXPERTS, HIDDEN, INNER))
    inputs = (gg.tensor(TOKENS, HIDDEN), *policy, *policy)
    impl = rollouts(ParallelConfig(mesh.get_group("ep")))
    return gg.Refinement(spec, impl, inputs, out_relations="replicate", grads=False)
