"""Experts' results are fetched by the expert ids that came with the other ranks' tokens, not by those of the own tokens, in the manner of vLLM with MoRI.

Source: https://github.com/vllm-project/vllm/pull/52639
Rule: wrong-relation, wrong-shard
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

EXPERTS, DIM, HIDDEN = 6, 4, 7
# the two experts of every token; half of the tokens are each rank's
TOPK_IDS = torch.tensor([[0, 1], [2, 4], [3, 5], [1, 2], [5, 0], [4, 3], [0, 2], [1, 5], [4, 5], [3, 1]])


class Experts(nn.Module):
    def __init__(self, first, count):
        super().__init__()
        self.first, self.count = first, count
        self.w1 = nn.Parameter(torch.empty(count, DIM, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(count, HIDDEN, DIM))

    def forward(self, x, topk_weights, topk_ids):
        """The sum over the experts here, by their weights."""
        chosen = F.one_hot(topk_ids, EXPERTS)[..., self.first : self.first + self.count]
        weights = (chosen * topk_weights.unsqueeze(-1)).sum(1)
        each = torch.relu(torch.einsum("td,edh->teh", x, self.w1))
        return torch.einsum("te,teh,ehd->td", weights, each, self.w2)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts(0, EXPERTS)

    def forward(self, x, topk_weights):
        return self.experts(x, topk_weights, TOPK_IDS)


class PrepareAndFinalize:
    """Every rank gets room for all tokens of every other one; combine adds up what comes from the ranks that a token went to."""

    def __init__(self, group):
        self.group = group
        self.ranks = dist.get_world_size(group)

    def to_all(self, x):
        x = x.repeat(self.ranks, *[1] * (x.dim() - 1))
        return self.exchanged(x)

    def exchanged(self, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=self.group)
        return out

    def prepare(self, x, topk_weights, topk_ids):
        return self.to_all(x), self.to_all(topk_weights), self.to_all(topk_ids)

    def finalize(self, out, topk_ids):
        parts = self.exchanged(out).chunk(self.ranks)
        total = torch.zeros_like(parts[0])
        for rank, part in enumerate(parts):
            went = (topk_ids[: len(part)] // (EXPERTS // self.ranks) == rank).any(1)
            total = total + part * went.unsqueeze(-1)
        return total


class ParallelMoE(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self.topk_ids = TOPK_IDS.chunk(ranks)[self.rank]
        self.experts = Experts(self.rank * (EXPERTS // ranks), EXPERTS // ranks)
        self.prepare_finalize = PrepareAndFinalize(group)

    def forward(self, x, topk_weights):
        topk_ids = self.topk_ids
        # fixed, insert: own_topk_ids = topk_ids
        x, topk_weights, topk_ids = self.prepare_finalize.prepare(x, topk_weights, topk_ids)  # fault
        out = self.experts(x, topk_weights, topk_ids)
        return self.prepare_finalize.finalize(out, topk_ids)  # fixed: return self.prepare_finalize.finalize(out, own_topk_ids)


@gg.check(mesh={"ep": 2})
def check(mesh):
    rows = {"ep": Shard(0)}
    inputs = (gg.tensor(len(TOPK_IDS), DIM), gg.tensor(len(TOPK_IDS), 2))
    impl = ParallelMoE(mesh.get_group("ep"))
    return gg.Refinement(MoE(), impl, inputs, in_relations=rows, out_relations=rows, grads=False)
