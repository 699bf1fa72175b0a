"""Low-rank adapters beside column- and row-parallel weights, and a gated residual: inference."""

import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, HIDDEN, RANK, ALPHA = 6, 8, 2, 3.0


def adapted(x, up, up_a, up_b, down, down_a, down_b):
    """The specification: both products with an adapter of low rank beside them, and a residual."""
    h = F.silu(x @ up + ALPHA / RANK * (x @ up_a @ up_b))
    return x + h @ down + ALPHA / RANK * (h @ down_a @ down_b)


@gg.check(mesh={"tp": 2})
def adapters(mesh):
    group = mesh.get_group("tp")

    def impl(x, up, up_a, up_b, down, down_a, down_b):
        scale = ALPHA / RANK
        h = F.silu(x @ up + scale * (x @ up_a @ up_b))
        y = h @ down
        low = h @ down_a
        dist.all_reduce(y, group=group)
        dist.all_reduce(low, group=group)
        y = y + scale * (low @ down_b)
        return x + y

    columns, rows, whole = {"tp": Shard(1)}, {"tp": Shard(0)}, {}
    inputs = (
        gg.tensor(3, DIM),
        gg.tensor(DIM, HIDDEN),
        gg.tensor(DIM, RANK),
        gg.tensor(RANK, HIDDEN),
        gg.tensor(HIDDEN, DIM),
        gg.tensor(HIDDEN, RANK),
        gg.tensor(RANK, DIM),
    )
    relations = (whole, columns, whole, columns, rows, rows, whole)
    return gg.Refinement(adapted, impl, inputs, in_relations=relations, out_relations="replicate", grads=False)
