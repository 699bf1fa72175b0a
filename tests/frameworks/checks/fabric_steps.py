"""Lightning Fabric, unmodified: a model that it sets up, under DDP, FSDP2 and tensor parallelism."""

from accelerate_steps import MLP, ROWS, X, whole_step
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import graphguard as gg


def fabric_step(fabric):
    """Loss and gradients."""
    fabric.launch()
    model = fabric.setup(MLP())

    def run(x):
        loss = model(x).square().mean()
        fabric.backward(loss)
        mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
        return {"loss": mean, **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"dp": 2})
def distributed(mesh):
    fabric = Fabric(accelerator="cpu", devices=mesh.size(), strategy="ddp")
    return gg.Refinement(whole_step(), fabric_step(fabric), (X,), in_relations=ROWS)


def sharded(model, device_mesh):
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=device_mesh["data_parallel"])
    return fully_shard(model, mesh=device_mesh["data_parallel"])


def planned(model, device_mesh):
    return parallelize_module(
        model, device_mesh["tensor_parallel"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )


@gg.check(mesh={"dp": 2})
def fully_sharded(mesh):
    strategy = ModelParallelStrategy(sharded, data_parallel_size=mesh.size(), tensor_parallel_size=1)
    fabric = Fabric(accelerator="cuda", devices=mesh.size(), strategy=strategy)
    return gg.Refinement(whole_step(), fabric_step(fabric), (X,), in_relations=ROWS)


@gg.check(mesh={"tp": 2})
def tensor_parallel(mesh):
    strategy = ModelParallelStrategy(planned, data_parallel_size=1, tensor_parallel_size=mesh.size())
    fabric = Fabric(accelerator="cuda", devices=mesh.size(), strategy=strategy)
    return gg.Refinement(whole_step(), fabric_step(fabric), (X,))
