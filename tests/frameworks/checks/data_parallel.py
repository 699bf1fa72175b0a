"""PyTorch's data parallelism beside FSDP2: DDP's hooks and accumulation, SyncBatchNorm, ZeroRedundancyOptimizer, FSDP of the first generation."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._composable import checkpoint, replicate
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

import graphguard as gg

BATCH, DIM, HIDDEN = 8, 6, 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Net(), Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(x)).relu())


class Convolved(nn.Module):
    """Padded convolutions, each with its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Conv2d(4, 5, 3, padding=1, stride=2)
        self.norms = nn.ModuleList((nn.BatchNorm2d(4), nn.BatchNorm2d(5)))
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.first(x)).relu()
        return self.head(self.norms[1](self.second(x)).relu().mean((2, 3)))


def over_all(loss: torch.Tensor, group=None) -> torch.Tensor:
    """The mean of the ranks' losses, as trainers log it."""
    loss = loss.detach().clone()
    if group is not None:
        dist.all_reduce(loss, group=group)
        loss /= dist.get_world_size(group)
    return loss


def step(model: nn.Module, group=None):
    """Loss and gradients."""

    def run(x: torch.Tensor):
        loss = model(x).square().mean()
        loss.backward()
        return {"loss": over_all(loss, group), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def in_two(model: nn.Module, group=None):
    """The same over two batches, all of whose gradients DDP reduces."""

    def run(x: torch.Tensor):
        losses = []
        for half in x.chunk(2):
            losses.append(model(half).square().mean() / 2)
            losses[-1].backward()
        return {"loss": over_all(sum(losses), group), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def optimised(model: nn.Module, optimiser, group=None):
    """Loss, and the parameters after one step."""

    def run(x: torch.Tensor):
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        return {"loss": over_all(loss, group), **dict(model.named_parameters())}

    return run


X = (gg.tensor(BATCH, DIM),)
DATA = {"dp": Shard(0)}


def data_parallel(mesh, model: nn.Module, **others) -> DistributedDataParallel:
    return DistributedDataParallel(model, process_group=mesh.get_group("dp"), **others)


def hooked(mesh, hook, state=None) -> gg.Refinement:
    group = mesh.get_group("dp")
    model = data_parallel(mesh, Net())
    model.register_comm_hook(state or group, hook)
    return gg.Refinement(step(Net()), step(model, group), X, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def several_batches(mesh):
    group = mesh.get_group("dp")
    model = DistributedDataParallel(Two(), process_group=group)
    return gg.Refinement(step(Two()), in_two(model, group), (gg.tensor(BATCH, DIM),), in_relations={"dp": Shard(0)})


@gg.check(mesh={"dp": 2})
def all_reduce_hook(mesh):
    return hooked(mesh, default_hooks.allreduce_hook)


@gg.check(mesh={"dp": 2})
def power_sgd_hook(mesh):
    """Its first steps reduce whole gradients."""
    return hooked(mesh, powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(mesh.get_group("dp")))


@gg.check(mesh={"dp": 2})
def hook_by_hand(mesh):
    def hook(group, bucket):
        gradients = bucket.buffer().div_(group.size())
        return dist.all_reduce(gradients, group=group, async_op=True).get_future().then(lambda done: done.value()[0])

    return hooked(mesh, hook)


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def static_graph_in_small_buckets(mesh):
    model = data_parallel(mesh, Two(), gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=0.0001)
    return gg.Refinement(step(Two()), step(model, mesh.get_group("dp")), X, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def accumulated_without_sync(mesh):
    def accumulated(model, group=None):
        def run(x, y):
            if group is None:
                first = model(x).square().mean() / 2
                first.backward()
            else:
                with model.no_sync():
                    first = model(x).square().mean() / 2
                    first.backward()
            second = model(y).square().mean() / 2
            second.backward()
            total = over_all(first + second, group)
            return {"loss": total, **{name: p.grad for name, p in model.named_parameters()}}

        return run

    model = data_parallel(mesh, Net())
    return gg.Refinement(accumulated(Net()), accumulated(model, mesh.get_group("dp")), X * 2, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def batch_norm_over_ranks(mesh):
    """Where a batch is normalised in evaluation, every rank does it by itself; in training statistics are those of all ranks."""
    group = mesh.get_group("dp")
    model = nn.SyncBatchNorm.convert_sync_batchnorm(Normalised().cuda(), group)
    model = data_parallel(mesh, model, broadcast_buffers=False)
    return gg.Refinement(step(Normalised()), step(model, group), X, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def batch_norm_behind_convolutions(mesh):
    group = mesh.get_group("dp")
    model = nn.SyncBatchNorm.convert_sync_batchnorm(Convolved().cuda(), group)
    model = data_parallel(mesh, model, broadcast_buffers=False)
    return gg.Refinement(step(Convolved()), step(model, group), (gg.tensor(4, 3, 5, 6),), in_relations=DATA)


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def zero_redundancy(mesh):
    whole, model, group = Two(), data_parallel(mesh, Two()), mesh.get_group("dp")
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    return gg.Refinement(
        optimised(whole, torch.optim.Adam(whole.parameters(), lr=0.01)),
        optimised(model, optimiser, group),
        X,
        in_relations=DATA,
    )


@gg.check(mesh={"dp": 2})
def zero_redundancy_in_buckets(mesh):
    """Parameters are views of the buckets that are broadcast."""
    whole, model, group = Two(), data_parallel(mesh, Two()), mesh.get_group("dp")
    optimiser = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=group, parameters_as_bucket_view=True, lr=0.01, momentum=0.9
    )
    return gg.Refinement(
        optimised(whole, torch.optim.SGD(whole.parameters(), lr=0.01, momentum=0.9)),
        optimised(model, optimiser, group),
        X,
        in_relations=DATA,
    )


def sharded(mesh, **others) -> FullyShardedDataParallel:
    return FullyShardedDataParallel(
        Two().cuda(),
        process_group=mesh.get_group("dp"),
        auto_wrap_policy=ModuleWrapPolicy({Net}),
        use_orig_params=True,
        device_id=torch.cuda.current_device(),
        **others,
    )


def unsharded_step(model: FullyShardedDataParallel, group):
    """Loss and gradients, whole on every rank."""
    run = step(model, group)

    def unsharded(x: torch.Tensor):
        loss = run(x)["loss"]
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            return {"loss": loss, **{name: p.grad.clone() for name, p in model.named_parameters()}}

    return unsharded


def first_generation(mesh, **others) -> gg.Refinement:
    model = sharded(mesh, **others)
    return gg.Refinement(step(Two()), unsharded_step(model, mesh.get_group("dp")), X, in_relations=DATA)


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def fsdp_of_the_first_generation(mesh):
    return first_generation(mesh)


@gg.check(mesh={"dp": 2})
def fsdp_that_keeps_parameters(mesh):
    return first_generation(mesh, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


@gg.check(mesh={"dp": 2})
def fsdp_that_shards_nothing(mesh):
    return first_generation(mesh, sharding_strategy=ShardingStrategy.NO_SHARD)


@gg.check(mesh={"dp": 2})
def replicated_and_checkpointed(mesh):
    model = Net()
    checkpoint(model.up)
    replicate(model)
    return gg.Refinement(step(Net()), step(model, mesh.get_group("dp")), X, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def averaged_after_a_local_step(mesh):
    """One step of SGD on averaged gradients is the average of the ranks' own steps."""
    group, spec, model = mesh.get_group("dp"), Net(), Net()
    averager = PeriodicModelAverager(period=1, warmup_steps=0, process_group=group)
    local = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    sgd = torch.optim.SGD(spec.parameters(), lr=0.1)
    return gg.Refinement(optimised(spec, sgd), optimised(model, local, group), X, in_relations=DATA)
