"""Interleaved stages, a last one with fewer layers: the offset counts as if the first one were special as well, so stages load their predecessors' layers. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/issues/1584
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, HIDDEN = 2, 3


@dataclass
class TransformerConfig:
    num_layers: int = 10
    pipeline_model_parallel_size: int = 3
    virtual_pipeline_model_parallel_size: int = 2
    num_layers_in_first_pipeline_stage: int | None = None
    num_layers_in_last_pipeline_stage: int | None = 2


class TransformerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class GPTModel(nn.Module):
    """All layers, one after the other: the specification."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer() for _ in range(config.num_layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def special_stages(config):
    first, last = config.num_layers_in_first_pipeline_stage, config.num_layers_in_last_pipeline_stage
    middle_stages = config.pipeline_model_parallel_size - sum(each is not None for each in (first, last))
    middle_layers = config.num_layers - (first or 0) - (last or 0)
    return first, last, middle_layers // middle_stages


def get_num_layers_to_build(config, pipeline_rank):
    """Of each of the stage's chunks."""
    first, last, middle = special_stages(config)
    is_first, is_last = pipeline_rank == 0, pipeline_rank == config.pipeline_model_parallel_size - 1
    num_layers = first if is_first and first is not None else last if is_last and last is not None else middle
    return num_layers // config.virtual_pipeline_model_parallel_size


def get_transformer_layer_offset(config, pipeline_rank, vp_stage):
    """The number of the first layer of a stage's chunk."""
    vp_size = config.virtual_pipeline_model_parallel_size
    first, _, middle = special_stages(config)
    total_virtual_chunks = config.num_layers // vp_size
    offset = vp_stage * total_virtual_chunks
    if pipeline_rank > 0:
        num_layers_per_virtual_chunk_in_first = 0 if first is None else first // vp_size
        middle_stages_before = pipeline_rank - 1  # fixed: middle_stages_before = pipeline_rank if first is None else pipeline_rank - 1
        offset += num_layers_per_virtual_chunk_in_first + middle_stages_before * (middle // vp_size)  # near
    return offset


class TransformerBlock(nn.Module):
    """One chunk of a stage, and which of the model's layers are its own."""

    def __init__(self, config, pipeline_rank, vp_stage):
        super().__init__()
        self.offset = get_transformer_layer_offset(config, pipeline_rank, vp_stage)  # near
        self.layers = nn.ModuleList(
            TransformerLayer() for _ in range(get_num_layers_to_build(config, pipeline_rank))
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class PipelinedModel(nn.Module):
    """A stage's chunks; activations go round the stages once for each of them."""

    def __init__(self, config, group):
        super().__init__()
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.chunks = nn.ModuleList(
            TransformerBlock(config, self.rank, vp_stage)
            for vp_stage in range(config.virtual_pipeline_model_parallel_size)
        )

    def recv_forward(self, x):
        received = torch.empty_like(x)
        dist.recv(received, (self.rank - 1) % self.size, group=self.group)
        return received

    @torch.no_grad()
    def forward(self, x):
        hidden_states = x
        for vp_stage, chunk in enumerate(self.chunks):
            if self.rank > 0 or vp_stage > 0:
                hidden_states = self.recv_forward(x)
            hidden_states = chunk(hidden_states)
            if self.rank < self.size - 1 or vp_stage < len(self.chunks) - 1:
                dist.send(hidden_states, (self.rank + 1) % self.size, group=self.group)
        out = hidden_states.clone()
        dist.broadcast(out, self.size - 1, group=self.group)
        return out


def load_checkpoint(state, model, mesh):
    with torch.no_grad():
        for chunk in model.chunks:
            for index, layer in enumerate(chunk.layers):
                layer.linear.weight.copy_(state[f"layers.{chunk.offset + index}.linear.weight"])  # fault


@gg.check(mesh={"pp": 3})
def check(mesh):
    config = TransformerConfig()
    impl = PipelinedModel(config, mesh.get_group("pp"))
    return gg.Refinement(
        GPTModel(config), impl, (gg.tensor(TOKENS, HIDDEN),), out_relations="replicate", load=load_checkpoint, grads=False
    )
