"""Rank 0 loads a checkpoint, the others get it by a broadcast. Only rank 0 loads the checkpoint, nothing broadcasts the weights.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, OUT = 2, 6, 4, 7, 5


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, OUT)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def load_checkpoint(model, checkpoint):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(checkpoint[name])


def fit(model, xs, ys, world=1):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        loss = F.mse_loss(model(xs[step]), ys[step])
        loss.backward()
        if world > 1:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
        opt.step()
    return dict(model.named_parameters())


def single(checkpoint, xs, ys):
    model = MLP()
    load_checkpoint(model, checkpoint)
    return fit(model, xs, ys)


def multi(checkpoint, xs, ys):
    torch.manual_seed(dist.get_rank())
    model = MLP()
    if dist.get_rank() == 0:
        load_checkpoint(model, checkpoint)  # fault
    # fixed, insert: for p in model.parameters():
    # fixed, insert:     dist.broadcast(p.data, src=0)
    return fit(model, xs, ys, dist.get_world_size())


@gg.check(mesh={"dp": 3})
def check(mesh):
    checkpoint = {
        "up.weight": gg.tensor(HIDDEN, DIM), "up.bias": gg.tensor(HIDDEN),
        "down.weight": gg.tensor(OUT, HIDDEN), "down.bias": gg.tensor(OUT),
    }
    whole = {"dp": Replicate()}
    return gg.Refinement(
        single,
        multi,
        inputs=(checkpoint, gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, OUT)),
        in_relations=(whole, {"dp": Shard(1)}, {"dp": Shard(1)}),
        out_relations="replicate",
        grads=False,
    )
