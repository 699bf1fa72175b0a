"""The shared expert reduces its own result although its sum with the routed experts is reduced, in the manner of vLLM's DeepseekV2MoE.

Source: https://github.com/vllm-project/vllm/pull/49366
Rule: extra-reduction, wrong-scale
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, INTERMEDIATE, EXPERTS = 5, 4, 3
_TP = None


def tensor_model_parallel_all_reduce(x):
    x = x.clone()
    dist.all_reduce(x, group=_TP)
    return x


class MLP(nn.Module):
    def __init__(self, intermediate, reduce_results=False):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, intermediate, bias=False)
        self.up_proj = nn.Linear(HIDDEN, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, HIDDEN, bias=False)
        self.reduce_results = reduce_results

    def forward(self, x):
        x = F.silu(self.gate_proj(x)) * self.up_proj(x)
        x = self.down_proj(x)
        if self.reduce_results:
            x = tensor_model_parallel_all_reduce(x)  # near
        return x


class FusedMoE(nn.Module):
    def __init__(self, intermediate):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, intermediate, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, intermediate))

    def forward(self, x, router_logits):
        weights = router_logits.softmax(-1)
        h = F.silu(torch.einsum("th,eih->tei", x, self.w1))
        return torch.einsum("tei,ehi,te->th", h, self.w2, weights)


class DeepseekMoE(nn.Module):
    """The specification."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = FusedMoE(INTERMEDIATE)
        self.shared_experts = MLP(INTERMEDIATE)

    def forward(self, hidden_states):
        router_logits = self.gate(hidden_states)
        return self.experts(hidden_states, router_logits) + self.shared_experts(hidden_states)


class ParallelDeepseekMoE(nn.Module):
    def __init__(self, tp_size):
        super().__init__()
        self.tp_size = tp_size
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = FusedMoE(INTERMEDIATE // tp_size)
        self.shared_experts = MLP(
            INTERMEDIATE // tp_size,
            reduce_results=True,  # fixed: reduce_results=False,
        )

    def forward(self, hidden_states):
        router_logits = self.gate(hidden_states)
        shared_output = self.shared_experts(hidden_states)
        final_hidden_states = self.experts(hidden_states, router_logits)
        final_hidden_states = final_hidden_states + shared_output
        if self.tp_size > 1:
            final_hidden_states = tensor_model_parallel_all_reduce(final_hidden_states)
        return final_hidden_states


@gg.check(mesh={"tp": 2})
def check(mesh):
    global _TP
    _TP = mesh.get_group("tp")
    impl = ParallelDeepseekMoE(mesh["tp"].size())
    return gg.Refinement(DeepseekMoE(), impl, (gg.tensor(3, HIDDEN),), out_relations="replicate", grads=False)
