"""A data-parallel step that reduces gradients module by module; the embedding is the head's weight.

The mistake: 'wte.weight' is 'lm_head.weight': its gradient is all-reduced twice, and comes out dp = 3 times as large.

Rule: extra-reduction, wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, LR = 7, 4, 0.1


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.ln_f = nn.LayerNorm(DIM)
        self.mlp = nn.Linear(DIM, DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        h = self.wte(ids)
        return self.lm_head(self.ln_f(h + torch.tanh(self.mlp(h))))


def lm_loss(model, ids, labels):
    return F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())


def spec_step(model):
    def step(ids, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        lm_loss(model, ids, labels).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


class GradientReducer:
    """Reduces the gradients of one module after the other, from the last to the first."""

    def __init__(self, model, group):
        self.model, self.group = model, group
        self.world = dist.get_world_size(group)

    def reduce(self):  # fault
        # fixed, insert: done = set()
        for module in reversed(list(self.model.modules())):  # fault
            for p in module.parameters(recurse=False):  # fault
                # fixed, insert: if p in done:
                    # fixed, insert: continue
                # fixed, insert: done.add(p)
                dist.all_reduce(p.grad, group=self.group)  # fault
        for p in self.model.parameters():
            p.grad.div_(self.world)


def dp_step(model, group):
    reducer = GradientReducer(model, group)

    def step(ids, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        lm_loss(model, ids, labels).backward()
        reducer.reduce()
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = GPT()
    ids = gg.tensor(6, 2, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        spec_step(model),
        dp_step(copy.deepcopy(model), mesh.get_group("dp")),
        (ids, ids),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
