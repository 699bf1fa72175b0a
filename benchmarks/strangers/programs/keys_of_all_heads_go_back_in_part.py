"""One key and value for all query heads: every rank has their weight, and its gradient is summed at the end of the step; the gradient that they hand back to the layers before is not. Megatron-LM of BigCode.

Source: https://github.com/bigcode-project/Megatron-LM/pull/36
Rule: gradient-not-reduced, missing-reduction
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, SEQUENCE, FEATURES, HIDDEN, HEADS, DIM, EPS = 4, 7, 9, 5, 6, 8, 1e-5
NAMES = ("embedding", "norm_weight", "norm_bias", "query", "key_value", "dense", "dense_bias")


class _CopyToTensorModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromTensorModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def copy_to_tensor_model_parallel_region(x, group):
    return x if group is None else _CopyToTensorModelParallelRegion.apply(x, group)


def reduce_from_tensor_model_parallel_region(x, group):
    return x if group is None else _ReduceFromTensorModelParallelRegion.apply(x, group)


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return copy_to_tensor_model_parallel_region(x, self.group) @ self.weight.t()


class RowParallelLinear(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        self.group = group
        self.weight, self.bias = (nn.Parameter(tensor.detach().clone()) for tensor in (weight, bias))

    def forward(self, x):
        return reduce_from_tensor_model_parallel_region(x @ self.weight.t(), self.group) + self.bias


class Linear(nn.Module):
    """Whole on every rank."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return x @ self.weight.t()


class LayerNorm(nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(tensor.detach().clone()) for tensor in (weight, bias))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.weight + self.bias


class MultiQueryAttention(nn.Module):
    """Query heads are the ranks'; their keys and values are the same."""

    def __init__(self, query, key_value, dense, dense_bias, group):
        super().__init__()
        self.group = group
        self.query = ColumnParallelLinear(query, group)
        self.key_value = Linear(key_value)
        self.key_value.weight.shared_by_heads = True
        self.dense = RowParallelLinear(dense, dense_bias, group)

    def forward(self, hidden_states):
        kv_input = hidden_states  # fixed: kv_input = copy_to_tensor_model_parallel_region(hidden_states, self.group)
        key, value = self.key_value(kv_input).chunk(2, dim=-1)  # near
        query = self.query(hidden_states).unflatten(-1, (-1, DIM))
        scores = torch.einsum("bqhd,bkd->bhqk", query, key) * DIM**-0.5
        causal = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril()
        probs = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        return self.dense(torch.einsum("bhqk,bkd->bqhd", probs, value).flatten(-2))


class Model(nn.Module):
    def __init__(self, tensors, group):
        super().__init__()
        self.embedding = Linear(tensors["embedding"])
        self.norm = LayerNorm(tensors["norm_weight"], tensors["norm_bias"])
        rest = (tensors[name] for name in ("query", "key_value", "dense", "dense_bias"))
        self.attention = MultiQueryAttention(*rest, group)

    def forward(self, x):
        hidden = self.embedding(x)
        return hidden + self.attention(self.norm(hidden))


def allreduce_key_value_grads(model, group):
    """Of what the heads of all ranks share."""
    for parameter in model.parameters():
        if getattr(parameter, "shared_by_heads", False):
            dist.all_reduce(parameter.grad, group=group)


def train_step(group=None):
    def step(x, target, *tensors):
        model = Model(dict(zip(NAMES, tensors, strict=True)), group)
        loss = (model(x) - target).square().sum(-1).mean()
        loss.backward()
        if group is not None:
            allreduce_key_value_grads(model, group)
        grads = (parameter.grad for parameter in model.parameters())
        return {"loss": loss.detach(), **dict(zip(NAMES, grads, strict=True))}

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    batch = (gg.tensor(BATCH, SEQUENCE, FEATURES), gg.tensor(BATCH, SEQUENCE, HIDDEN))
    before = (gg.tensor(HIDDEN, FEATURES), gg.tensor(HIDDEN), gg.tensor(HIDDEN))
    width = HEADS * DIM
    attention = (gg.tensor(width, HIDDEN), gg.tensor(2 * DIM, HIDDEN), gg.tensor(HIDDEN, width), gg.tensor(HIDDEN))
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    relations = (whole, whole, whole, rows, whole, columns, whole)
    return gg.Refinement(
        train_step(),
        train_step(mesh.get_group("tp")),
        batch + before + attention,
        in_relations=(whole, whole, *relations),
        out_relations=(whole, *relations),
        grads=False,
    )
