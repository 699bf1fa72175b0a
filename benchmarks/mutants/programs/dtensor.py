"""A decoder layer made tensor-parallel by plans, in the manner of torchtitan."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: F401  # edits use them all
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import graphguard as gg

DIM, HIDDEN, TOKENS = 6, 8, 4


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """The specification, and what the plan is applied to."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.feed_forward = FeedForward()

    def forward(self, x):
        return x + self.feed_forward(self.norm(x))


@gg.check(mesh={"tp": 2})
def dtensor_layer(mesh):
    plan = {
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(),
        "feed_forward.w3": ColwiseParallel(),
    }
    impl = parallelize_module(Layer(), mesh["tp"], plan)
    return gg.Refinement(Layer(), impl, (gg.tensor(2, TOKENS, DIM),), out_relations="replicate")


class Net(nn.Module):
    """A projection between two stages, whose layouts the plan must keep together."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(DIM, HIDDEN)
        self.mid = nn.Linear(HIDDEN, 10)
        self.out = nn.Linear(10, DIM)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        h = torch.tanh(self.mid(h))
        return self.out(h)


@gg.check(mesh={"tp": 2})
def dtensor_net(mesh):
    plan = {
        "inp": ColwiseParallel(),
        "mid": RowwiseParallel(),
        "out": ColwiseParallel(output_layouts=Replicate()),
    }
    return gg.Refinement(
        Net(), parallelize_module(Net(), mesh["tp"], plan), (gg.tensor(3, DIM),), out_relations="replicate"
    )


@gg.check(mesh={"tp": 2})
def dtensor_sequence(mesh):
    plan = {
        "norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }
    impl = parallelize_module(Layer(), mesh["tp"], plan)
    placements = {"tp": Shard(1)}
    return gg.Refinement(
        Layer(), impl, (gg.tensor(2, TOKENS, DIM),), in_relations=(placements,), out_relations=placements
    )
