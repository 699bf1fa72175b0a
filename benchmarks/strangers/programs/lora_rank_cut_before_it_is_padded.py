"""Adapters of a lower rank than the buffers' are cut into the ranks' parts, each padded for itself; the other factor is padded at its end. vLLM.

Source: https://github.com/vllm-project/vllm/pull/31994
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, RANK, MAX_RANK = 5, 6, 4, 2, 2, 4


class Experts(nn.Module):
    """All tokens go through all experts, weighed by the router; an adapter adds to the first layer."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.w13 = nn.Parameter(torch.randn(EXPERTS, 2 * INNER, HIDDEN))
        self.w2 = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))
        self.lora_a = nn.Parameter(torch.randn(EXPERTS, RANK, HIDDEN))
        self.lora_b = nn.Parameter(torch.randn(EXPERTS, 2 * INNER, RANK))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            adapted = x @ self.lora_a[expert].t() @ self.lora_b[expert].t()
            gate, up = (x @ self.w13[expert].t() + adapted).chunk(2, dim=-1)
            out = out + weights[:, expert, None] * ((torch.tanh(gate) * up) @ self.w2[expert].t())
        return out


class FusedMoEWithLoRA(nn.Module):
    """The experts' channels over the ranks; of the adapter, the rows of its rank too."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.tp_rank, self.tp_size = dist.get_rank(group), dist.get_world_size(group)
        inner = INNER // self.tp_size
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.w13 = nn.Parameter(torch.empty(EXPERTS, 2 * inner, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, inner))
        self.lora_a_stacked = torch.zeros(EXPERTS, MAX_RANK // self.tp_size, HIDDEN)
        self.lora_b_stacked = torch.zeros(EXPERTS, 2 * inner, MAX_RANK)

    def slice_lora_a(self, lora_a):
        """This rank's rows."""
        shard_size = lora_a.shape[0] // self.tp_size  # fixed: shard_size = MAX_RANK // self.tp_size
        start = self.tp_rank * shard_size
        return lora_a[start : start + shard_size]  # fault

    def slice_w13(self, weight):
        """This rank's channels of the gate, and those of the other half."""
        return torch.cat([half.chunk(self.tp_size)[self.tp_rank] for half in weight.chunk(2)])

    def set_lora(self, lora_a, lora_b):
        for expert in range(EXPERTS):
            rows = self.slice_lora_a(lora_a[expert])
            self.lora_a_stacked[expert, : rows.shape[0]] = rows
            columns = self.slice_w13(lora_b[expert])
            self.lora_b_stacked[expert, :, : columns.shape[1]] = columns  # near

    def gather(self, x):
        """The last dim of all ranks."""
        parts = [torch.empty_like(x) for _ in range(self.tp_size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)

    def add_lora(self, out, x, expert):
        shrunk = self.gather(x @ self.lora_a_stacked[expert].t())
        return out + shrunk @ self.lora_b_stacked[expert].t()

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            gate, up = self.add_lora(F.linear(x, self.w13[expert]), x, expert).chunk(2, dim=-1)
            out = out + weights[:, expert, None] * F.linear(torch.tanh(gate) * up, self.w2[expert])
        dist.all_reduce(out, group=self.group)
        return out


@torch.no_grad()
def load_weights(state, layer, mesh):
    layer.router.weight.copy_(state["router.weight"])
    for expert in range(EXPERTS):
        layer.w13[expert].copy_(layer.slice_w13(state["w13"][expert]))
        layer.w2[expert].copy_(state["w2"][expert].chunk(layer.tp_size, dim=1)[layer.tp_rank])
    layer.set_lora(state["lora_a"], state["lora_b"])


class Inference(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    @torch.no_grad()
    def forward(self, x):
        return self.layer(x)


def load(state, model, mesh):
    load_weights({name.removeprefix("layer."): tensor for name, tensor in state.items()}, model.layer, mesh)


@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(
        Inference(Experts()),
        Inference(FusedMoEWithLoRA(mesh.get_group("tp"))),
        (gg.tensor(TOKENS, HIDDEN),),
        load=load,
        out_relations="replicate",
        grads=False,
    )
