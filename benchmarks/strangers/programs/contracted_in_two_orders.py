"""The strategy of a product asks that both operands are cut along what is summed over; that one was cut by the axes of the mesh in the other order is not seen. DTensor.

Source: https://github.com/pytorch/pytorch/issues/166598
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, FEATURES, HIDDEN, OUTPUTS = 5, 12, 7, 9


@dataclass(frozen=True)
class Layout:
    """Cut along ``dim`` by the mesh's axes, the first of them first."""

    dim: int
    shard_order: tuple[str, ...]


@dataclass(frozen=True)
class DTensor:
    """A part, and how it lies in the whole; no layout is a partial sum over all axes."""

    local: Any
    layout: Layout | None
    mesh: Any

    def full_tensor(self):
        if self.layout is None:
            total = self.local.clone()
            for axis in self.mesh.mesh_dim_names:
                dist.all_reduce(total, group=self.mesh.get_group(axis))
            return total
        tensor = self.local.movedim(self.layout.dim, 0)
        for axis in reversed(self.layout.shard_order):
            out = torch.empty(self.mesh[axis].size() * tensor.shape[0], *tensor.shape[1:])
            dist.all_gather_into_tensor(out, tensor.contiguous(), group=self.mesh.get_group(axis))
            tensor = out
        return tensor.movedim(0, self.layout.dim)

    def redistribute(self, layout):
        if layout == self.layout:
            return self
        return distribute_tensor(self.full_tensor(), layout, self.mesh)


def distribute_tensor(tensor, layout, mesh):
    for axis in layout.shard_order:
        tensor = tensor.chunk(mesh[axis].size(), layout.dim)[mesh.get_local_rank(axis)]
    return DTensor(tensor, layout, mesh)


def mm_strategy(a, b):
    """What the operands are redistributed to, so that the parts' products are parts of the product."""
    if a.layout.dim == 1 and b.layout.dim == 0:
        return a.layout, b.layout  # fixed: return a.layout, Layout(0, a.layout.shard_order)
    order = a.layout.shard_order
    return Layout(1, order), Layout(0, order)


def mm(a, b):
    of_a, of_b = mm_strategy(a, b)
    a, b = a.redistribute(of_a), b.redistribute(of_b)
    return DTensor(a.local @ b.local, None, a.mesh)  # near


def unary(op, a):
    return replace(a, local=op(a.local))


class Projector(nn.Module):
    """Two products with something between that is no sum's friend."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(FEATURES, HIDDEN))
        self.bias = nn.Parameter(torch.randn(HIDDEN))
        self.down = nn.Parameter(torch.randn(HIDDEN, OUTPUTS))

    def forward(self, x):
        return torch.tanh(torch.relu(x) @ self.up + self.bias) @ self.down


class ParallelProjector(nn.Module):
    """Tensor parallelism cuts the weight's rows, full sharding cuts each part again."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        self.layout = Layout(0, ("tp", "dp"))
        self.up = nn.Parameter(torch.empty(FEATURES // mesh.size(), HIDDEN))
        self.bias = nn.Parameter(torch.empty(HIDDEN))
        self.down = nn.Parameter(torch.empty(HIDDEN, OUTPUTS))

    @torch.no_grad()
    def forward(self, x):
        x = unary(torch.relu, DTensor(x, Layout(1, ("dp", "tp")), self.mesh))
        hidden = mm(x, DTensor(self.up, self.layout, self.mesh)).full_tensor()
        return torch.tanh(hidden + self.bias) @ self.down

    def load(self, state):
        with torch.no_grad():
            self.up.copy_(distribute_tensor(state["up"], self.layout, self.mesh).local)
            self.bias.copy_(state["bias"])
            self.down.copy_(state["down"])


@gg.check(mesh={"dp": 2, "tp": 3})
def check(mesh):
    return gg.Refinement(
        Projector(),
        ParallelProjector(mesh),
        (gg.tensor(TOKENS, FEATURES),),
        load=lambda state, impl, _: impl.load(state),
        in_relations=({"dp": Shard(1), "tp": Shard(1)},),
        out_relations=({"dp": Replicate(), "tp": Replicate()},),
        grads=False,
    )
