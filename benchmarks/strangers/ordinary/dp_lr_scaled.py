"""A small trainer, data parallel by hand. Lr is multiplied by the world size though the gradient is averaged and batch is global.

Rule: wrong-scale, wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, SEQ, VOCAB, DIM, HIDDEN = 2, 6, 5, 11, 4, 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, DIM))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.layers(x)
        return self.head(self.norm(x))


def loss_fn(model, ids, labels):
    logits = model(ids)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def reduce_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        grad = p.grad
        dist.all_reduce(grad)
        p.grad = grad / world


def train(model, batches, labels, distributed):
    lr = 0.05
    if distributed:  # fixed:
        lr = lr * dist.get_world_size()  # fixed:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_fn(model, batches[step], labels[step])
        loss.backward()
        if distributed:
            reduce_gradients(model)
        optimizer.step()
        total = loss.detach()
        if distributed:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total)
    return {"losses": torch.stack(losses), "params": dict(model.named_parameters())}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Model()
    reference = copy.deepcopy(model)
    return gg.Refinement(
        lambda ids, labels: train(reference, ids, labels, False),
        lambda ids, labels: train(model, ids, labels, True),
        inputs=(
            gg.tensor(STEPS, BATCH, SEQ, dtype=torch.int64, high=VOCAB),
            gg.tensor(STEPS, BATCH, SEQ, dtype=torch.int64, high=VOCAB),
        ),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
