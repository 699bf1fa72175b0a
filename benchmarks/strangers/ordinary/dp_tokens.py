"""A language model's loss over tokens that are not padding. Each rank divides by its own number of tokens, then the average.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, SEQ, VOCAB, DIM = 2, 6, 5, 11, 4


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        return self.head(torch.tanh(self.proj(self.embed(ids))))


def train(model, ids, labels, mask):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        per_token = F.cross_entropy(model(ids[step]).flatten(0, 1), labels[step].flatten(), reduction="none")
        m = mask[step].flatten()
        loss = (per_token * m).sum() / m.sum()
        loss.backward()
        opt.step()
    return dict(model.named_parameters())


def train_dp(model, ids, labels, mask, group):
    world = dist.get_world_size(group)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        per_token = F.cross_entropy(model(ids[step]).flatten(0, 1), labels[step].flatten(), reduction="none")
        m = mask[step].flatten()
        count = m.sum()
        # fixed, insert: dist.all_reduce(count, group=group)
        loss = (per_token * m).sum() / count  # fault
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=group)
            p.grad /= world  # fixed: pass
        opt.step()
    return dict(model.named_parameters())


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = LM()
    ref = copy.deepcopy(model)
    shape = (STEPS, BATCH, SEQ)
    return gg.Refinement(
        lambda *a: train(ref, *a),
        lambda *a: train_dp(model, *a, mesh.get_group("dp")),
        inputs=(
            gg.tensor(*shape, dtype=torch.int64, high=VOCAB),
            gg.tensor(*shape, dtype=torch.int64, high=VOCAB),
            gg.tensor(*shape),
        ),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
