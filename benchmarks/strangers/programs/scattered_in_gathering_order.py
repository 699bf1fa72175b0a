"""Tokens are gathered over one axis, then the other; the experts' sums are scattered in the same order, not in the reverse one. vLLM on Ascend.

Source: https://github.com/vllm-project/vllm-ascend/pull/11921
Rule: wrong-shard
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS = 12, 3, 4, 6


class Experts(nn.Module):
    """Every expert on every token, weighted by the router."""

    def __init__(self, count):
        super().__init__()
        self.w13 = nn.Parameter(torch.randn(count, HIDDEN, INNER))
        self.w2 = nn.Parameter(torch.randn(count, INNER, HIDDEN))

    def forward(self, x, scores):
        h = torch.tanh(torch.einsum("th,ehi->tei", x, self.w13))
        return torch.einsum("te,tei,eih->th", scores, h, self.w2)


class SparseMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = Experts(EXPERTS)
        self.shared_expert = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        return self.experts(x, self.gate(x).softmax(-1)) + torch.tanh(self.shared_expert(x))


def all_gather(x, group):
    out = torch.empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter(x, group):
    out = torch.empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class PrepareAndFinalizeWithAllGather:
    """Before the experts every rank gets all tokens; after them each gets the sums of its own."""

    def __init__(self, dp_group, pcp_group):
        self.dp_group = dp_group
        self.pcp_group = pcp_group

    def prepare(self, hidden_states, router_logits):
        for group in (self.dp_group, self.pcp_group):
            hidden_states = all_gather(hidden_states, group)
            router_logits = all_gather(router_logits, group)
        return hidden_states, router_logits

    def finalize(self, hidden_states):
        hidden_states = reduce_scatter(hidden_states, self.dp_group)  # fixed: hidden_states = reduce_scatter(hidden_states, self.pcp_group)
        hidden_states = reduce_scatter(hidden_states, self.pcp_group)  # fixed: hidden_states = reduce_scatter(hidden_states, self.dp_group)
        return hidden_states


class AscendFusedMoE(nn.Module):
    def __init__(self, ep_rank, ep_size, prepare_finalize):
        super().__init__()
        self.ep_rank, self.ep_size = ep_rank, ep_size
        self.prepare_finalize = prepare_finalize
        self.local = Experts(EXPERTS // ep_size)

    def own_scores(self, router_logits):
        return router_logits.softmax(-1).chunk(self.ep_size, dim=1)[self.ep_rank]

    def forward(self, hidden_states, router_logits):
        hidden_states, router_logits = self.prepare_finalize.prepare(hidden_states, router_logits)
        out = self.local(hidden_states, self.own_scores(router_logits))
        return self.prepare_finalize.finalize(out)


class ParallelSparseMoe(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        prepare_finalize = PrepareAndFinalizeWithAllGather(mesh.get_group("dp"), mesh.get_group("pcp"))
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = AscendFusedMoE(dist.get_rank(), dist.get_world_size(), prepare_finalize)
        self.shared_expert = nn.Linear(HIDDEN, HIDDEN, bias=False)

    @torch.no_grad()
    def forward(self, hidden_states):
        router_logits = self.gate(hidden_states)
        routed_out = self.experts(hidden_states, router_logits)
        return routed_out + torch.tanh(self.shared_expert(hidden_states))


def load_weights(state, model, mesh):
    experts = model.experts
    with torch.no_grad():
        model.gate.weight.copy_(state["gate.weight"])
        model.shared_expert.weight.copy_(state["shared_expert.weight"])
        for name in ("w13", "w2"):
            own = state[f"experts.{name}"].chunk(experts.ep_size)[experts.ep_rank]
            getattr(experts.local, name).copy_(own)


@gg.check(mesh={"dp": 2, "pcp": 3})
def check(mesh):
    rows = {"dp": Shard(0), "pcp": Shard(0)}
    inputs = (gg.tensor(TOKENS, HIDDEN),)
    return gg.Refinement(
        SparseMoe(), ParallelSparseMoe(mesh), inputs, in_relations=rows, out_relations=rows, load=load_weights, grads=False
    )
