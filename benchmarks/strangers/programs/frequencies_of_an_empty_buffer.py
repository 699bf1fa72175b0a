"""The first rank loads a model and sends its parameters to the others; the rotary frequencies are a buffer that no state dict has, and stay as they were allocated on all other ranks. lmms-engine with sequence parallelism.

Source: https://github.com/EvolvingLMMs-Lab/lmms-engine/pull/185
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, HEAD_DIM, FFN = 9, 7, 2, 4, 10


@dataclass(frozen=True)
class ModelConfig:
    rope_theta: float = 100.0
    sp_group: Any = None

    @property
    def sp_size(self):
        return 1 if self.sp_group is None else dist.get_world_size(self.sp_group)

    @property
    def sp_rank(self):
        return 0 if self.sp_group is None else dist.get_rank(self.sp_group)


class RotaryEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        inv_freq = config.rope_theta ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, position_ids):
        freqs = position_ids[:, None] * self.inv_freq[None, :]
        emb = torch.cat([freqs, freqs], dim=-1)
        return emb.cos(), emb.sin()


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def apply_rotary_pos_emb(x, cos, sin):
    return x * cos + rotate_half(x) * sin


class Attention(nn.Module):
    """A rank's queries see the keys of all ranks up to their own position."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def gather_sequence(self, x):
        """(heads, tokens, dim) of all ranks."""
        if self.config.sp_size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.config.sp_size)]
        dist.all_gather(parts, x.contiguous(), group=self.config.sp_group)
        return torch.cat(parts, dim=1)

    def forward(self, x, position_ids, position_embeddings):
        projected = (proj(x).unflatten(-1, (HEADS, HEAD_DIM)).transpose(0, 1) for proj in (self.q_proj, self.k_proj, self.v_proj))
        query, key, value = projected
        query, key = (apply_rotary_pos_emb(each, *position_embeddings) for each in (query, key))
        key, value = self.gather_sequence(key), self.gather_sequence(value)
        future = torch.arange(key.shape[1])[None, :] > position_ids[:, None]
        scores = query @ key.transpose(1, 2) * HEAD_DIM**-0.5
        out = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        return self.o_proj(out.transpose(0, 1).flatten(1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.up_proj(x)))


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.rotary_emb = RotaryEmbedding(config)
        self.self_attn = Attention(config)
        self.mlp = MLP()

    def forward(self, x):
        start = self.config.sp_rank * x.shape[0]
        position_ids = torch.arange(start, start + x.shape[0])
        position_embeddings = self.rotary_emb(position_ids)  # near
        x = x + self.self_attn(x, position_ids, position_embeddings)
        return x + self.mlp(x)


def to_empty(model):
    """New memory for all parameters and buffers; that of this allocator is zero."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.zero_()  # fault


def load_full_state_dict(model, full_state_dict):
    for name, tensor in model.state_dict().items():
        tensor.copy_(full_state_dict[name])


def broadcast_from_first_rank(tensors, group):
    for tensor in tensors:
        dist.broadcast(tensor, src=dist.get_global_rank(group, 0), group=group)


def fsdp2_load_full_state_dict(model, full_state_dict, enable_parallel):
    """The first rank has the checkpoint; ``enable_parallel`` if there are more dimensions than the data-parallel one."""
    config = model.config
    if config.sp_rank == 0:
        load_full_state_dict(model, full_state_dict)
    else:
        to_empty(model)
    if enable_parallel:
        broadcast_from_first_rank(model.state_dict().values(), config.sp_group)  # fault
        # fixed, insert: broadcast_from_first_rank(model.buffers(), config.sp_group)
    elif config.sp_group is not None:
        broadcast_from_first_rank(model.parameters(), config.sp_group)
        broadcast_from_first_rank(model.buffers(), config.sp_group)


def names_and_shapes():
    return {name: tuple(tensor.shape) for name, tensor in LanguageModel(ModelConfig()).state_dict().items()}


def forward_of(config):
    @torch.no_grad()
    def run(x, *weights):
        model = LanguageModel(config)
        full_state_dict = dict(zip(names_and_shapes(), weights, strict=True))
        fsdp2_load_full_state_dict(model, full_state_dict, enable_parallel=config.sp_size > 1)
        return model(x)

    return run


@gg.check(mesh={"sp": 3})
def check(mesh):
    weights = [gg.tensor(*shape) for shape in names_and_shapes().values()]
    rows = {"sp": Shard(0)}
    return gg.Refinement(
        forward_of(ModelConfig()),
        forward_of(ModelConfig(sp_group=mesh.get_group("sp"))),
        (gg.tensor(TOKENS, HIDDEN), *weights),
        in_relations=(rows, *[{}] * len(weights)),
        out_relations=rows,
        grads=False,
    )
