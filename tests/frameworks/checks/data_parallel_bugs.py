"""Natural mistakes with PyTorch's data parallelism."""

import torch
import torch.distributed as dist
from data_parallel import DATA, DIM, HIDDEN, Net, X, data_parallel
from torch import nn

import graphguard as gg


@gg.check(mesh={"dp": 2})
def hook_that_sums(mesh):
    """DDP divides by itself only without a hook."""

    def hook(group, bucket):
        work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)  # the mistake
        return work.get_future().then(lambda done: done.value()[0])

    def step(model):
        def run(x):
            model(x).square().mean().backward()
            return {name: p.grad for name, p in model.named_parameters()}

        return run

    model = data_parallel(mesh, Net())
    model.register_comm_hook(mesh.get_group("dp"), hook)
    return gg.Refinement(step(Net()), step(model), X, in_relations=DATA)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.up(x))  # the mistake


@gg.check(mesh={"dp": 2})
def batch_norm_of_one_rank(mesh):
    """Without SyncBatchNorm every rank normalises by its own part of the batch."""
    model = data_parallel(mesh, Normalised(), broadcast_buffers=False)
    return gg.Refinement(Normalised(), model, X, in_relations=DATA, grads=False)


@gg.check(mesh={"dp": 2})
def never_synchronised(mesh):
    def step(model, group=None):
        def run(x):
            if group is None:
                model(x).square().mean().backward()
            else:
                with model.no_sync():
                    model(x).square().mean().backward()  # the mistake
            return {name: p.grad for name, p in model.named_parameters()}

        return run

    model = data_parallel(mesh, Net())
    return gg.Refinement(step(Net()), step(model, mesh.get_group("dp")), X, in_relations=DATA)
