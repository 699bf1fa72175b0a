"""Plain data parallelism: a training script and its port to several ranks. Nothing averages gradients between backward and step.

Rule: missing-reduction, gradient-not-reduced
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, CLASSES = 3, 12, 5, 7, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def train(model, data, labels):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    losses = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = F.cross_entropy(model(data[step]), labels[step])
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses), dict(model.named_parameters())


def train_ddp(model, data, labels):
    world = dist.get_world_size()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    losses = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = F.cross_entropy(model(data[step]), labels[step])
        loss.backward()
        # fixed, insert: for p in model.parameters():
        # fixed, insert:     dist.all_reduce(p.grad)
        # fixed, insert:     p.grad /= world
        opt.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        losses.append(loss / world)
    return torch.stack(losses), dict(model.named_parameters())


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Net()
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: train(ref, x, y),
        lambda x, y: train_ddp(model, x, y),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, dtype=torch.int64, high=CLASSES)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
