"""Data parallelism with one flat bucket for all gradients. Sync_gradients sums and never divides.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard
from torch.nn.utils import parameters_to_vector

import graphguard as gg

STEPS, ROWS, DIM, HIDDEN, OUT = 2, 9, 4, 6, 5


class Trainer:
    def __init__(self, model, group=None, lr=0.05):
        self.model = model
        self.group = group
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)

    def sync_gradients(self):
        """Sums all gradients in one message."""
        grads = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat, group=self.group)  # fault
        # fixed, insert: flat /= dist.get_world_size(self.group)
        offset = 0
        for g in grads:
            g.copy_(flat[offset : offset + g.numel()].view_as(g))
            offset += g.numel()

    def train_step(self, x, y):
        self.opt.zero_grad()
        loss = (self.model(x) - y).pow(2).mean()
        loss.backward()
        if self.group is not None:
            self.sync_gradients()
        self.opt.step()

    def fit(self, xs, ys):
        for step in range(STEPS):
            self.train_step(xs[step], ys[step])
        return self.model.state_dict()


def make_model():
    return nn.Sequential(nn.Linear(DIM, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, OUT))


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = make_model()
    single = Trainer(copy.deepcopy(model))
    multi = Trainer(model, mesh.get_group("dp"))
    return gg.Refinement(
        single.fit,
        multi.fit,
        inputs=(gg.tensor(STEPS, ROWS, DIM), gg.tensor(STEPS, ROWS, OUT)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
