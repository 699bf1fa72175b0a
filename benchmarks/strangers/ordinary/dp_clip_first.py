"""Gradients are clipped. Clip_grad_norm_ before averaging.

Rule: missing-reduction, nonlinear-on-partial
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, CLASSES = 2, 6, 5, 7, 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(DIM, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES, bias=False)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def all_reduce_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.mul_(1.0 / dist.get_world_size())


def train_loop(model, xs, ys, is_distributed=False):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for step in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(xs[step]), ys[step])
        loss.backward()
        # fixed, insert: if is_distributed:
        # fixed, insert:     all_reduce_gradients(model)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # fault
        if is_distributed:  # fixed:
            all_reduce_gradients(model)  # fixed:
        opt.step()
        norms.append(norm)
    return norms, dict(model.named_parameters())


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Classifier()
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: train_loop(ref, x, y),
        lambda x, y: train_loop(model, x, y, is_distributed=True),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, dtype=torch.int64, high=CLASSES)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
