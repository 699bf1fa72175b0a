"""The router's weight is applied to the activation, before the second product; the bias that the product adds stays unweighted. NeMo Automodel's grouped experts.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/2591
Rule: wrong-relation, wrong-scale
"""

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS = 4, 3, 5, 6


class GptOssExperts(nn.Module):
    """Every expert on every token, its result weighted: the specification."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS)
        self.gate_up_proj = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))
        self.gate_up_bias = nn.Parameter(torch.randn(EXPERTS, INNER))
        self.down_proj = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN))
        self.down_bias = nn.Parameter(torch.randn(EXPERTS, HIDDEN))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        h = torch.tanh(torch.einsum("th,ehi->tei", x, self.gate_up_proj) + self.gate_up_bias)
        out = torch.einsum("tei,eih->teh", h, self.down_proj) + self.down_bias
        return (probs.unsqueeze(-1) * out).sum(1)


class GroupedLinear(nn.Module):
    """One product for each expert, with its bias."""

    def __init__(self, count, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(count, n_out))

    def forward(self, x):
        return torch.einsum("tei,eio->teo", x, self.weight) + self.bias


def quick_geglu_deepep(x, permuted_probs):
    return torch.tanh(x) * permuted_probs.unsqueeze(-1)


class GroupedExpertsTE(nn.Module):
    """The own experts; their results are summed over the group."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.rank, size = dist.get_rank(group), dist.get_world_size(group)
        self.count = EXPERTS // size
        self.gate_up_linear = GroupedLinear(self.count, HIDDEN, INNER)
        self.down_linear = GroupedLinear(self.count, INNER, HIDDEN)

    def own(self, tensor, dim=0):
        return tensor.narrow(dim, self.rank * self.count, self.count)

    def dispatch(self, x, probs):
        return x.unsqueeze(1).expand(-1, self.count, -1), self.own(probs, 1)

    def forward(self, x, probs):
        permuted, permuted_probs = self.dispatch(x, probs)
        h = quick_geglu_deepep(self.gate_up_linear(permuted), permuted_probs)
        out = self.down_linear(h)  # fault
        # fixed, insert: out = out + (permuted_probs - 1).unsqueeze(-1) * self.down_linear.bias
        out = out.sum(1)
        dist.all_reduce(out, group=self.group)
        return out


class MoE(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS)
        self.experts = GroupedExpertsTE(group)

    @torch.no_grad()
    def forward(self, x):
        return self.experts(x, self.gate(x).softmax(-1))


def load(state, model, mesh):
    experts = model.experts
    with torch.no_grad():
        model.gate.weight.copy_(state["router.weight"])
        model.gate.bias.copy_(state["router.bias"])
        experts.gate_up_linear.weight.copy_(experts.own(state["gate_up_proj"]))
        experts.gate_up_linear.bias.copy_(experts.own(state["gate_up_bias"]))
        experts.down_linear.weight.copy_(experts.own(state["down_proj"]))
        experts.down_linear.bias.copy_(experts.own(state["down_bias"]))


@gg.check(mesh={"ep": 3})
def check(mesh):
    impl = MoE(mesh.get_group("ep"))
    return gg.Refinement(
        GptOssExperts(), impl, (gg.tensor(TOKENS, HIDDEN),), out_relations="replicate", load=load, grads=False
    )
