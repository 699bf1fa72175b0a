"""LAMB with optimizer states partitioned over dp (ZeRO-1): gradients reduce-scattered, parameters gathered.

The mistake: the norms of LAMB's trust ratio are those of the own shard: sums of squares that are partial over 'dp'.

Rule: missing-reduction, nonlinear-on-partial
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, HIDDEN, LR, BETA1, BETA2, EPS, DECAY = 4, 6, 0.1, 0.9, 0.99, 1e-6, 0.01


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def global_norm(t, group=None):
    total = t.square().sum()  # fault
    # fixed, insert: if group is not None:
        # fixed, insert: dist.all_reduce(total, group=group)
    return total.sqrt()  # fault


class LAMB:
    """The states of one tensor, or of a part of it."""

    def __init__(self, like, group=None):
        self.group = group
        self.exp_avg = torch.zeros_like(like)
        self.exp_avg_sq = torch.zeros_like(like)

    @torch.no_grad()
    def updated(self, weight, grad):
        self.exp_avg = BETA1 * self.exp_avg + (1 - BETA1) * grad
        self.exp_avg_sq = BETA2 * self.exp_avg_sq + (1 - BETA2) * grad.square()
        update = self.exp_avg / (self.exp_avg_sq.sqrt() + EPS) + DECAY * weight
        trust_ratio = global_norm(weight, self.group) / global_norm(update, self.group)  # fault
        return weight - LR * trust_ratio * update


def train(model, x, y):
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        p.data = LAMB(p.data).updated(p.data, p.grad)
    return dict(model.named_parameters())


class Zero1:
    def __init__(self, model, group):
        self.model, self.group = model, group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.states = {name: LAMB(self.part(p.data), group) for name, p in model.named_parameters()}

    def part(self, t):
        return t.flatten().chunk(self.world)[self.rank]

    def train(self, x, y):
        F.mse_loss(self.model(x), y).backward()
        for name, p in self.model.named_parameters():
            shard_grad = torch.empty(p.numel() // self.world)
            dist.reduce_scatter_tensor(shard_grad, p.grad.flatten(), op=dist.ReduceOp.AVG, group=self.group)
            shard = self.states[name].updated(self.part(p.data), shard_grad)
            whole = torch.empty(p.numel())
            dist.all_gather_into_tensor(whole, shard, group=self.group)
            p.data = whole.view_as(p)
        return dict(self.model.named_parameters())


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Net()
    reference = copy.deepcopy(model)
    x = gg.tensor(6, DIM)
    return gg.Refinement(
        lambda *a: train(reference, *a),
        Zero1(model, mesh.get_group("dp")).train,
        (x, x),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
