"""A weight's blocks have scales, and these a scale of their own, of the largest entry of the whole weight; it is taken before the ranks synchronise their statistics, which leaves it out, so that each rank has that of its part. NVIDIA's Model-Optimizer.

Source: https://github.com/NVIDIA/Model-Optimizer/pull/1553
Rule: missing-reduction, wrong-relation, nonlinear-on-partial
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, HIDDEN, FFN, BLOCK = 5, 8, 24, 4
FP4_MAX, FP8_MAX, INT8_MAX = 6.0, 56.0, 127.0


@dataclass(frozen=True)
class ParallelState:
    tensor_parallel_group: Any = None

    @property
    def size(self):
        return 1 if self.tensor_parallel_group is None else dist.get_world_size(self.tensor_parallel_group)

    @property
    def rank(self):
        return 0 if self.tensor_parallel_group is None else dist.get_rank(self.tensor_parallel_group)

    def reduce_max(self, tensor):
        tensor = tensor.clone()
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.tensor_parallel_group)
        return tensor


class TensorQuantizer(nn.Module):
    """One scale for a tensor; the largest entry seen while calibrating."""

    is_static_block_quant = False

    def __init__(self):
        super().__init__()
        self.amax = None
        self.calibrating = False

    def collect(self, x):
        amax = x.abs().amax()
        self.amax = amax if self.amax is None else torch.maximum(self.amax, amax)

    def sync_amax_across_distributed_group(self, parallel_state):
        if self.amax is not None and parallel_state.size > 1:
            self.amax = parallel_state.reduce_max(self.amax)

    def fake_quant(self, x):
        scale = self.amax / INT8_MAX
        return torch.round(x / scale).clamp(-INT8_MAX, INT8_MAX) * scale

    def forward(self, x):
        if self.calibrating:
            self.collect(x)
            return x
        return self.fake_quant(x)


class NVFP4StaticQuantizer(TensorQuantizer):
    """A scale for each block of a row, itself a multiple of one for the whole weight."""

    is_static_block_quant = True

    def __init__(self):
        super().__init__()
        self.global_amax = None

    def blocks(self, x):
        return x.unflatten(-1, (-1, BLOCK))

    def collect(self, x):
        self.amax = self.blocks(x).abs().amax(-1, keepdim=True)

    def sync_amax_across_distributed_group(self, parallel_state):
        """The blocks of a rank are its own."""
        # fixed, insert: if self.global_amax is not None and parallel_state.size > 1:
        # fixed, insert:     self.global_amax = parallel_state.reduce_max(self.global_amax)
        return

    def promote(self):
        self.global_amax = self.amax.amax()  # fault

    def fake_quant(self, x):
        global_scale = self.global_amax / (FP4_MAX * FP8_MAX)
        block_scale = torch.round(self.amax / FP4_MAX / global_scale).clamp(1.0, FP8_MAX) * global_scale  # near
        return (torch.round(self.blocks(x) / block_scale).clamp(-FP4_MAX, FP4_MAX) * block_scale).flatten(-2)


class QuantParallelLinear(nn.Module):
    def __init__(self, weight, parallel_state, dim):
        super().__init__()
        self.parallel_state = parallel_state
        self.weight = weight.chunk(parallel_state.size, dim=dim)[parallel_state.rank]
        self.input_quantizer = TensorQuantizer()
        self.weight_quantizer = NVFP4StaticQuantizer()

    def forward(self, x):
        return F.linear(self.input_quantizer(x), self.weight_quantizer(self.weight))


class QuantColumnParallelLinear(QuantParallelLinear):
    def __init__(self, weight, parallel_state):
        super().__init__(weight, parallel_state, 0)


class QuantRowParallelLinear(QuantParallelLinear):
    def __init__(self, weight, parallel_state):
        super().__init__(weight, parallel_state, 1)

    def forward(self, x):
        out = super().forward(x)
        if self.parallel_state.size > 1:
            out = out.contiguous()
            dist.all_reduce(out, group=self.parallel_state.tensor_parallel_group)
        return out


class MLP(nn.Module):
    def __init__(self, linear_fc1, linear_fc2, parallel_state):
        super().__init__()
        self.linear_fc1 = QuantColumnParallelLinear(linear_fc1, parallel_state)
        self.linear_fc2 = QuantRowParallelLinear(linear_fc2, parallel_state)

    def forward(self, x):
        return x + self.linear_fc2(F.relu(self.linear_fc1(x)))


def quantizers_of(model):
    return [module for module in model.modules() if isinstance(module, TensorQuantizer)]


def promote_nvfp4_static_quantizers(model):
    for quantizer in quantizers_of(model):
        if quantizer.is_static_block_quant and quantizer.amax is not None:
            quantizer.promote()


def sync_quantizer_amax_across_tp(model):
    for module in model.modules():
        if isinstance(module, QuantParallelLinear):
            module.input_quantizer.sync_amax_across_distributed_group(module.parallel_state)
            module.weight_quantizer.sync_amax_across_distributed_group(module.parallel_state)


def max_calibrate(model, forward_loop, distributed_sync=True):
    for quantizer in quantizers_of(model):
        quantizer.calibrating = True
    forward_loop(model)
    for quantizer in quantizers_of(model):
        quantizer.calibrating = False
    promote_nvfp4_static_quantizers(model)
    if distributed_sync:
        sync_quantizer_amax_across_tp(model)


def quantize_and_run(parallel_state):
    @torch.no_grad()
    def run(calibration, x, linear_fc1, linear_fc2):
        model = MLP(linear_fc1, linear_fc2, parallel_state)
        max_calibrate(model, lambda calibrated: calibrated(calibration))
        return model(x)

    return run


@gg.check(mesh={"tp": 3})
def check(mesh):
    data = gg.tensor(BATCH, HIDDEN)
    inputs = (data, data, gg.tensor(FFN, HIDDEN), gg.tensor(HIDDEN, FFN))
    impl = quantize_and_run(ParallelState(mesh.get_group("tp")))
    return gg.Refinement(quantize_and_run(ParallelState()), impl, inputs, out_relations="replicate", grads=False)
