"""A row-parallel layer adds its bias to the rank's part, and the parts are summed; the loader hands the bias to every rank. Text Generation Inference.

Source: https://github.com/huggingface/text-generation-inference/issues/1036
Rule: extra-reduction, wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, TOKENS, HIDDEN, HEADS, DIM, INNER, EPS = 3, 7, 5, 4, 6, 22, 1e-5
QKV = HEADS * DIM
SHAPES = {
    "input_layernorm.weight": (HIDDEN,),
    "input_layernorm.bias": (HIDDEN,),
    "query.weight": (QKV, HIDDEN),
    "query.bias": (QKV,),
    "key.weight": (QKV, HIDDEN),
    "key.bias": (QKV,),
    "value.weight": (QKV, HIDDEN),
    "value.bias": (QKV,),
    "dense.weight": (HIDDEN, QKV),
    "dense.bias": (HIDDEN,),
    "post_layernorm.weight": (HIDDEN,),
    "post_layernorm.bias": (HIDDEN,),
    "dense_h_to_4h.weight": (INNER, HIDDEN),
    "dense_h_to_4h.bias": (INNER,),
    "dense_4h_to_h.weight": (HIDDEN, INNER),
    "dense_4h_to_h.bias": (HIDDEN,),
}


class Weights:
    """A checkpoint, read tensor by tensor; ``process_group`` is of those that share a model."""

    def __init__(self, tensors, process_group=None):
        self.tensors = dict(zip(SHAPES, tensors, strict=True))
        self.process_group = process_group

    @property
    def rank(self):
        return 0 if self.process_group is None else dist.get_rank(self.process_group)

    @property
    def size(self):
        return 1 if self.process_group is None else dist.get_world_size(self.process_group)

    def get_tensor(self, name):
        return self.tensors[name]

    def get_sharded(self, name, dim):
        tensor = self.get_tensor(name)
        block = tensor.shape[dim] // self.size
        return tensor.narrow(dim, self.rank * block, block)


class Linear(nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class SuperLayer(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x)


class TensorParallelColumnLinear(SuperLayer):
    @classmethod
    def load(cls, prefix, weights, bias=True):
        weight = weights.get_sharded(f"{prefix}.weight", dim=0)
        return cls(Linear(weight, weights.get_sharded(f"{prefix}.bias", dim=0) if bias else None))


class TensorParallelRowLinear(SuperLayer):
    def __init__(self, linear, process_group):
        super().__init__(linear)
        self.process_group = process_group

    @classmethod
    def load(cls, prefix, weights, bias=True):
        weight = weights.get_sharded(f"{prefix}.weight", dim=1)
        has_bias = bias  # fixed: has_bias = bias and weights.rank == 0
        linear = Linear(weight, weights.get_tensor(f"{prefix}.bias") if has_bias else None)  # fault
        return cls(linear, weights.process_group)

    def forward(self, x):
        out = super().forward(x)
        if self.process_group is not None:
            dist.all_reduce(out, group=self.process_group)  # near
        return out


class LayerNorm(nn.Module):
    def __init__(self, prefix, weights):
        super().__init__()
        self.weight, self.bias = (weights.get_tensor(f"{prefix}.{name}") for name in ("weight", "bias"))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.query, self.key, self.value = (
            TensorParallelColumnLinear.load(name, weights) for name in ("query", "key", "value")
        )
        self.dense = TensorParallelRowLinear.load("dense", weights)

    def forward(self, x):
        q, k, v = (proj(x).unflatten(-1, (-1, DIM)) for proj in (self.query, self.key, self.value))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * DIM**-0.5
        return self.dense(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(-2))


class MLP(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.dense_h_to_4h = TensorParallelColumnLinear.load("dense_h_to_4h", weights)
        self.dense_4h_to_h = TensorParallelRowLinear.load("dense_4h_to_h", weights)

    def forward(self, x):
        return self.dense_4h_to_h(torch.tanh(self.dense_h_to_4h(x)))


class Block(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.input_layernorm = LayerNorm("input_layernorm", weights)
        self.self_attention = Attention(weights)
        self.post_layernorm = LayerNorm("post_layernorm", weights)
        self.mlp = MLP(weights)

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        return x + self.mlp(self.post_layernorm(x))


def served(process_group=None):
    def run(x, *tensors):
        with torch.no_grad():
            return Block(Weights(tensors, process_group))(x)

    return run


@gg.check(mesh={"tp": 2})
def check(mesh):
    tensors = [gg.tensor(*shape) for shape in SHAPES.values()]
    inputs = (gg.tensor(BATCH, TOKENS, HIDDEN), *tensors)
    return gg.Refinement(served(), served(mesh.get_group("tp")), inputs, out_relations="replicate", grads=False)
