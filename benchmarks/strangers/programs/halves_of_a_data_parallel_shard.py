"""A gated layer's weight lies in the checkpoint as W above V, and its factory reads a part of each for a rank, as tensor parallelism wants; sharded over data-parallel ranks, a rank's rows are those of W and V together, one after the other. Megatron-LM with FSDP2.

Source: https://github.com/NVIDIA/Megatron-LM/issues/2769
Rule: wrong-shard, wrong-relation
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, FFN, LAYERS = 12, 6, 9, 2


@dataclass(frozen=True)
class ProcessGroups:
    """Whatever is not named has one rank."""

    dp: Any = None
    tp: Any = None

    @staticmethod
    def rank(group):
        return 0 if group is None else dist.get_rank(group)

    @staticmethod
    def size(group):
        return 1 if group is None else dist.get_world_size(group)


@dataclass
class ShardedTensor:
    """A part of a tensor of the checkpoint."""

    key: str
    data: Any
    global_offset: tuple
    axis_fragmentations: tuple

    @classmethod
    def from_rank_offsets(cls, key, data, *rank_offsets):
        offset, fragments = [0] * data.ndim, [1] * data.ndim
        for axis, rank_offset, fragmentation in rank_offsets:
            offset[axis] = rank_offset * data.shape[axis]
            fragments[axis] = fragmentation
        return cls(key, data, tuple(offset), tuple(fragments))

    @property
    def local_shape(self):
        return self.data.shape


@dataclass
class ShardedTensorFactory:
    """Several tensors of the checkpoint that are one of the model's."""

    key: str
    data: Any
    build_fn: Callable
    merge_fn: Callable


def make_sharded_tensor_for_checkpoint(tensor, key, groups, tp_axis=None):
    """FSDP2 cuts the first dim of what tensor parallelism leaves."""
    dp_rank, dp_size = groups.rank(groups.dp), groups.size(groups.dp)
    tp_rank, tp_size = groups.rank(groups.tp), groups.size(groups.tp)
    if tp_axis == 0:
        return ShardedTensor.from_rank_offsets(key, tensor, (0, tp_rank * dp_size + dp_rank, tp_size * dp_size))
    offsets = [(0, dp_rank, dp_size)]
    if tp_axis is not None:
        offsets.append((tp_axis, tp_rank, tp_size))
    return ShardedTensor.from_rank_offsets(key, tensor, *offsets)


def apply_swiglu_sharded_factory(original_sh_ten, groups):
    """Splits the tensor in two, each sharded by itself."""
    swiglu_shard_axis = 0
    local_axis_size = original_sh_ten.local_shape[swiglu_shard_axis]
    rank_offset = original_sh_ten.global_offset[swiglu_shard_axis] // local_axis_size
    axis_frag = original_sh_ten.axis_fragmentations[swiglu_shard_axis]

    def sh_ten_build_fn(key, t):
        offset_w = (swiglu_shard_axis, rank_offset, axis_frag * 2)  # fault
        offset_v = (swiglu_shard_axis, rank_offset + axis_frag, axis_frag * 2)  # fault
        # fixed, insert: dp_rank, dp_size = groups.rank(groups.dp), groups.size(groups.dp)
        # fixed, insert: tp_rank, tp_size = groups.rank(groups.tp), groups.size(groups.tp)
        # fixed, insert: if dp_size > 1:
        # fixed, insert:     halves = [divmod(2 * dp_rank + i, dp_size) for i in range(2)]
        # fixed, insert:     offset_w, offset_v = ((swiglu_shard_axis, (v * tp_size + tp_rank) * dp_size + at, axis_frag * 2) for v, at in halves)
        tensor_w, tensor_v = torch.chunk(t, 2, dim=swiglu_shard_axis)
        return [
            ShardedTensor.from_rank_offsets(key, tensor_w, offset_w),
            ShardedTensor.from_rank_offsets(key, tensor_v, offset_v),
        ]

    def sh_ten_merge_fn(sub_state_dict):
        return torch.cat(sub_state_dict)  # near

    return ShardedTensorFactory(original_sh_ten.key, original_sh_ten.data, sh_ten_build_fn, sh_ten_merge_fn)


def load(sharded_state_dict, checkpoint):
    def read(sh_ten):
        tensor = checkpoint[sh_ten.key]
        for axis, (start, length) in enumerate(zip(sh_ten.global_offset, sh_ten.local_shape, strict=True)):
            tensor = tensor.narrow(axis, start, length)  # near
        return tensor

    loaded = {}
    for name, entry in sharded_state_dict.items():
        if isinstance(entry, ShardedTensorFactory):
            loaded[name] = entry.merge_fn([read(part) for part in entry.build_fn(entry.key, entry.data)])
        else:
            loaded[name] = read(entry)
    return loaded


class FSDPLinear(nn.Module):
    """Rows are divided among the data-parallel ranks, and gathered where they are used."""

    def __init__(self, out_features, in_features, groups):
        super().__init__()
        self.groups = groups
        self.register_buffer("weight", torch.zeros(out_features // groups.size(groups.dp), in_features))

    def forward(self, x):
        weight = self.weight
        if self.groups.size(self.groups.dp) > 1:
            whole = weight.new_empty(weight.shape[0] * self.groups.size(self.groups.dp), weight.shape[1])
            dist.all_gather_into_tensor(whole, weight.contiguous(), group=self.groups.dp)
            weight = whole
        return F.linear(x, weight)


class MLP(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups
        self.linear_fc1 = FSDPLinear(2 * FFN, HIDDEN, groups)
        self.linear_fc2 = FSDPLinear(HIDDEN, FFN, groups)

    def forward(self, x):
        gate, up = self.linear_fc1(x).chunk(2, dim=-1)
        return self.linear_fc2(F.silu(gate) * up)

    def sharded_state_dict(self, prefix):
        sharded = {}
        for name, tp_axis in (("linear_fc1", 0), ("linear_fc2", 1)):
            key = f"{prefix}{name}.weight"
            weight = getattr(self, name).weight
            sharded[key] = make_sharded_tensor_for_checkpoint(weight, key, self.groups, tp_axis)
            if name == "linear_fc1":
                sharded[key] = apply_swiglu_sharded_factory(sharded[key], self.groups)
        return sharded


class TransformerBlock(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.layers = nn.ModuleList(MLP(groups) for _ in range(LAYERS))

    def sharded_state_dict(self):
        return {k: v for i, layer in enumerate(self.layers) for k, v in layer.sharded_state_dict(f"layers.{i}.").items()}

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def resume(groups):
    def run(x, *tensors):
        """The checkpoint comes of another run, with another layout."""
        names = [f"layers.{i}.{name}.weight" for i in range(LAYERS) for name in ("linear_fc1", "linear_fc2")]
        checkpoint = dict(zip(names, tensors, strict=True))
        model = TransformerBlock(groups)
        model.load_state_dict(load(model.sharded_state_dict(), checkpoint))
        return model(x)

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    tokens = {"dp": Shard(0)}
    weights = (gg.tensor(2 * FFN, HIDDEN), gg.tensor(HIDDEN, FFN)) * LAYERS
    return gg.Refinement(
        resume(ProcessGroups()),
        resume(ProcessGroups(dp=mesh.get_group("dp"))),
        (gg.tensor(TOKENS, HIDDEN), *weights),
        in_relations=(tokens,) + ({},) * len(weights),
        out_relations=tokens,
        grads=False,
    )
