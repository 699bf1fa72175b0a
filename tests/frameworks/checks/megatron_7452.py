"""The bugs of Megatron-LM's issue 7452 in megatron_7452_bugs, repaired from outside, numbered as in the issue."""

from functools import partial

import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import finalize_model_grads
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron_7452_bugs import balanced, crossed, fused, scattered, scheduled, summed

import graphguard as gg
from graphguard.frameworks import megatron


@gg.check(mesh={"tp": 2, "dp": 2})
def cross_attention(mesh):
    """6: with its groups."""
    groups = megatron.groups(mesh)
    return crossed(groups, partial(ColumnParallelLinear, tp_group=groups.tp))


@gg.check(mesh={"tp": 2, "dp": 2})
def llava_embeddings(mesh):
    """7: with its group."""
    groups = megatron.groups(mesh)
    scatter = tensor_parallel.mappings.scatter_to_sequence_parallel_region
    tensor_parallel.scatter_to_sequence_parallel_region = partial(scatter, group=groups.tp)
    return scattered(groups)


@gg.check(mesh={"tp": 2})
def sink_in_the_norm(mesh):
    """8: the sinks of attention are marked as what they are, parts of a whole, and the norm of the gradients counts those of all ranks."""
    megatron.world(mesh)
    model = megatron.wrapped(megatron.gpt(megatron.config(softmax_type="learnable")))
    for name, parameter in model.named_parameters():
        if name.endswith("softmax_offset"):
            tensor_parallel.set_tensor_model_parallel_attributes(parameter, True, 0, 1)
    optimizer, step = megatron.optimizer(model), megatron.step(model)

    def run(tokens, labels):
        found = step(tokens, labels)
        optimizer.prepare_grads()
        return {**found, "norm": optimizer.get_grad_norm()}

    return gg.Same(run, megatron.text(2, 6))


def of_all_ranks(mask, losses):
    loss, count, told = summed(mask, losses)
    group = parallel_state.get_context_parallel_group()
    dist.all_reduce(count, group=group)
    return loss * group.size(), count, told


@gg.check(mesh={"cp": 2})
def context_parallel_loss(mesh):
    """9: the tokens of all ranks are counted."""
    megatron.world(mesh)
    return scheduled(of_all_ranks)


@gg.check(mesh={"cp": 2})
def auxiliary_loss(mesh):
    """10: with a mask of padding the count that a rank multiplies by is overwritten by that of all ranks, which is what one rank does."""
    return balanced(megatron.groups(mesh), masked=True)


@gg.check(mesh={"tp": 2})
def delta_net(mesh):
    """11: the gradient is summed."""
    groups = megatron.groups(mesh)
    model, load = fused(groups)

    def total(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=groups.tp)
        return gradient

    model.layer.out_norm.weight.register_hook(total)
    wrapped = megatron.wrapped(model)

    def run(x):
        wrapped(x).square().mean().backward()
        finalize_model_grads([wrapped])
        return gg.gradients(wrapped)

    return gg.Same(run, (gg.tensor(3, 2, 16),), load=load)
