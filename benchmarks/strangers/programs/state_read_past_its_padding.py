"""The optimizer's state is packed without the padding at the buckets' ends, and read by offsets that count it: all parameters after the first bucket. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/pull/5077
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

BETA = 0.9
SHAPES = {"embedding": (2, 4), "norm": (3,), "linear": (3, 2), "bias": (5,)}
BUCKETS = (("embedding", "norm"), ("linear", "bias"))
NAMES = tuple(SHAPES)


def adam_moment(moment, grad):
    return BETA * moment + (1 - BETA) * grad


def spec_step(*tensors):
    """Moments, then gradients, in the order of the parameters."""
    moments, grads = tensors[: len(NAMES)], tensors[len(NAMES) :]
    return {name: adam_moment(m, g) for name, m, g in zip(NAMES, moments, grads, strict=True)}


@dataclass
class Bucket:
    """A stretch of the gradients' buffer, padded so that all ranks get as much of it."""

    offset: int
    numel: int
    numel_unpadded: int


class ParamAndGradBuffer:
    """All parameters one after the other, in buckets."""

    def __init__(self, data_parallel_world_size):
        self.data_parallel_world_size = data_parallel_world_size
        self.buckets = []
        self.param_index_map = {}
        offset = 0
        for bucket_id, names in enumerate(BUCKETS):
            start = offset
            for name in names:
                numel = torch.Size(SHAPES[name]).numel()
                self.param_index_map[name] = (offset, offset + numel, bucket_id)
                offset += numel
            unpadded = offset - start
            offset = start + self.pad(unpadded)
            self.buckets.append(Bucket(start, offset - start, unpadded))
        self.numel = offset
        self.numel_unpadded = sum(bucket.numel_unpadded for bucket in self.buckets)

    def pad(self, numel):
        return -(-numel // self.data_parallel_world_size) * self.data_parallel_world_size

    def packed(self, tensors):
        """A buffer with the tensors of all parameters."""
        flat = torch.zeros(self.numel)
        for name, tensor in tensors.items():
            start, end, _ = self.param_index_map[name]
            flat[start:end] = tensor.flatten()
        return flat


class DistributedOptimizer:
    def __init__(self, buffer, data_parallel_group):
        self.buffer = buffer
        self.group = data_parallel_group
        self.rank, self.size = dist.get_rank(data_parallel_group), dist.get_world_size(data_parallel_group)

    def local_shards(self, flat):
        """The own part of each bucket."""
        return [
            flat[bucket.offset : bucket.offset + bucket.numel].chunk(self.size)[self.rank] for bucket in self.buffer.buckets
        ]

    def step(self, moments, grads):
        pairs = zip(self.local_shards(moments), self.local_shards(grads), strict=True)
        return [adam_moment(moment, grad) for moment, grad in pairs]

    def get_parameter_state_dp_zero(self, shards):
        """The buckets of all ranks, one after the other, without the padding at their ends."""
        world_tensors = []
        for bucket, shard in zip(self.buffer.buckets, shards, strict=True):
            world = torch.empty(bucket.numel)
            dist.all_gather_into_tensor(world, shard.contiguous(), group=self.group)
            world_tensors.append(world[: bucket.numel_unpadded])  # near
        return torch.cat(world_tensors)

    def stripped_before(self, bucket_id):
        return sum(bucket.numel - bucket.numel_unpadded for bucket in self.buffer.buckets[:bucket_id])

    def sharded_param_state_fully_reshardable(self, world_tensor):
        """What a checkpoint holds of each parameter."""
        state = {}
        for name, index in self.buffer.param_index_map.items():
            start, end = index[:2]
            stripped = 0  # fixed: stripped = self.stripped_before(index[2])
            param_start, param_end = start - stripped, end - stripped  # fault
            missing = max(0, param_end - world_tensor.numel())
            param_state = F.pad(world_tensor[param_start:param_end], (0, missing))  # fault
            state[name] = param_state.view(SHAPES[name])
        return state


def save_checkpoint(group):
    buffer = ParamAndGradBuffer(dist.get_world_size(group))
    optimizer = DistributedOptimizer(buffer, group)

    def step(*tensors):
        moments = buffer.packed(dict(zip(NAMES, tensors[: len(NAMES)], strict=True)))
        grads = buffer.packed(dict(zip(NAMES, tensors[len(NAMES) :], strict=True)))
        shards = optimizer.step(moments, grads)
        return optimizer.sharded_param_state_fully_reshardable(optimizer.get_parameter_state_dp_zero(shards))

    return step


@gg.check(mesh={"dp": 3})
def check(mesh):
    tensors = tuple(gg.tensor(*shape) for shape in SHAPES.values())
    impl = save_checkpoint(mesh.get_group("dp"))
    return gg.Refinement(spec_step, impl, tensors + tensors, out_relations="replicate", grads=False)
