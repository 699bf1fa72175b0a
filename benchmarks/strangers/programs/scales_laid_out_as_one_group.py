"""Scales of quantized experts are brought into the order in which the kernel reads them, which depends on whether the summed dimension has one group or several; for the first product it is asked of the other dimension, which tensor parallelism makes as small as one group. vLLM's Marlin experts.

Source: https://github.com/vllm-project/vllm/pull/50196
Rule: wrong-relation, wrong-shard, wrong-scale
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, EXPERTS, HIDDEN, INTERMEDIATE, SHARED, GROUP_SIZE = 7, 5, 16, 12, 6, 4


def get_scale_perms():
    """How the kernel's threads read a row of scales: with several groups, and with one."""
    scale_perm = [i + 4 * j for i in range(4) for j in range(2)]
    scale_perm_single = [2 * i + j for j in range(2) for i in range(2)]
    return scale_perm, scale_perm_single


def marlin_permute_scales(s, size_k, size_n, group_size):
    scale_perm, scale_perm_single = get_scale_perms()
    if group_size < size_k and group_size != -1:
        s = s.reshape(-1, len(scale_perm))[:, scale_perm]
    else:
        s = s.reshape(-1, len(scale_perm_single))[:, scale_perm_single]  # near
    return s.reshape(-1, size_n).contiguous()


def marlin_moe_permute_scales(s, size_k, size_n, group_size):
    return torch.stack([marlin_permute_scales(expert, size_k, size_n, group_size) for expert in s])


def moe_wna16_marlin_gemm(x, qweight, scales):
    """One expert's product; the number of groups is that of the rows of scales."""
    size_k, size_n = qweight.shape
    num_groups = scales.shape[0]
    perms = get_scale_perms()
    perm = perms[0] if num_groups > 1 else perms[1]
    order = sorted(range(len(perm)), key=lambda place: perm[place])
    scales = scales.reshape(-1, len(perm))[:, order].reshape(num_groups, size_n)  # near
    return x @ (qweight * scales.repeat_interleave(size_k // num_groups, dim=0))


@dataclass(frozen=True)
class GPTQMarlinConfig:
    group_size: int = GROUP_SIZE
    zero_point: int = 8


class TPGroup:
    def __init__(self, group=None):
        self.group = group
        self.rank, self.world_size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))

    def shard(self, tensor, dim):
        return tensor.chunk(self.world_size, dim=dim)[self.rank]

    def all_reduce(self, x):
        if self.group is not None:
            dist.all_reduce(x, group=self.group)
        return x


class GPTQMarlinMoEMethod:
    def __init__(self, config):
        self.config = config

    def create_weights(self, layer, qweights, scales, tp):
        """The checkpoint has w1, w3 (gate and up) and w2 (down), and a row of scales for each group."""
        w1, w3, w2 = qweights
        s1, s3, s2 = scales
        layer.intermediate_size_per_partition = w1.shape[2] // tp.world_size
        layer.w13_qweight = torch.cat((tp.shard(w1, 2), tp.shard(w3, 2)), dim=2) - self.config.zero_point
        layer.w13_scales = torch.cat((tp.shard(s1, 2), tp.shard(s3, 2)), dim=2)
        layer.w2_qweight = tp.shard(w2, 1) - self.config.zero_point
        layer.w2_scales = tp.shard(s2, 1)

    def process_weights_after_loading(self, layer):
        layer.w13_scales = marlin_moe_permute_scales(
            s=layer.w13_scales,
            size_k=layer.intermediate_size_per_partition,  # fixed: size_k=layer.w13_qweight.shape[1],
            size_n=layer.w13_scales.shape[2],
            group_size=self.config.group_size,
        )
        layer.w2_scales = marlin_moe_permute_scales(
            s=layer.w2_scales,
            size_k=layer.w2_scales.shape[1] * self.config.group_size,
            size_n=layer.w2_scales.shape[2],
            group_size=self.config.group_size,
        )

    def apply(self, layer, x, topk_weights):
        output = torch.zeros_like(x)
        for expert in range(EXPERTS):
            gate, up = moe_wna16_marlin_gemm(x, layer.w13_qweight[expert], layer.w13_scales[expert]).chunk(2, dim=-1)
            down = moe_wna16_marlin_gemm(F.silu(gate) * up, layer.w2_qweight[expert], layer.w2_scales[expert])
            output = output + topk_weights[:, expert, None] * down
        return output


class FusedMoE(nn.Module):
    def __init__(self, quant_method):
        super().__init__()
        self.quant_method = quant_method

    def forward(self, x, router_logits):
        return self.quant_method.apply(self, x, router_logits.softmax(-1))


class SharedMLP(nn.Module):
    """Not quantized."""

    def __init__(self, up, down, tp):
        super().__init__()
        self.up, self.down = tp.shard(up, 1), tp.shard(down, 0)

    def forward(self, x):
        return F.silu(x @ self.up) @ self.down


class SparseMoeBlock(nn.Module):
    def __init__(self, gate, shared, qweights, scales, tp):
        super().__init__()
        self.tp, self.gate = tp, gate
        self.shared_expert = SharedMLP(*shared, tp)
        quant_method = GPTQMarlinMoEMethod(GPTQMarlinConfig())
        self.experts = FusedMoE(quant_method)
        quant_method.create_weights(self.experts, qweights, scales, tp)
        quant_method.process_weights_after_loading(self.experts)

    def forward(self, hidden_states):
        routed = self.experts(hidden_states, hidden_states @ self.gate)
        output = self.tp.all_reduce(routed + self.shared_expert(hidden_states))
        return hidden_states + output


def run(group=None):
    def forward(x, gate, up, down, w1, w3, w2, s1, s3, s2):
        block = SparseMoeBlock(gate, (up, down), (w1, w3, w2), (s1, s3, s2), TPGroup(group))
        return block(x)

    return forward


@gg.check(mesh={"tp": 3})
def check(mesh):
    into, out = (EXPERTS, HIDDEN, INTERMEDIATE), (EXPERTS, INTERMEDIATE, HIDDEN)
    scales_into, scales_out = ((e, k // GROUP_SIZE, n) for e, k, n in (into, out))
    shapes = ((TOKENS, HIDDEN), (HIDDEN, EXPERTS), (HIDDEN, SHARED), (SHARED, HIDDEN))
    shapes += (into, into, out, scales_into, scales_into, scales_out)
    inputs = tuple(gg.tensor(*shape) for shape in shapes)
    return gg.Refinement(run(), run(mesh.get_group("tp")), inputs, in_relations={}, out_relations="replicate", grads=False)
