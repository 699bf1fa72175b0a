"""torchtitan's training step as its trainer takes it: FSDP2 over its own Llama 3, the loss by the count of tokens of all ranks, clipping, the optimiser."""

import torch
import torch.distributed as dist
from titan_llama import TOKENS, VOCABULARY, model
from torch.distributed.tensor import Shard
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.distributed import ParallelDims, utils
from torchtitan.distributed.fsdp import apply_fsdp_to_decoder

import graphguard as gg

TEXT = tuple(gg.tensor(4, TOKENS, dtype=torch.int64, low=0, high=VOCABULARY) for _ in range(2))


def dims(world: int, *, tp: int = 1, replicas: int = 1) -> ParallelDims:
    return ParallelDims(
        dp_replicate=replicas,
        dp_shard=world // tp // replicas,
        cp=1,
        tp=tp,
        pp=1,
        ep=1,
        world_size=world,
        spmd_backend="partial_dtensor",
    )


def sharded(parallel_dims: ParallelDims, **others):
    """The model as `parallelize_llama` makes it, in full precision."""
    utils.set_spmd_backend("partial_dtensor")
    llama = model().cuda()
    if parallel_dims.tp_enabled:
        llama.parallelize(parallel_dims)
    names = ["dp_replicate", "fsdp"] if parallel_dims.dp_replicate_enabled else ["fsdp"]
    apply_fsdp_to_decoder(
        llama,
        parallel_dims.get_mesh(names),
        param_dtype=torch.float32,
        reduce_dtype=torch.float32,
        pp_enabled=False,
        **others,
    )
    return llama


def forward_backward(llama, tokens, labels, group=None):
    """The loss of all ranks' tokens; every rank differentiates its own part of it, and gradients are summed."""
    valid = (labels != -100).sum()
    if group is not None:
        dist.all_reduce(valid, group=group)
    loss, _ = CrossEntropyLoss.Config().build()(llama(tokens), labels, valid)
    loss.backward()
    loss = loss.detach().clone()
    if group is not None:
        dist.all_reduce(loss, group=group)
    return loss


def step(llama, group=None):
    """Loss and gradients."""

    def run(tokens, labels):
        loss = forward_backward(llama, tokens, labels, group)
        return {"loss": loss, **{name: p.grad for name, p in llama.named_parameters()}}

    return run


def clipped_step(llama, group=None):
    """The parameters after one step of AdamW, with the gradients' norm clipped."""
    optimiser = torch.optim.AdamW(llama.parameters(), lr=0.01)

    def run(tokens, labels):
        loss = forward_backward(llama, tokens, labels, group)
        norm = utils.clip_grad_norm_(llama.parameters(), 1.0)
        optimiser.step()
        return {"loss": loss, "norm": norm, **dict(llama.named_parameters())}

    return run


DATA = {"dp": Shard(0)}


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def fully_sharded(mesh):
    """FSDP's own division of gradients is off: it sums them, pre-multiplied by one."""
    group = mesh.get_group("dp")
    llama = sharded(dims(mesh.size()))
    return gg.Refinement(step(model()), step(llama, group), TEXT, in_relations=DATA)


@gg.check(mesh={"dp": 2})
def optimiser_step(mesh):
    llama = sharded(dims(2))
    return gg.Refinement(clipped_step(model()), clipped_step(llama, mesh.get_group("dp")), TEXT, in_relations=DATA)


@gg.check(mesh={"dp": 2, "tp": 2})
def fully_sharded_and_tensor_parallel(mesh):
    """The loss is parallel over the vocabulary."""
    llama = sharded(dims(4, tp=2))
    return gg.Refinement(step(model()), step(llama, mesh.get_group("dp")), TEXT, in_relations=DATA)


@gg.check(mesh={"replicas": 2, "dp": 2})
def hybrid_sharded(mesh):
    llama = sharded(dims(4, replicas=2))
    return gg.Refinement(
        step(model()), step(llama, dist.group.WORLD), TEXT, in_relations={"replicas": Shard(0), "dp": Shard(0)}
    )
