"""Gradients of all parameters in one bucket: reduce-scattered within a node, all-reduced between nodes, gathered.

The mistake: 'flat_grad' is averaged over 'shard' and summed over 'replicate': replicate = 2 times too large.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, HIDDEN, CLASSES, LR = 4, 6, 5, 0.1


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class HierarchicalAllReduce:
    """Average over all ranks in three steps."""

    def __init__(self, mesh):
        self.intra, self.inter = mesh.get_group("shard"), mesh.get_group("replicate")
        self.world = dist.get_world_size(self.intra)

    def __call__(self, flat_grad):
        padding = -flat_grad.numel() % self.world
        padded = F.pad(flat_grad, (0, padding))
        part = torch.empty(padded.numel() // self.world)
        dist.reduce_scatter_tensor(part, padded, op=dist.ReduceOp.AVG, group=self.intra)
        dist.all_reduce(part, group=self.inter)  # fixed: dist.all_reduce(part, op=dist.ReduceOp.AVG, group=self.inter)
        dist.all_gather_into_tensor(padded, part, group=self.intra)
        return padded[: flat_grad.numel()]


def flatten(tensors):
    return torch.cat([t.flatten() for t in tensors])


def unflatten_into(flat, tensors):
    for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        t.copy_(part.view_as(t))


def step_of(model, reduce=None):
    def step(x, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=0.01)
        F.cross_entropy(model(x), labels).backward()
        if reduce is not None:
            grads = [p.grad for p in model.parameters()]
            unflatten_into(reduce(flatten(grads)), grads)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"replicate": 2, "shard": 3})
def check(mesh):
    model = Classifier()
    return gg.Refinement(
        step_of(model),
        step_of(copy.deepcopy(model), HierarchicalAllReduce(mesh)),
        (gg.tensor(12, DIM), gg.tensor(12, dtype=torch.int64, high=CLASSES)),
        in_relations={"replicate": Shard(0), "shard": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
