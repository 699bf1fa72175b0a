"""Drafting under attention DP: hidden states are gathered, each rank does its part of the vocabulary for all tokens, logits go back.

The mistake: what the all-to-all returns is (rank, token, vocabulary part): read as (token, rank, part) tokens get each other's logits.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, VOCAB, TOKENS = 5, 6, 8


class DraftHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.norm = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def features(self, embeds, hidden):
        return self.norm(self.fc(torch.cat([embeds, hidden], dim=-1)))

    def forward(self, embeds, hidden):
        return self.lm_head(self.features(embeds, hidden)).log_softmax(-1)


class LMHeadTP:
    """The head's vocabulary is split over ranks that have tokens of their own."""

    def __init__(self, weight, group):
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.weight = nn.Parameter(weight.detach().chunk(self.world)[self.rank].clone())

    def __call__(self, features):
        tokens = features.shape[0]
        everyone = torch.empty(self.world * tokens, HIDDEN)
        dist.all_gather_into_tensor(everyone, features.contiguous(), group=self.group)
        local_logits = F.linear(everyone, self.weight)
        exchanged = torch.empty_like(local_logits)
        dist.all_to_all_single(exchanged, local_logits, group=self.group)  # fault
        exchanged = exchanged.view(tokens, self.world, -1)  # fixed: exchanged = exchanged.view(self.world, tokens, -1).permute(1, 0, 2)
        return exchanged.reshape(tokens, VOCAB)  # fault


class ParallelDraftHead(DraftHead):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, embeds, hidden):
        logits = LMHeadTP(self.lm_head.weight, self.group)(self.features(embeds, hidden))
        return logits.log_softmax(-1)


@gg.check(mesh={"dp": 2})
def check(mesh):
    x = gg.tensor(TOKENS, HIDDEN)
    return gg.Refinement(
        DraftHead(),
        ParallelDraftHead(mesh.get_group("dp")),
        (x, x),
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Shard(0)},
        grads=False,
    )
