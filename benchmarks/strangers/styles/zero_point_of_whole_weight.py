"""w8a8 with a zero point of activations: scale_a * scale_w * (q @ w - zero_point * sum of w), row parallel.

The mistake: the zero point's correction is the sum over all inputs on each rank: after the all-reduce it counts tp = 2 times.

Rule: wrong-scale, extra-reduction
"""
import torch
import torch.distributed as dist

import graphguard as gg

IN, OUT, TOKENS = 8, 5, 3


def scaled_mm_azp(q, weight, scale_a, scale_w, zero_point, azp_adj):
    return scale_a * scale_w * (q @ weight.t() - zero_point * azp_adj)


def sequential(q, weight, scale_a, scale_w, zero_point, bias):
    return scaled_mm_azp(q, weight, scale_a, scale_w, zero_point, weight.sum(1)) + bias


class W8A8RowParallelLinear:
    def __init__(self, group):
        self.group = group
        self.tp_size, self.tp_rank = dist.get_world_size(group), dist.get_rank(group)

    def load(self, loaded_weight, weight_scale):
        shard_size = loaded_weight.shape[1] // self.tp_size
        self.weight = loaded_weight.narrow(1, self.tp_rank * shard_size, shard_size)
        self.weight_scale = weight_scale
        self.azp_adj = loaded_weight.sum(1)  # fixed: self.azp_adj = self.weight.sum(1)

    def forward(self, q, scale_a, zero_point, bias):
        q = q.chunk(self.tp_size, dim=-1)[self.tp_rank]
        y = scaled_mm_azp(q, self.weight, scale_a, self.weight_scale, zero_point, self.azp_adj)  # fault
        dist.all_reduce(y, group=self.group)  # fault
        return y + bias


@gg.check(mesh={"tp": 2})
def check(mesh):
    def impl(q, weight, scale_a, scale_w, zero_point, bias):
        layer = W8A8RowParallelLinear(mesh.get_group("tp"))
        layer.load(weight, scale_w)
        return layer.forward(q, scale_a, zero_point, bias)

    return gg.Refinement(
        sequential,
        impl,
        (
            gg.tensor(TOKENS, IN),
            gg.tensor(OUT, IN),
            gg.tensor(TOKENS, 1),
            gg.tensor(OUT),
            gg.tensor(TOKENS, 1),
            gg.tensor(OUT),
        ),
        out_relations="replicate",
        grads=False,
    )
