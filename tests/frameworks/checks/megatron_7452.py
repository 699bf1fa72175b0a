"""The bugs of Megatron-LM's issue 7452 in megatron_7452_bugs, repaired from outside, numbered as in the issue."""

from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import finalize_model_grads
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.tensor_parallel.mappings import (
    reduce_from_tensor_model_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.fsdp_dtensor_checkpoint import get_global_unique_param_name
from megatron_7452_bugs import (
    crossed,
    fused,
    kept_in_parts,
    lost,
    normed,
    padded,
    recomputed,
    resumed,
    scattered,
    scheduled,
    smooth,
    smoothed,
    summed,
)

import graphguard as gg
from graphguard.frameworks import megatron


def of_the_vocabulary(logits, labels):
    """The losses, smoothed over the whole vocabulary: what Megatron's do on one rank."""
    group = parallel_state.get_tensor_model_parallel_group()
    if group.size() == 1:
        return smoothed(logits, labels)
    size = logits.shape[-1] * group.size()
    sums = torch.stack([logits.exp().sum(-1), logits.sum(-1)])
    exponentials, total = reduce_from_tensor_model_parallel_region(sums)
    share = 0.1 * size / (size - 1)
    return (1 - share) * vocab_parallel_cross_entropy(logits.clone(), labels) + share * (
        exponentials.log() - total / size
    )


@gg.check(mesh={"tp": 2})
def label_smoothing(mesh):
    """1: a rank smooths over the whole vocabulary."""
    megatron.world(mesh)
    return smooth(of_the_vocabulary)


@gg.check(mesh={"tp": 2})
def gathered_logits(mesh):
    """2: logits stay in parts."""
    megatron.world(mesh)
    return lost(gathered=False)


@gg.check(mesh={"tp": 2, "dp": 2})
def recomputed_prediction(mesh):
    """4: over the layer's group."""
    groups = megatron.groups(mesh)
    return recomputed(
        groups, lambda function, parts, tracker, _, *inputs: kept_in_parts(function, parts, tracker, groups.tp, *inputs)
    )


@gg.check(mesh={"tp": 2, "dp": 2})
def padding_mask(mesh):
    """5: with its group."""
    groups = megatron.groups(mesh)
    tensor_parallel.scatter_to_sequence_parallel_region = partial(scatter_to_sequence_parallel_region, group=groups.tp)
    return padded(groups)


@gg.check(mesh={"tp": 2, "dp": 2})
def cross_attention(mesh):
    """6: with its groups."""
    groups = megatron.groups(mesh)
    return crossed(groups, partial(ColumnParallelLinear, tp_group=groups.tp))


@gg.check(mesh={"tp": 2, "dp": 2})
def llava_embeddings(mesh):
    """7: with its group."""
    groups = megatron.groups(mesh)
    tensor_parallel.scatter_to_sequence_parallel_region = partial(scatter_to_sequence_parallel_region, group=groups.tp)
    return scattered(groups)


@gg.check(mesh={"tp": 2})
def sink_in_the_norm(mesh):
    """8: the sinks of attention are marked as what they are, parts of a whole, and the norm of the gradients counts those of all ranks."""
    megatron.world(mesh)
    model = megatron.wrapped(megatron.gpt(megatron.config(softmax_type="learnable")))
    for name, parameter in model.named_parameters():
        if name.endswith("softmax_offset"):
            tensor_parallel.set_tensor_model_parallel_attributes(parameter, True, 0, 1)
    return normed(model)


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


def of_the_model(model, parameter):
    return get_global_unique_param_name([model], parameter)


@gg.check(mesh={"pp": 2})
def resized_pipeline(mesh):
    """12: with the names that Megatron-FSDP gives the optimizer's state, by a layer's place in the model."""
    megatron.world(mesh)
    return resumed(of_the_model)
