"""Natural mistakes with DTensor plans, FSDP and DDP: each is found, at the line that makes it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import graphguard as gg


class MLP(nn.Module):
    def __init__(self, dim: int = 6, hidden: int = 16) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class ClosesTooEarly(MLP):
    """Takes the local tensor of a sharded activation and adds it up by hand, forgetting to."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        product = F.linear(hidden, self.down.weight.to_local())  # the mistake
        return x + product + self.down.bias


INPUT = (gg.tensor(4, 5, 6),)


@gg.check(mesh={"tp": 2})
def local_product_is_not_reduced(mesh):
    model = ClosesTooEarly()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel()})
    model.down.weight = nn.Parameter(distribute_tensor(model.down.weight, mesh["tp"], [Shard(1)]))
    return gg.Refinement(MLP(), model, INPUT, out_relations="replicate")


class FromLocalAsReplicated(MLP):
    def __init__(self, mesh) -> None:
        super().__init__()
        self.mesh = mesh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        product = F.linear(hidden, self.down.weight)  # the mistake
        whole = DTensor.from_local(product, self.mesh, [Replicate()], run_check=False).to_local()
        return x + whole + self.down.bias


@gg.check(mesh={"tp": 2})
def partial_declared_as_replicated(mesh):
    model = parallelize_module(FromLocalAsReplicated(mesh["tp"]), mesh["tp"], {"up": ColwiseParallel()})
    model.down.weight = nn.Parameter(torch.empty(6, 8))
    return gg.Refinement(MLP(), model, INPUT, out_relations="replicate")


class Step:
    def __init__(self, model: nn.Module, reduce: str = "mean") -> None:
        self.model = model
        self.reduce = reduce

    def __call__(self, x: torch.Tensor):
        y = self.model(x)
        loss = y.square().mean() if self.reduce == "mean" else y.square().sum()  # the mistake
        loss.backward()
        return {name: parameter.grad for name, parameter in self.model.named_parameters()}


@gg.check(mesh={"dp": 2})
def mean_of_sums(mesh):
    """FSDP averages the ranks' gradients; a summed loss needs their sum."""
    model = fully_shard(MLP(), mesh=mesh["dp"])
    return gg.Refinement(Step(MLP(), "sum"), Step(model, "sum"), INPUT, in_relations={"dp": Shard(0)})


class Added(MLP):
    """local_map declares its output as a partial sum; the function forgets that the bias is added by all."""

    def __init__(self, mesh) -> None:
        super().__init__()
        self.mesh = mesh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))

        def product(hidden, weight, bias):
            return F.linear(hidden, weight, bias)  # the mistake

        mapped = local_map(
            product,
            out_placements=[Partial()],
            in_placements=([Shard(2)], [Shard(1)], [Replicate()]),
            device_mesh=self.mesh,
        )
        hidden = DTensor.from_local(hidden, self.mesh, [Shard(2)], run_check=False)
        return x + mapped(hidden, self.down.weight, self.down.bias).full_tensor()


@gg.check(mesh={"tp": 2})
def bias_added_by_all(mesh):
    model = parallelize_module(Added(mesh["tp"]), mesh["tp"], {"up": ColwiseParallel()})
    model.down.weight = nn.Parameter(distribute_tensor(model.down.weight, mesh["tp"], [Shard(1)]))
    model.down.bias = nn.Parameter(distribute_tensor(model.down.bias, mesh["tp"], [Replicate()]))
    return gg.Refinement(MLP(), model, INPUT, out_relations="replicate")
