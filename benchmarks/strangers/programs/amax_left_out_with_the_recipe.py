"""Tokens are quantized before the sequence is gathered, so all ranks need one scale; a recipe without the reduction of the largest values leaves each rank its own. Transformer Engine with sequence parallelism.

Source: https://github.com/NVIDIA/TransformerEngine/pull/74
Rule: missing-reduction, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SEQUENCE, HIDDEN, FFN, STEPS, FP8_MAX, EPS = 15, 7, 12, 2, 448.0, 1e-5


@dataclass
class DelayedScaling:
    """The scale of a step comes of the largest value of the one before."""

    margin: int = 0
    reduce_amax: bool = True


@dataclass(frozen=True)
class TensorParallel:
    group: Any = None
    sequence_parallel: bool = False

    @property
    def size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)


def gather_along_first_dim(x, tp):
    if tp.size == 1:
        return x
    out = torch.empty(tp.size * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=tp.group)
    return out


def reduce_scatter_along_first_dim(x, tp):
    if tp.size == 1:
        return x
    out = torch.empty(x.shape[0] // tp.size, *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=tp.group)
    return out


def cast_to_fp8(x, fp8_meta):
    """Onto the grid; what was largest is noted for the next step."""
    fp8_meta["amax"] = x.abs().amax()
    return torch.round(x * fp8_meta["scale"])


def cast_from_fp8(x, fp8_meta):
    return x / fp8_meta["scale"]


def global_amax_reduction(fp8_meta, tp):
    if tp.size > 1:
        amax = fp8_meta["amax"].clone()
        dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=tp.group)
        fp8_meta["amax"] = amax


def amax_and_scale_update(fp8_meta):
    fp8_meta["scale"] = FP8_MAX / fp8_meta["amax"] / 2.0 ** fp8_meta["recipe"].margin


class TransformerEngineBaseModule(nn.Module):
    def __init__(self, tp, recipe):
        super().__init__()
        self.tp = tp
        self.fp8_meta = {"recipe": recipe, "scale": torch.ones(()), "update_amax_and_scale_fwd": False}

    @property
    def sequence_parallel(self):
        return self.tp.sequence_parallel

    def prepare_forward(self):
        """Brings the scale up to date, except before the first step."""
        if self.fp8_meta["update_amax_and_scale_fwd"]:
            if self.fp8_meta["recipe"].reduce_amax:  # fixed: if self.fp8_meta["recipe"].reduce_amax or self.sequence_parallel:
                global_amax_reduction(self.fp8_meta, self.tp)
            amax_and_scale_update(self.fp8_meta)
        self.fp8_meta["update_amax_and_scale_fwd"] = True


class LayerNormLinear(TransformerEngineBaseModule):
    """Column parallel: normalizes its tokens, quantizes them, gathers them in eight bits."""

    def __init__(self, layer_norm_weight, weight, tp, recipe):
        super().__init__(tp, recipe)
        self.layer_norm_weight = layer_norm_weight
        self.weight = weight.chunk(tp.size)[tp.rank]

    def forward(self, inp):
        self.prepare_forward()
        ln_out = F.layer_norm(inp, inp.shape[-1:], self.layer_norm_weight, eps=EPS)
        ln_out = cast_to_fp8(ln_out, self.fp8_meta)
        ln_out_total = gather_along_first_dim(ln_out, self.tp)
        return F.linear(cast_from_fp8(ln_out_total, self.fp8_meta), self.weight)  # near


class Linear(TransformerEngineBaseModule):
    """Row parallel, not in eight bits: sums up and keeps its tokens."""

    def __init__(self, weight, tp, recipe):
        super().__init__(tp, recipe)
        self.weight = weight.chunk(tp.size, dim=1)[tp.rank]

    def forward(self, inp):
        return reduce_scatter_along_first_dim(F.linear(inp, self.weight), self.tp)


class MLP(nn.Module):
    def __init__(self, layer_norm_weight, fc1, fc2, tp, recipe):
        super().__init__()
        self.linear_fc1 = LayerNormLinear(layer_norm_weight, fc1, tp, recipe)
        self.linear_fc2 = Linear(fc2, tp, recipe)

    def forward(self, hidden_states):
        return hidden_states + self.linear_fc2(F.gelu(self.linear_fc1(hidden_states)))


def run(tp, recipe):
    @torch.no_grad()
    def steps(x, layer_norm_weight, fc1, fc2):
        mlp = MLP(layer_norm_weight, fc1, fc2, tp, recipe)
        return torch.stack([mlp(x[step]) for step in range(STEPS)])

    return steps


@gg.check(mesh={"tp": 3})
def check(mesh):
    recipe = DelayedScaling(reduce_amax=False)
    tokens, whole = {"tp": Shard(1)}, {"tp": Replicate()}
    return gg.Refinement(
        run(TensorParallel(), recipe),
        run(TensorParallel(mesh.get_group("tp"), sequence_parallel=True), recipe),
        (gg.tensor(STEPS, SEQUENCE, HIDDEN), gg.tensor(HIDDEN), gg.tensor(FFN, HIDDEN), gg.tensor(HIDDEN, FFN)),
        in_relations=(tokens, whole, whole, whole),
        out_relations=tokens,
        grads=False,
    )
