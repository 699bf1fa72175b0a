"""A pattern of attention windows is repeated over the layers of the model; a pipeline's stage begins the pattern anew with its own first layer, so that layers of later stages see more or fewer tokens than they should. TensorRT-LLM.

Source: https://github.com/NVIDIA/TensorRT-LLM/pull/17466
Rule: process-dependent, wrong-relation, wrong-shard
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

LAYERS, TOKENS, HEADS, HEAD_DIM, HIDDEN = 5, 8, 2, 6, 10
WINDOWS = (4, 2, TOKENS)


@dataclass(frozen=True)
class Mapping:
    """Which layers are this rank's."""

    pp_group: Any = None

    @property
    def pp_size(self):
        return 1 if self.pp_group is None else dist.get_world_size(self.pp_group)

    @property
    def pp_rank(self):
        return 0 if self.pp_group is None else dist.get_rank(self.pp_group)

    def pp_layers(self, num_layers):
        """The first stages have the layers that are left over."""
        each, left = divmod(num_layers, self.pp_size)
        counts = [each + (rank < left) for rank in range(self.pp_size)]
        start = sum(counts[: self.pp_rank])
        return list(range(start, start + counts[self.pp_rank]))

    @property
    def is_first(self):
        return self.pp_rank == 0

    @property
    def is_last(self):
        return self.pp_rank == self.pp_size - 1

    def global_rank(self, pp_rank):
        return dist.get_global_rank(self.pp_group, pp_rank)


@dataclass(frozen=True)
class KvCacheConfig:
    max_attention_window: tuple = WINDOWS


class KVCacheManager:
    """Keys and values of the stage's layers, of as many tokens as a layer's window has."""

    def __init__(self, config, mapping, num_layers):
        self.pp_layers = mapping.pp_layers(num_layers)
        self.layer_offsets = {layer: offset for offset, layer in enumerate(self.pp_layers)}
        pattern = config.max_attention_window
        self.max_attention_window_vec = [pattern[i % len(pattern)] for i in range(len(self.pp_layers))]  # fixed: self.max_attention_window_vec = [pattern[i % len(pattern)] for i in self.pp_layers]

    def window_of(self, layer_idx):
        return self.max_attention_window_vec[self.layer_offsets[layer_idx]]  # near


class Attention(nn.Module):
    def __init__(self, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def heads(self, projected):
        return projected.view(projected.shape[0], HEADS, HEAD_DIM).transpose(0, 1)

    def visible(self, tokens, window):
        position = torch.arange(tokens)
        distance = position[:, None] - position[None, :]
        return (distance >= 0) & (distance < window)

    def forward(self, hidden_states, kv_cache_manager):
        tokens = hidden_states.shape[0]
        q, k, v = (self.heads(project(hidden_states)) for project in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(1, 2) / HEAD_DIM**0.5
        visible = self.visible(tokens, kv_cache_manager.window_of(self.layer_idx))
        probabilities = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
        return self.o_proj((probabilities @ v).transpose(0, 1).reshape(tokens, -1))


class DecoderLayer(nn.Module):
    def __init__(self, layer_idx):
        super().__init__()
        self.self_attn = Attention(layer_idx)
        self.mlp = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, hidden_states, kv_cache_manager):
        hidden_states = hidden_states + self.self_attn(hidden_states, kv_cache_manager)
        return hidden_states + torch.tanh(self.mlp(hidden_states))


class DecoderModel(nn.Module):
    """The layers of one stage; what comes of the last one is sent to all."""

    def __init__(self, layers, mapping, config):
        super().__init__()
        self.mapping = mapping
        self.kv_cache_manager = KVCacheManager(config, mapping, len(layers))
        self.layers = nn.ModuleList(layers[layer] for layer in self.kv_cache_manager.pp_layers)

    def receive(self, hidden_states):
        hidden_states = torch.empty_like(hidden_states)
        source = self.mapping.global_rank(self.mapping.pp_rank - 1)
        dist.recv(hidden_states, source, group=self.mapping.pp_group)
        return hidden_states

    def send(self, hidden_states):
        target = self.mapping.global_rank(self.mapping.pp_rank + 1)
        dist.send(hidden_states.contiguous(), target, group=self.mapping.pp_group)

    @torch.no_grad()
    def forward(self, hidden_states):
        if not self.mapping.is_first:
            hidden_states = self.receive(hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states, self.kv_cache_manager)
        if not self.mapping.is_last:
            self.send(hidden_states)
        if self.mapping.pp_size > 1:
            source = self.mapping.global_rank(self.mapping.pp_size - 1)
            dist.broadcast(hidden_states, source, group=self.mapping.pp_group)
        return hidden_states


@gg.check(mesh={"pp": 3})
def check(mesh):
    layers = [DecoderLayer(layer_idx) for layer_idx in range(LAYERS)]
    config = KvCacheConfig()
    return gg.Refinement(
        DecoderModel(layers, Mapping(), config),
        DecoderModel(copy.deepcopy(layers), Mapping(mesh.get_group("pp")), config),
        (gg.tensor(TOKENS, HIDDEN),),
        out_relations="replicate",
        grads=False,
    )
