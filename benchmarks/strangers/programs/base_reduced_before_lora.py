"""A row-parallel layer with LoRA: the base layer's result is summed inside, then the adapter's partial product is added, and nobody sums that. vLLM on Ascend.

Source: https://github.com/vllm-project/vllm-ascend/pull/15004
Rule: missing-reduction
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, RANK, SCALING = 3, 5, 8, 2, 1.5


class Output(nn.Module):
    """The output projection with its adapter: the specification."""

    def __init__(self):
        super().__init__()
        self.wo_a = nn.Linear(HIDDEN, INNER, bias=False)
        self.wo_b = nn.Linear(INNER, HIDDEN, bias=False)
        self.lora_a = nn.Parameter(torch.randn(RANK, INNER))
        self.lora_b = nn.Parameter(torch.randn(HIDDEN, RANK))

    def forward(self, x):
        h = F.silu(self.wo_a(x))
        return self.wo_b(h) + SCALING * F.linear(F.linear(h, self.lora_a), self.lora_b)


def tensor_model_parallel_all_reduce(x, group):
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


class UnquantizedLinearMethod:
    def apply(self, layer, x):
        output = F.linear(x, layer.weight)
        if layer.reduce_results and layer.tp_size > 1:
            output = tensor_model_parallel_all_reduce(output, layer.group)  # near
        return output


class RowParallelLinear(nn.Module):
    def __init__(self, group, reduce_results=True):
        super().__init__()
        self.group, self.reduce_results = group, reduce_results
        self.tp_size = dist.get_world_size(group)
        self.quant_method = UnquantizedLinearMethod()
        self.weight = nn.Parameter(torch.empty(HIDDEN, INNER // self.tp_size))

    def forward(self, x):
        return self.quant_method.apply(self, x)


class PunicaWrapper:
    """The adapters' products."""

    def shrink(self, x, lora_a):
        return F.linear(x, lora_a)

    def expand_add(self, output, shrunk, lora_b):
        return output + SCALING * F.linear(shrunk, lora_b)


class RowParallelLinearWithLoRA(nn.Module):
    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer
        self.punica_wrapper = PunicaWrapper()
        self.lora_a_stacked = nn.Parameter(torch.empty(RANK, INNER // base_layer.tp_size))
        self.lora_b_stacked = nn.Parameter(torch.empty(HIDDEN, RANK))

    def forward(self, x):
        output_parallel = self.base_layer.quant_method.apply(self.base_layer, x)
        shrunk = self.punica_wrapper.shrink(x, self.lora_a_stacked)  # fixed: shrunk = tensor_model_parallel_all_reduce(self.punica_wrapper.shrink(x, self.lora_a_stacked), self.base_layer.group)
        return self.punica_wrapper.expand_add(output_parallel, shrunk, self.lora_b_stacked)  # fault


class ParallelOutput(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.wo_a = nn.Linear(HIDDEN, INNER // dist.get_world_size(group), bias=False)
        self.wo_b = RowParallelLinearWithLoRA(RowParallelLinear(group))

    def forward(self, x):
        return self.wo_b(F.silu(self.wo_a(x)))


def load(state, model, mesh):
    rank, size = mesh.get_local_rank("tp"), mesh["tp"].size()
    with torch.no_grad():
        model.wo_a.weight.copy_(state["wo_a.weight"].chunk(size)[rank])
        model.wo_b.base_layer.weight.copy_(state["wo_b.weight"].chunk(size, dim=1)[rank])
        model.wo_b.lora_a_stacked.copy_(state["lora_a"].chunk(size, dim=1)[rank])
        model.wo_b.lora_b_stacked.copy_(state["lora_b"])


@gg.check(mesh={"tp": 2})
def check(mesh):
    impl = ParallelOutput(mesh.get_group("tp"))
    return gg.Refinement(Output(), impl, (gg.tensor(TOKENS, HIDDEN),), load=load, out_relations="replicate", grads=False)
