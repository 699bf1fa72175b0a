"""A linear layer marks its weight as tensor-parallel whatever it is; one that every rank has whole is then counted once for each of them in the norm that gradients are clipped by. Transformer Engine with Megatron's latent attention.

Source: https://github.com/ROCm/TransformerEngine/pull/715
Rule: wrong-relation, wrong-scale, extra-reduction
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, Q_RANK, KV_RANK, HEADS, HEAD_DIM = 6, 7, 5, 4, 3, 2
MAX_NORM, LR, CLIP_EPS = 0.05, 0.5, 1.0e-6


@dataclass(frozen=True)
class TransformerConfig:
    tp_group: Any = None
    clip_grad: float = MAX_NORM

    @property
    def tp_size(self):
        return 1 if self.tp_group is None else dist.get_world_size(self.tp_group)

    @property
    def tp_rank(self):
        return 0 if self.tp_group is None else dist.get_rank(self.tp_group)


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim, stride=1):
    tensor.tensor_model_parallel = is_parallel
    tensor.partition_dim = dim
    tensor.partition_stride = stride


def param_is_not_tensor_parallel_duplicate(param, tp_rank):
    return getattr(param, "tensor_model_parallel", False) or tp_rank == 0


class Linear(nn.Module):
    """Transformer Engine's; without a parallel mode every rank has all of it."""

    def __init__(self, weight, config, parallel_mode=None):
        super().__init__()
        self.tp_group, self.tp_size = config.tp_group, config.tp_size
        self.parallel_mode = parallel_mode
        if parallel_mode is not None:
            weight = weight.chunk(self.tp_size, dim=1 if parallel_mode == "row" else 0)[config.tp_rank]
        self.weight = nn.Parameter(weight.detach().clone())
        set_tensor_model_parallel_attributes(
            tensor=self.weight,
            is_parallel=True,  # fixed: is_parallel=self.parallel_mode is not None,
            dim=1 if self.parallel_mode == "row" else 0,
        )

    def forward(self, x):
        if self.parallel_mode == "column" and self.tp_size > 1:
            x = _CopyToModelParallelRegion.apply(x, self.tp_group)
        x = F.linear(x, self.weight)
        if self.parallel_mode == "row" and self.tp_size > 1:
            x = _ReduceFromModelParallelRegion.apply(x, self.tp_group)
        return x


class RMSNorm(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class MLASelfAttention(nn.Module):
    """Queries, keys and values come of small latents; the projections down to these are whole on every rank."""

    def __init__(self, config, q_down, q_norm, q_up, kv_down, kv_norm, kv_up, proj):
        super().__init__()
        self.linear_q_down_proj = Linear(q_down, config, parallel_mode=None)
        self.q_layernorm = RMSNorm(q_norm)
        self.linear_q_up_proj = Linear(q_up, config, parallel_mode="column")
        self.linear_kv_down_proj = Linear(kv_down, config, parallel_mode=None)
        self.kv_layernorm = RMSNorm(kv_norm)
        self.linear_kv_up_proj = Linear(kv_up, config, parallel_mode="column")
        self.linear_proj = Linear(proj, config, parallel_mode="row")

    def forward(self, hidden_states):
        q_compressed = self.q_layernorm(self.linear_q_down_proj(hidden_states))
        kv_compressed = self.kv_layernorm(self.linear_kv_down_proj(hidden_states))
        q = self.linear_q_up_proj(q_compressed).unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1)
        kv = self.linear_kv_up_proj(kv_compressed).unflatten(-1, (-1, 2 * HEAD_DIM)).transpose(0, 1)
        k, v = kv.chunk(2, dim=-1)
        causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        scores = (q @ k.transpose(1, 2) * HEAD_DIM**-0.5).masked_fill(~causal, float("-inf"))
        return self.linear_proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class FP32Optimizer:
    def __init__(self, module, config):
        self.params, self.config = list(module.parameters()), config

    def get_main_grads_for_grad_norm(self):
        tp_rank = self.config.tp_rank
        return [p.grad for p in self.params if param_is_not_tensor_parallel_duplicate(p, tp_rank)]  # fault

    def get_grad_norm(self):
        grads = self.get_main_grads_for_grad_norm()
        total_norm = sum((grad.square().sum() for grad in grads), torch.zeros(()))
        if self.config.tp_size > 1:
            dist.all_reduce(total_norm, group=self.config.tp_group)  # near
        return total_norm.sqrt()

    @torch.no_grad()
    def step(self):
        grad_norm = self.get_grad_norm()
        clip_coeff = (self.config.clip_grad / (grad_norm + CLIP_EPS)).clamp(max=1.0)
        for param in self.params:
            param.sub_(LR * clip_coeff * param.grad)
        return grad_norm


def train_step(config):
    def step(hidden_states, targets, *weights):
        attention = MLASelfAttention(config, *weights)
        optimizer = FP32Optimizer(attention, config)
        loss = (hidden_states + attention(hidden_states) - targets).square().mean()
        loss.backward()
        grad_norm = optimizer.step()
        named = {name.replace(".", "_"): param.detach() for name, param in attention.named_parameters()}
        return {"loss": loss.detach(), "grad_norm": grad_norm, **named}

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    weights = (
        *(gg.tensor(Q_RANK, HIDDEN), gg.tensor(Q_RANK), gg.tensor(HEADS * HEAD_DIM, Q_RANK)),
        *(gg.tensor(KV_RANK, HIDDEN), gg.tensor(KV_RANK), gg.tensor(2 * HEADS * HEAD_DIM, KV_RANK)),
        gg.tensor(HIDDEN, HEADS * HEAD_DIM),
    )
    rows, columns, whole = {"tp": Shard(0)}, {"tp": Shard(1)}, "replicate"
    names = ("linear_q_down_proj", "q_layernorm", "linear_kv_down_proj", "kv_layernorm")
    relations = {"loss": whole, "grad_norm": whole, **{f"{name}_weight": whole for name in names}}
    relations |= {"linear_q_up_proj_weight": rows, "linear_kv_up_proj_weight": rows, "linear_proj_weight": columns}
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(TOKENS, HIDDEN), *weights)
    group = mesh.get_group("tp")
    return gg.Refinement(
        train_step(TransformerConfig()), train_step(TransformerConfig(group)), inputs, out_relations=relations, grads=False
    )
