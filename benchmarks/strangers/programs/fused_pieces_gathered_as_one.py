"""Users see the value of a parallel layer as it is on one rank: the ranks' pieces are gathered before, and cut again after; a fused layer's piece holds parts of three projections, which stay interleaved. nnsight's vLLM engine.

Source: https://github.com/ndif-team/nnsight/pull/719
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, INTERMEDIATE = 5, 8, 6, 3, 2, 9
Q_SIZE, KV_SIZE = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
PRUNED_HEAD = 4


@dataclass(frozen=True)
class TpGroup:
    group: Any = None

    @property
    def world_size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank_in_group(self):
        return 0 if self.group is None else dist.get_rank(self.group)

    def all_gather(self, tensor):
        pieces = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(pieces, tensor.contiguous(), group=self.group)
        return pieces

    def all_reduce(self, tensor):
        if self.world_size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor, group=self.group)
        return tensor


class ColumnParallelLinear(nn.Module):
    """Output features are divided; ``output_sizes`` are those of the projections that lie in one weight."""

    def __init__(self, weights, tp):
        super().__init__()
        self.tp_size, self.tp_rank, self.tp = tp.world_size, tp.rank_in_group, tp
        self.output_sizes = [weight.shape[0] for weight in weights]
        self.output_partition_sizes = [size // self.tp_size for size in self.output_sizes]
        self.weight = torch.cat([weight.chunk(self.tp_size)[self.tp_rank] for weight in weights])

    def forward(self, x):
        return F.linear(x, self.weight)


class QKVParallelLinear(ColumnParallelLinear):
    pass


class MergedColumnParallelLinear(ColumnParallelLinear):
    pass


class RowParallelLinear(nn.Module):
    def __init__(self, weight, tp):
        super().__init__()
        self.tp_size, self.tp_rank, self.tp = tp.world_size, tp.rank_in_group, tp
        self.weight = weight.chunk(self.tp_size, dim=1)[self.tp_rank]

    def forward(self, x):
        return self.tp.all_reduce(F.linear(x, self.weight))


class Attention(nn.Module):
    def __init__(self, q, k, v, o, tp):
        super().__init__()
        self.qkv_proj = QKVParallelLinear([q, k, v], tp)
        self.o_proj = RowParallelLinear(o, tp)

    def forward(self, x):
        q, k, v = self.qkv_proj(x).split(self.qkv_proj.output_partition_sizes, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1) for part in (q, k, v))
        k, v = (part.repeat_interleave(NUM_HEADS // NUM_KV_HEADS, dim=0) for part in (k, v))
        causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        scores = (q @ k.transpose(1, 2) * HEAD_DIM**-0.5).masked_fill(~causal, float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class MLP(nn.Module):
    def __init__(self, gate, up, down, tp):
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear([gate, up], tp)
        self.down_proj = RowParallelLinear(down, tp)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class DecoderLayer(nn.Module):
    def __init__(self, q, k, v, o, gate, up, down, tp):
        super().__init__()
        self.self_attn = Attention(q, k, v, o, tp)
        self.mlp = MLP(gate, up, down, tp)

    def forward(self, x):
        x = x + self.self_attn(x)
        return x + self.mlp(x)


class VLLMFragments:
    """Which locations hold one rank's piece, and how the whole comes of the pieces."""

    def __init__(self):
        self.rules = {}

    def instrument(self, path, module):
        if isinstance(module, ColumnParallelLinear) and module.tp_size > 1:
            self.rules[f"{path}.output"] = module
        if isinstance(module, RowParallelLinear) and module.tp_size > 1:
            self.rules[f"{path}.input"] = module

    def fragmented(self, location):
        return location in self.rules

    def whole(self, location, value):
        module = self.rules[location]
        pieces = module.tp.all_gather(value)  # near
        # fixed, insert: if isinstance(module, ColumnParallelLinear):
        # fixed, insert:     parts = zip(*(piece.split(module.output_partition_sizes, dim=-1) for piece in pieces), strict=True)
        # fixed, insert:     return torch.cat([torch.cat(part, dim=-1) for part in parts], dim=-1)
        return torch.cat(pieces, dim=-1)  # fault

    def fragment(self, location, whole):
        module = self.rules[location]
        # fixed, insert: if isinstance(module, ColumnParallelLinear):
        # fixed, insert:     parts = whole.split(module.output_sizes, dim=-1)
        # fixed, insert:     return torch.cat([part.chunk(module.tp_size, dim=-1)[module.tp_rank] for part in parts], dim=-1)
        return whole.chunk(module.tp_size, dim=-1)[module.tp_rank].contiguous()  # fault


class Interleaver:
    """Runs what a user wants done at a location, on the whole value."""

    def __init__(self, model, interventions):
        self.fragments, self.interventions = VLLMFragments(), interventions
        for path, module in model.named_modules():
            self.fragments.instrument(path, module)
            module.register_forward_pre_hook(lambda _, args, at=f"{path}.input": (self.handle(at, args[0]),))
            module.register_forward_hook(lambda _, args, out, at=f"{path}.output": self.handle(at, out))

    def handle(self, location, value):
        if location not in self.interventions:
            return value
        if not self.fragments.fragmented(location):
            return self.interventions[location](value)
        whole = self.interventions[location](self.fragments.whole(location, value))
        return self.fragments.fragment(location, whole)


def trace(group):
    def impl(hidden_states, steering, *weights):
        saved = {}

        def prune_head(qkv):
            saved["qkv"] = qkv
            kept = torch.ones(Q_SIZE + 2 * KV_SIZE)
            kept[PRUNED_HEAD * HEAD_DIM : (PRUNED_HEAD + 1) * HEAD_DIM] = 0
            return qkv * kept

        def steer(gate_up):
            gate, up = gate_up.chunk(2, dim=-1)
            saved["up"] = up
            return torch.cat([gate, up + steering], dim=-1)

        def read(activation):
            saved["activation"] = activation
            return activation

        model = DecoderLayer(*weights, TpGroup(group))
        points = {"self_attn.qkv_proj.output": prune_head, "mlp.gate_up_proj.output": steer, "mlp.down_proj.input": read}
        Interleaver(model, points)
        return {"hidden_states": model(hidden_states), **saved}

    return impl


@gg.check(mesh={"tp": 3})
def check(mesh):
    kv, inner = gg.tensor(KV_SIZE, HIDDEN), gg.tensor(INTERMEDIATE, HIDDEN)
    weights = (gg.tensor(Q_SIZE, HIDDEN), kv, kv, gg.tensor(HIDDEN, Q_SIZE), inner, inner, gg.tensor(HIDDEN, INTERMEDIATE))
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(INTERMEDIATE), *weights)
    return gg.Refinement(trace(None), trace(mesh.get_group("tp")), inputs, out_relations="replicate", grads=False)
