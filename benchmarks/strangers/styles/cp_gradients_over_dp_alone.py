"""A training step on a mesh of data and context parallelism, with learned positions and attention over all tokens.

The mistake: the gradients are averaged over 'dp' alone: those of the other ranks of 'cp', which have other tokens, are left out.

Rule: gradient-not-reduced, wrong-group
"""
import copy
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, SEQ, LR = 6, 4, 4, 0.1
DATA_AXES = ("dp",)  # fixed: DATA_AXES = ("dp", "cp")


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None


class Model(nn.Module):
    def __init__(self, cp_group=None):
        super().__init__()
        self.cp_group = cp_group
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Embedding(SEQ, DIM)
        self.kv = nn.Linear(DIM, 2 * DIM, bias=False)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, positions):
        h = self.embed(ids) + self.position(positions)
        k, v = self.kv(h).chunk(2, dim=-1)
        if self.cp_group is not None:
            k, v = GatherSequence.apply(k, self.cp_group), GatherSequence.apply(v, self.cp_group)
        weights = (h @ k.transpose(1, 2) / math.sqrt(DIM)).softmax(-1)
        return self.head(h + weights @ v)


def compute_loss(model, ids, positions, labels):
    return F.cross_entropy(model(ids, positions).flatten(0, 1), labels.flatten())


def average_gradients(model, mesh):
    for axis in DATA_AXES:  # fault
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=mesh.get_group(axis))  # fault


def step_of(model, mesh=None):
    def step(ids, positions, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        compute_loss(model, ids, positions, labels).backward()  # fault
        if mesh is not None:
            average_gradients(model, mesh)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"dp": 2, "cp": 2})
def check(mesh):
    model = Model()
    impl = Model(mesh.get_group("cp"))
    impl.load_state_dict(copy.deepcopy(model.state_dict()))
    ids = gg.tensor(4, SEQ, dtype=torch.int64, high=VOCAB)
    positions = gg.tensor(4, SEQ, dtype=torch.int64, high=SEQ)
    return gg.Refinement(
        step_of(model),
        step_of(impl, mesh),
        (ids, positions, ids),
        in_relations={"dp": Shard(0), "cp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
