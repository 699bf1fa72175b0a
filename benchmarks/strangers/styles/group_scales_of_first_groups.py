"""A group-quantised row-parallel layer: weights and scales are split along the input.

The mistake: rank 1 loads the scales of the first groups, 0..1: needs groups 2..3, those of its columns of qweight.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

IN, OUT, GROUP_SIZE = 12, 5, 3


def dequantize(qweight, scales):
    return qweight.to(torch.float32) * scales.repeat_interleave(GROUP_SIZE, dim=1)


def linear(x, qweight, scales, bias):
    return F.linear(x, dequantize(qweight, scales), bias)


class Param:
    def __init__(self, data, input_dim=None, packed_factor=1):
        self.data, self.input_dim, self.packed_factor = data, input_dim, packed_factor

    def load_row_parallel_weight(self, loaded, tp_rank):
        if self.input_dim is None:
            self.data = loaded[tuple(slice(0, n) for n in self.data.shape)].clone()
            return
        size = self.data.shape[self.input_dim]
        self.data = loaded.narrow(self.input_dim, tp_rank * size, size).clone()


class GroupQuantLinearMethod:
    def create_weights(self, input_size_per_partition, output_size):
        groups = input_size_per_partition // GROUP_SIZE
        return {
            "qweight": Param(torch.empty(output_size, input_size_per_partition, dtype=torch.int64), input_dim=1),
            "scales": Param(torch.empty(output_size, groups)),  # fixed: "scales": Param(torch.empty(output_size, groups), input_dim=1),
        }

    def apply(self, params, x):
        return F.linear(x, dequantize(params["qweight"].data, params["scales"].data))


class RowParallelLinear:
    def __init__(self, input_size, output_size, group):
        self.group = group
        self.tp_rank, self.tp_size = dist.get_rank(group), dist.get_world_size(group)
        self.quant_method = GroupQuantLinearMethod()
        self.input_size_per_partition = input_size // self.tp_size
        self.params = self.quant_method.create_weights(self.input_size_per_partition, output_size)

    def load_weights(self, **weights):
        for name, loaded in weights.items():
            self.params[name].load_row_parallel_weight(loaded, self.tp_rank)  # fault

    def forward(self, x, bias):
        x = x.narrow(-1, self.tp_rank * self.input_size_per_partition, self.input_size_per_partition)
        output_parallel = self.quant_method.apply(self.params, x)
        dist.all_reduce(output_parallel, group=self.group)
        return output_parallel + bias


@gg.check(mesh={"tp": 2})
def check(mesh):
    def impl(x, qweight, scales, bias):
        layer = RowParallelLinear(IN, OUT, mesh.get_group("tp"))
        layer.load_weights(qweight=qweight, scales=scales)
        return layer.forward(x, bias)

    return gg.Refinement(
        linear,
        impl,
        (
            gg.tensor(3, IN),
            gg.tensor(OUT, IN, dtype=torch.int64, low=-8, high=8),
            gg.tensor(OUT, IN // GROUP_SIZE),
            gg.tensor(OUT),
        ),
        out_relations="replicate",
        grads=False,
    )
