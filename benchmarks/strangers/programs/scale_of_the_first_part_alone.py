"""Three of a merged layer's four matrices lie in the checkpoint as one, with one scale; the loader writes it for the first of them, and the others keep the scale that they were made with. vLLM's Qwen3.5 in FP8.

Source: https://github.com/vllm-project/vllm/pull/38517
Rule: wrong-relation, wrong-scale
"""

from itertools import accumulate

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, HEADS, HEAD_K, HEAD_V = 7, 8, 6, 4, 5
KEY_DIM, VALUE_DIM = HEADS * HEAD_K, HEADS * HEAD_V


def gated_delta(q, k, v, z):
    """(tokens, heads, dim) each: causal linear attention with a gate."""
    scores = torch.einsum("thk,shk->hts", q, k) * HEAD_K**-0.5
    causal = torch.ones(TOKENS, TOKENS).tril()
    return torch.einsum("hts,shv->thv", scores * causal, v) * F.silu(z)


def spec(x, qkv_weight, qkv_scale, z_weight, z_scale, out_weight, out_scale):
    """The checkpoint's matrices, each times its scale."""
    q, k, v = F.linear(x, qkv_weight * qkv_scale).split([KEY_DIM, KEY_DIM, VALUE_DIM], dim=-1)
    z = F.linear(x, z_weight * z_scale)
    q, k = q.unflatten(-1, (HEADS, HEAD_K)), k.unflatten(-1, (HEADS, HEAD_K))
    v, z = v.unflatten(-1, (HEADS, HEAD_V)), z.unflatten(-1, (HEADS, HEAD_V))
    return F.linear(gated_delta(q, k, v, z).flatten(1), out_weight * out_scale)


class GroupCoordinator:
    def __init__(self, group):
        self.device_group = group
        self.rank_in_group, self.world_size = dist.get_rank(group), dist.get_world_size(group)


class PerTensorScaleParameter:
    """N scales for N matrices that are one."""

    def __init__(self, count):
        self.data = torch.ones(count)

    def _load_into_shard_id(self, loaded_weight, shard_id):
        self.data[shard_id] = loaded_weight.reshape(())

    def load_merged_column_weight(self, loaded_weight, shard_id):
        self._load_into_shard_id(loaded_weight, shard_id)

    def load_row_parallel_weight(self, loaded_weight):
        self._load_into_shard_id(loaded_weight, 0)


class ModelWeightParameter:
    def __init__(self, rows, columns, tp):
        self.data = torch.zeros(rows, columns)
        self.tp = tp

    def load_merged_column_weight(self, loaded_weight, shard_offset, shard_size):
        rows = loaded_weight.narrow(0, self.tp.rank_in_group * shard_size, shard_size)
        self.data[shard_offset : shard_offset + shard_size] = rows

    def load_row_parallel_weight(self, loaded_weight):
        size = self.data.shape[1]
        self.data.copy_(loaded_weight.narrow(1, self.tp.rank_in_group * size, size))


class Fp8LinearMethod:
    """Weights as they are stored, multiplied by what scales each logical matrix."""

    def apply(self, layer, x):
        channelwise = torch.cat([
            layer.weight_scale.data[i].expand(width) for i, width in enumerate(layer.logical_widths)
        ])  # near
        return F.linear(x, layer.weight.data * channelwise[:, None])


class MergedColumnParallelLinear(nn.Module):
    """Several matrices with the same input; each rank has its rows of each."""

    def __init__(self, input_size, output_sizes, tp):
        super().__init__()
        self.tp, self.output_sizes = tp, output_sizes
        self.logical_widths = [size // tp.world_size for size in output_sizes]
        self.weight = ModelWeightParameter(sum(self.logical_widths), input_size, tp)
        self.weight_scale = PerTensorScaleParameter(len(output_sizes))
        self.quant_method = Fp8LinearMethod()

    def _load_fused_module_from_checkpoint(self, param, loaded_weight, shard_ids):
        sizes = [self.output_sizes[shard_id] for shard_id in shard_ids]
        for shard_id, part in zip(shard_ids, loaded_weight.split(sizes), strict=True):
            self.weight_loader_v2(param, part, shard_id)

    def weight_loader_v2(self, param, loaded_weight, loaded_shard_id):
        if isinstance(loaded_shard_id, tuple):
            if isinstance(param, PerTensorScaleParameter):
                param.load_merged_column_weight(loaded_weight, shard_id=0)  # fixed: for shard_id in loaded_shard_id:
                # fixed, insert:     param.load_merged_column_weight(loaded_weight, shard_id=shard_id)
                return
            self._load_fused_module_from_checkpoint(param, loaded_weight, loaded_shard_id)
        elif isinstance(param, PerTensorScaleParameter):
            param.load_merged_column_weight(loaded_weight, shard_id=loaded_shard_id)
        else:
            offsets = [0, *accumulate(self.logical_widths)]
            width = self.logical_widths[loaded_shard_id]
            param.load_merged_column_weight(loaded_weight, offsets[loaded_shard_id], width)

    def forward(self, x):
        return self.quant_method.apply(self, x)


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, tp):
        super().__init__()
        self.tp = tp
        self.logical_widths = [output_size]
        self.weight = ModelWeightParameter(output_size, input_size // tp.world_size, tp)
        self.weight_scale = PerTensorScaleParameter(1)
        self.quant_method = Fp8LinearMethod()

    def weight_loader_v2(self, param, loaded_weight):
        param.load_row_parallel_weight(loaded_weight)

    def forward(self, x):
        output_parallel = self.quant_method.apply(self, x)
        dist.all_reduce(output_parallel, group=self.tp.device_group)
        return output_parallel


class GatedDeltaNetAttention(nn.Module):
    stacked_params_mapping = (("in_proj_qkvz", "in_proj_qkv", (0, 1, 2)), ("in_proj_qkvz", "in_proj_z", 3))

    def __init__(self, tp):
        super().__init__()
        self.in_proj_qkvz = MergedColumnParallelLinear(HIDDEN, [KEY_DIM, KEY_DIM, VALUE_DIM, VALUE_DIM], tp)
        self.out_proj = RowParallelLinear(VALUE_DIM, HIDDEN, tp)
        self.heads = HEADS // tp.world_size

    def load_weights(self, weights):
        for name, loaded_weight in weights.items():
            module, kind = name.split(".")
            for fused, part, shard_id in self.stacked_params_mapping:
                if module == part:
                    layer = getattr(self, fused)
                    layer.weight_loader_v2(getattr(layer, kind), loaded_weight, shard_id)
                    break
            else:
                layer = getattr(self, module)
                layer.weight_loader_v2(getattr(layer, kind), loaded_weight)

    def forward(self, x):
        q, k, v, z = self.in_proj_qkvz(x).split(self.in_proj_qkvz.logical_widths, dim=-1)
        q, k = q.unflatten(-1, (self.heads, HEAD_K)), k.unflatten(-1, (self.heads, HEAD_K))
        v, z = v.unflatten(-1, (self.heads, HEAD_V)), z.unflatten(-1, (self.heads, HEAD_V))
        return self.out_proj(gated_delta(q, k, v, z).flatten(1))


NAMES = [f"{module}.{kind}" for module in ("in_proj_qkv", "in_proj_z", "out_proj") for kind in ("weight", "weight_scale")]


def serve(tp):
    @torch.no_grad()
    def run(x, *checkpoint):
        layer = GatedDeltaNetAttention(tp)
        layer.load_weights(dict(zip(NAMES, checkpoint, strict=True)))
        return layer(x)

    return run


@gg.check(mesh={"tp": 2})
def check(mesh):
    scale = gg.tensor(1)
    inputs = (
        gg.tensor(TOKENS, HIDDEN),
        *(gg.tensor(2 * KEY_DIM + VALUE_DIM, HIDDEN), scale, gg.tensor(VALUE_DIM, HIDDEN), scale),
        *(gg.tensor(HIDDEN, VALUE_DIM), scale),
    )
    impl = serve(GroupCoordinator(mesh.get_group("tp")))
    return gg.Refinement(spec, impl, inputs, out_relations="replicate", grads=False)
