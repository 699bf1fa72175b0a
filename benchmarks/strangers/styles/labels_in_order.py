"""A language model's loss with zigzag context parallelism: a rank has one chunk from the front and one from the back.

The mistake: labels are cut in a row, the tokens in zigzag: rank 0 has labels 0..3, needs 0..1 and 6..7.

Rule: wrong-shard
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCAB, DIM, SEQ, LR = 7, 4, 8, 0.1


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Embedding(SEQ, DIM)
        self.fc = nn.Linear(DIM, DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, positions):
        h = self.embed(ids) + self.position(positions)
        return self.head(h + torch.tanh(self.fc(h)))


def zigzag(t, rank, world):
    chunks = t.chunk(2 * world, dim=-1)
    return torch.cat([chunks[rank], chunks[2 * world - 1 - rank]], dim=-1)


def spec_step(model):
    def step(ids, labels):
        F.cross_entropy(model(ids, torch.arange(SEQ)).flatten(0, 1), labels.flatten()).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
        return dict(model.named_parameters())

    return step


class ContextParallelTrainer:
    def __init__(self, model, group):
        self.model, self.group = model, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)

    def split(self, ids, labels):
        positions = zigzag(torch.arange(SEQ), self.rank, self.world)
        ids = zigzag(ids, self.rank, self.world)
        labels = labels.chunk(self.world, dim=-1)[self.rank]  # fixed: labels = zigzag(labels, self.rank, self.world)
        return ids, positions, labels

    def step(self, ids, labels):
        ids, positions, labels = self.split(ids, labels)
        F.cross_entropy(self.model(ids, positions).flatten(0, 1), labels.flatten()).backward()
        with torch.no_grad():
            for p in self.model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
                p -= LR * p.grad
        return dict(self.model.named_parameters())


@gg.check(mesh={"cp": 2})
def check(mesh):
    model = LM()
    ids = gg.tensor(3, SEQ, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        spec_step(model),
        ContextParallelTrainer(copy.deepcopy(model), mesh.get_group("cp")).step,
        (ids, ids),
        out_relations="replicate",
        grads=False,
    )
