"""Sequence-parallel experts: each rank has tokens of its own, and a part of the shared expert's weights, so that nothing is there to be summed with. vLLM, Qwen3.5.

Source: https://github.com/vllm-project/vllm/issues/37856
Rule: missing-reduction, wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS = 6, 5, 8, 4


class MLP(nn.Module):
    """The shared expert, whole."""

    def __init__(self):
        super().__init__()
        self.up_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.up_proj(x)))


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.Parameter(torch.randn(EXPERTS, HIDDEN, HIDDEN))
        self.shared_expert = MLP()
        self.shared_expert_gate = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, x):
        routed = torch.einsum("te,th,ehd->td", self.gate(x).softmax(-1), x, self.experts)
        return routed + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)


class TensorParallel:
    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def reduce_scatter(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out

    def all_reduce(self, x):
        dist.all_reduce(x, group=self.group)
        return x


def sequence_parallel_chunk(x, tp):
    return x.chunk(tp.size)[tp.rank]


class ParallelMLP(nn.Module):
    def __init__(self, tp, reduce_results, disable_tp=False):
        super().__init__()
        self.tp_size, self.tp_rank = (1, 0) if disable_tp else (tp.size, tp.rank)
        self.tp, self.reduce_results = tp, reduce_results
        self.up_proj = nn.Linear(HIDDEN, INNER // self.tp_size, bias=False)
        self.down_proj = nn.Linear(INNER // self.tp_size, HIDDEN, bias=False)

    def load(self, state):
        with torch.no_grad():
            self.up_proj.weight.copy_(state["shared_expert.up_proj.weight"].chunk(self.tp_size)[self.tp_rank])
            self.down_proj.weight.copy_(state["shared_expert.down_proj.weight"].chunk(self.tp_size, dim=1)[self.tp_rank])

    def forward(self, x):
        out = self.down_proj(F.silu(self.up_proj(x)))  # fault
        return self.tp.all_reduce(out) if self.reduce_results and self.tp_size > 1 else out


class FusedMoE(nn.Module):
    """The experts of this rank; tokens come from all ranks, and the sums go back to theirs."""

    def __init__(self, tp):
        super().__init__()
        self.tp = tp
        self.weight = nn.Parameter(torch.empty(EXPERTS // tp.size, HIDDEN, HIDDEN))

    def load(self, state):
        with torch.no_grad():
            self.weight.copy_(state["experts"].chunk(self.tp.size)[self.tp.rank])

    def forward(self, x, router_logits):
        x, router_logits = self.tp.all_gather(x), self.tp.all_gather(router_logits)
        scores = router_logits.softmax(-1).chunk(self.tp.size, dim=1)[self.tp.rank]
        return self.tp.reduce_scatter(torch.einsum("te,th,ehd->td", scores, x, self.weight))


class Qwen3NextSparseMoeBlock(nn.Module):
    def __init__(self, group, is_sequence_parallel):
        super().__init__()
        self.tp = TensorParallel(group)
        self.is_sequence_parallel = is_sequence_parallel
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = FusedMoE(self.tp)
        self.shared_expert = ParallelMLP(self.tp, reduce_results=not is_sequence_parallel)  # fixed: self.shared_expert = ParallelMLP(self.tp, reduce_results=not is_sequence_parallel, disable_tp=is_sequence_parallel)
        self.shared_expert_gate = nn.Linear(HIDDEN, 1, bias=False)

    @torch.no_grad()
    def forward(self, hidden_states):
        if self.is_sequence_parallel:
            hidden_states = sequence_parallel_chunk(hidden_states, self.tp)
        router_logits = self.gate(hidden_states)
        shared = self.shared_expert_gate(hidden_states).sigmoid() * self.shared_expert(hidden_states)  # near
        final_hidden_states = self.experts(hidden_states, router_logits) + shared
        return self.tp.all_gather(final_hidden_states) if self.is_sequence_parallel else final_hidden_states


def load_weights(state, model, mesh):
    model.experts.load(state)
    model.shared_expert.load(state)
    with torch.no_grad():
        model.gate.weight.copy_(state["gate.weight"])
        model.shared_expert_gate.weight.copy_(state["shared_expert_gate.weight"])


@gg.check(mesh={"tp": 2})
def check(mesh):
    impl = Qwen3NextSparseMoeBlock(mesh.get_group("tp"), is_sequence_parallel=True)
    inputs = (gg.tensor(TOKENS, HIDDEN),)
    return gg.Refinement(SparseMoeBlock(), impl, inputs, load=load_weights, out_relations="replicate", grads=False)
