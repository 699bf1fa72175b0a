"""A mean over a dimension that is not divided evenly is the mean of the ranks' means, so that the short shard's rows weigh more. PyTorch's DTensor.

Source: https://github.com/pytorch/pytorch/issues/162692
Rule: wrong-scale, wrong-relation
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

import graphguard as gg

ROWS, COLUMNS, HIDDEN, EPS = 10, 7, 6, 1e-3
LINEAR_REDUCTIONS = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}
REDUCE_OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


@dataclass
class TensorMeta:
    shape: torch.Size


@dataclass
class DTensorSpec:
    """One mesh dimension: how the local tensors make up the global one."""

    group: Any
    placement: Any
    tensor_meta: TensorMeta = field(default=None)

    @property
    def mesh_size(self):
        return dist.get_world_size(self.group)

    def is_sharded(self):
        return isinstance(self.placement, Shard)

    def shard_sizes(self):
        """As ``torch.chunk`` cuts: the last ranks may have less, or nothing."""
        size = self.tensor_meta.shape[self.placement.dim]
        full = -(-size // self.mesh_size)
        return [min(full, max(size - full * rank, 0)) for rank in range(self.mesh_size)]


class DTensor:
    def __init__(self, local_tensor, spec):
        self._local_tensor = local_tensor
        self._spec = spec

    def redistribute(self, placement):
        return DTensor(*redistribute_local_tensor(self._local_tensor, self._spec, placement))

    def full_tensor(self):
        return self.redistribute(Replicate())._local_tensor

    def pointwise(self, function, *others):
        """Operands are sharded alike, or whole: a whole one of less dimensions is broadcast to the rows."""
        return DTensor(function(self._local_tensor, *(other._local_tensor for other in others)), self._spec)

    def reduce(self, op, dim=None, keepdim=False):
        dims = list(range(self._local_tensor.ndim)) if dim is None else [dim]
        return common_reduction_strategy(self, op, dims, keepdim)

    def mean(self, dim=None, keepdim=False):
        return self.reduce("mean", dim, keepdim)

    def sum(self, dim=None, keepdim=False):
        return self.reduce("sum", dim, keepdim)

    def amax(self, dim=None, keepdim=False):
        return self.reduce("amax", dim, keepdim)


def distribute_tensor(tensor, group, placement):
    spec = DTensorSpec(group, placement, TensorMeta(tensor.shape))
    if not spec.is_sharded():
        return DTensor(tensor, spec)
    parts = tensor.split(spec.shard_sizes(), dim=placement.dim)
    return DTensor(parts[dist.get_rank(group)], spec)


def redistribute_local_tensor(local_tensor, spec, placement):
    """To ``Replicate``: pieces are padded to one size and gathered; partial values are reduced."""
    target = DTensorSpec(spec.group, placement, spec.tensor_meta)
    if spec.is_sharded():
        sizes, dim = spec.shard_sizes(), spec.placement.dim
        moved = local_tensor.movedim(dim, 0)
        padded = torch.zeros(max(sizes), *moved.shape[1:])
        padded[: moved.shape[0]] = moved
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded, group=spec.group)
        pieces = [piece[:size] for piece, size in zip(gathered, sizes, strict=True)]
        return torch.cat(pieces).movedim(0, dim), target
    if isinstance(spec.placement, Partial):
        reduced = local_tensor.clone()
        dist.all_reduce(reduced, op=REDUCE_OPS[spec.placement.reduce_op], group=spec.group)
        if spec.placement.reduce_op == "avg":
            reduced = reduced / spec.mesh_size  # near
        return reduced, target
    return local_tensor, target


def common_reduction_strategy(dtensor, op, dims, keepdim):
    """A linear reduction over the sharded dimension leaves a partial value; any other needs the whole tensor."""
    spec = dtensor._spec
    reduces_shards = spec.is_sharded() and spec.placement.dim in dims
    reduction_linear = op in LINEAR_REDUCTIONS  # fixed: reduction_linear = op in LINEAR_REDUCTIONS and (op != "mean" or not reduces_shards or len(set(spec.shard_sizes())) == 1)
    if reduces_shards and not reduction_linear:
        dtensor = dtensor.redistribute(Replicate())
        spec, reduces_shards = dtensor._spec, False
    local = getattr(torch, op)(dtensor._local_tensor, dim=dims, keepdim=keepdim)
    shape = [1 if index in dims else size for index, size in enumerate(spec.tensor_meta.shape)]
    if not keepdim:
        shape = [size for index, size in enumerate(spec.tensor_meta.shape) if index not in dims]
    placement = spec.placement
    if reduces_shards:
        placement = Partial(LINEAR_REDUCTIONS[op])  # fault
    elif spec.is_sharded() and not keepdim:
        placement = Shard(placement.dim - sum(d < placement.dim for d in dims))
    return DTensor(local, DTensorSpec(spec.group, placement, TensorMeta(torch.Size(shape))))


def statistics(x, weight):
    """The specification: a layer's outputs, normalised over the batch, and what is logged of them."""
    hidden = x @ weight
    mean = hidden.mean(0)
    var = (hidden * hidden).mean(0) - mean * mean
    normalised = (hidden - mean) * torch.rsqrt(var.abs() + EPS)
    return {
        "normalised": normalised,
        "row_mean": hidden.mean(1),
        "total": hidden.sum(),
        "largest": hidden.amax(0),
        "activation_mean": normalised.square().mean(),
    }


def distributed_statistics(group):
    def run(x, weight):
        x, weight = distribute_tensor(x, group, Shard(0)), distribute_tensor(weight, group, Replicate())
        hidden = x.pointwise(torch.matmul, weight)
        mean = hidden.mean(0).redistribute(Replicate())
        second = hidden.pointwise(torch.square).mean(0).redistribute(Replicate())
        var = second.pointwise(lambda s, m: s - m * m, mean)
        normalised = hidden.pointwise(lambda h, m, v: (h - m) * torch.rsqrt(v.abs() + EPS), mean, var)
        return {
            "normalised": normalised.full_tensor(),
            "row_mean": hidden.mean(1).full_tensor(),
            "total": hidden.sum().full_tensor(),
            "largest": hidden.amax(0).full_tensor(),
            "activation_mean": normalised.pointwise(torch.square).mean().full_tensor(),
        }

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    return gg.Refinement(
        statistics,
        distributed_statistics(mesh.get_group("dp")),
        (gg.tensor(ROWS, COLUMNS), gg.tensor(COLUMNS, HIDDEN)),
        in_relations={"dp": Replicate()},
        out_relations="replicate",
        grads=False,
    )
