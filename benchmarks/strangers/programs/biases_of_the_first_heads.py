"""The biases of ALiBi are made for all heads and all samples, one sample's heads after the other's; attention takes as many rows from the start as a rank has heads and samples. Megatron-DeepSpeed, as BLOOM was trained with.

Source: https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/227
Rule: wrong-shard, wrong-relation
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, TOKENS, LAYERS = 2, 4, 2


@dataclass(frozen=True)
class Arguments:
    num_attention_heads: int = 6
    kv_channels: int = 2
    max_position_embeddings: int = 5
    micro_batch_size: int = BATCH
    tensor_group: Any = None

    @property
    def hidden_size(self):
        return self.num_attention_heads * self.kv_channels

    @property
    def tensor_world_size(self):
        return 1 if self.tensor_group is None else dist.get_world_size(self.tensor_group)

    @property
    def tensor_rank(self):
        return 0 if self.tensor_group is None else dist.get_rank(self.tensor_group)


def reduce_from_tensor_model_parallel_region(x, args):
    if args.tensor_world_size > 1:
        x = x.contiguous()
        dist.all_reduce(x, group=args.tensor_group)
    return x


class ParallelAttention(nn.Module):
    def __init__(self, qkv, dense, args):
        super().__init__()
        self.args = args
        self.heads_per_partition = args.num_attention_heads // args.tensor_world_size
        self.query_key_value, self.dense = qkv, dense

    def split_heads(self, hidden_states):
        """(tokens, batch x heads, channels) for queries, keys and values; a head's three are beside each other."""
        tokens, batch, _ = hidden_states.shape
        mixed = hidden_states @ self.query_key_value.t()
        mixed = mixed.view(tokens, batch * self.heads_per_partition, 3 * self.args.kv_channels)
        return mixed.chunk(3, dim=-1)

    def forward(self, hidden_states, attention_mask, alibi):
        tokens, batch, _ = hidden_states.shape
        query, key, value = self.split_heads(hidden_states)
        output_size = (batch, self.heads_per_partition, tokens, tokens)
        bias = alibi[: output_size[0] * output_size[1], :, : output_size[3]]  # fault
        scores = torch.baddbmm(
            bias,  # near
            query.transpose(0, 1),
            key.transpose(0, 1).transpose(1, 2),
            beta=1.0,
            alpha=1.0 / math.sqrt(self.args.kv_channels),
        )
        scores = scores.view(output_size).masked_fill(attention_mask, -10000.0)
        probs = scores.softmax(-1).view(batch * self.heads_per_partition, tokens, tokens)
        context = torch.bmm(probs, value.transpose(0, 1))
        context = context.view(batch, self.heads_per_partition, tokens, self.args.kv_channels)
        context = context.permute(2, 0, 1, 3).reshape(tokens, batch, -1)
        return reduce_from_tensor_model_parallel_region(context @ self.dense.t(), self.args)


class ParallelTransformer(nn.Module):
    def __init__(self, weights, args):
        super().__init__()
        self.args = args
        pairs = zip(weights[::2], weights[1::2], strict=True)
        self.layers = nn.ModuleList(ParallelAttention(qkv, dense, args) for qkv, dense in pairs)
        self.alibi = self._build_alibi_tensor(
            args.max_position_embeddings, args.num_attention_heads, args.micro_batch_size
        )

    @staticmethod
    def get_slopes(heads):
        def get_slopes_power_of_2(n):
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]

        if math.log2(heads).is_integer():
            return get_slopes_power_of_2(heads)
        closest = 2 ** math.floor(math.log2(heads))
        return get_slopes_power_of_2(closest) + get_slopes_power_of_2(2 * closest)[0::2][: heads - closest]

    def _build_alibi_tensor(self, max_seq_len, num_attention_heads, batch_size):
        """(batch x heads, 1, tokens)"""
        slopes = torch.tensor(self.get_slopes(num_attention_heads), dtype=torch.get_default_dtype())
        alibi = slopes[:, None, None] * torch.arange(max_seq_len)[None, None, :]
        # fixed, insert: alibi = alibi.reshape(self.args.tensor_world_size, -1, *alibi.shape[1:])[self.args.tensor_rank]
        return alibi.repeat(batch_size, 1, 1)  # near

    def forward(self, hidden_states):
        tokens = hidden_states.shape[0]
        attention_mask = torch.ones(tokens, tokens).triu(1) > 0
        for layer in self.layers:
            normed = nn.functional.layer_norm(hidden_states, hidden_states.shape[-1:])
            hidden_states = hidden_states + layer(normed, attention_mask, self.alibi)
        return hidden_states


def run(args):
    def forward(hidden_states, *weights):
        return ParallelTransformer(weights, args)(hidden_states)

    return forward


@gg.check(mesh={"tp": 3})
def check(mesh):
    args = Arguments()
    hidden = args.hidden_size
    weights = (gg.tensor(3 * hidden, hidden), gg.tensor(hidden, hidden)) * LAYERS
    return gg.Refinement(
        run(args),
        run(Arguments(tensor_group=mesh.get_group("tp"))),
        (gg.tensor(TOKENS, BATCH, hidden), *weights),
        in_relations=({}, *({"tp": Shard(0)}, {"tp": Shard(1)}) * LAYERS),
        out_relations="replicate",
        grads=False,
    )
