"""Sequence parallelism: the LoRA factor that every tensor rank has whole sees the own tokens only, and is not marked, so that its gradient is not summed. mcore-bridge (ms-swift).

Source: https://github.com/modelscope/mcore-bridge/pull/173
Rule: gradient-not-reduced, missing-reduction
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SEQ, BATCH, HIDDEN, FFN, RANK, ALPHA, LR = 10, 3, 8, 14, 4, 6.0, 0.15
NAMES = ("norm", "fc1", "fc1_lora_A", "fc1_lora_B", "fc2", "fc2_lora_A", "fc2_lora_B")


@dataclass
class TransformerConfig:
    tensor_model_parallel_size: int = 1
    sequence_parallel: bool = False
    tp_group: Any = None


class GatherFromSequenceParallelRegion(torch.autograd.Function):
    """All tokens; what comes back is summed over the ranks and cut, or just cut."""

    @staticmethod
    def forward(ctx, x, group, tensor_parallel_output_grad):
        ctx.group, ctx.reduces, ctx.rows = group, tensor_parallel_output_grad, x.shape[0]
        out = torch.empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        if not ctx.reduces:
            return grad.narrow(0, dist.get_rank(ctx.group) * ctx.rows, ctx.rows), None, None
        out = torch.empty(ctx.rows, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None, None


class ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(dist.get_world_size(ctx.group) * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ParallelLinear(nn.Module):
    """``parallel_mode``: 'column' gathers its tokens, 'row' scatters its sums, None is an ordinary layer."""

    def __init__(self, weight, config, parallel_mode=None):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.config = config
        self.parallel_mode = parallel_mode if config.sequence_parallel else None

    def forward(self, x):
        if self.parallel_mode == "column":
            x = GatherFromSequenceParallelRegion.apply(x, self.config.tp_group, True)
        y = F.linear(x, self.weight)
        if self.parallel_mode == "row":
            y = ReduceScatterToSequenceParallelRegion.apply(y, self.config.tp_group)
        return y


class LoraParallelLinear(nn.Module):
    def __init__(self, base_layer, config, lora_A, lora_B):
        super().__init__()
        self.base_layer = base_layer
        self.base_layer.weight.requires_grad_(False)
        self.config = config
        self.is_parallel_a = base_layer.parallel_mode == "row"
        self.scaling = ALPHA / RANK
        self.update_layer(lora_A, lora_B)

    def update_layer(self, lora_A, lora_B):
        if self.is_parallel_a:
            self.lora_A = ParallelLinear(lora_A, self.config, parallel_mode="row")
            self.lora_B = ParallelLinear(lora_B, self.config)  # fault
            # fixed, insert: self.lora_B.weight.sequence_parallel = self.config.sequence_parallel
        else:
            self.lora_A = ParallelLinear(lora_A, self.config)  # fault
            # fixed, insert: self.lora_A.weight.sequence_parallel = self.config.sequence_parallel
            self.lora_B = ParallelLinear(lora_B, self.config, parallel_mode="column")

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling


class LayerNorm(nn.Module):
    """Is trained along (``modules_to_save``)."""

    def __init__(self, weight, config):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.weight.sequence_parallel = config.sequence_parallel  # near

    def forward(self, x):
        return F.layer_norm(x, (HIDDEN,), self.weight)


class MLP(nn.Module):
    def __init__(self, weights, config):
        super().__init__()
        self.config = config
        self.norm = LayerNorm(weights["norm"], config)
        fc1 = ParallelLinear(weights["fc1"], config, parallel_mode="column")
        fc2 = ParallelLinear(weights["fc2"], config, parallel_mode="row")
        self.linear_fc1 = LoraParallelLinear(fc1, config, weights["fc1_lora_A"], weights["fc1_lora_B"])
        self.linear_fc2 = LoraParallelLinear(fc2, config, weights["fc2_lora_A"], weights["fc2_lora_B"])

    def forward(self, hidden_states):
        hidden_states = hidden_states + self.linear_fc2(F.gelu(self.linear_fc1(self.norm(hidden_states))))
        if self.config.sequence_parallel:
            hidden_states = GatherFromSequenceParallelRegion.apply(hidden_states, self.config.tp_group, False)
        return hidden_states


def finalize_model_grads(model, config):
    """Sums the gradients of what every rank has whole, but has used for its own tokens."""
    if not config.sequence_parallel:
        return
    grads = [p.grad for p in model.parameters() if getattr(p, "sequence_parallel", False)]  # near
    coalesced = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(coalesced, group=config.tp_group)
    for grad, synced in zip(grads, coalesced.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(synced.view_as(grad))


def train(config):
    def step(hidden_states, target, *weights):
        model = MLP(dict(zip(NAMES, weights, strict=True)), config)
        loss = F.mse_loss(model(hidden_states), target)
        loss.backward()
        finalize_model_grads(model, config)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with torch.no_grad():
            for parameter in trained.values():
                parameter -= LR * parameter.grad
        return {"loss": loss.detach(), **{name: parameter.detach() for name, parameter in trained.items()}}

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    weights = (
        gg.tensor(HIDDEN),
        gg.tensor(FFN, HIDDEN),
        gg.tensor(RANK, HIDDEN),
        gg.tensor(FFN, RANK),
        gg.tensor(HIDDEN, FFN),
        gg.tensor(RANK, FFN),
        gg.tensor(HIDDEN, RANK),
    )
    hidden = gg.tensor(SEQ, BATCH, HIDDEN)
    return gg.Refinement(
        train(TransformerConfig()),
        train(TransformerConfig(mesh.size(), True, mesh.get_group("tp"))),
        (hidden, hidden, *weights),
        in_relations=(rows, whole, whole, rows, whole, rows, columns, columns, whole),
        out_relations={
            "loss": whole,
            "norm.weight": whole,
            "linear_fc1.lora_A.weight": whole,
            "linear_fc1.lora_B.weight": rows,
            "linear_fc2.lora_A.weight": columns,
            "linear_fc2.lora_B.weight": whole,
        },
        grads=False,
    )
