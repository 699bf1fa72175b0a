"""Linear layers in the manner of vLLM: what they do with their input and their result is said by flags."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

DIM, HIDDEN, HEADS, HEAD_DIM = 6, 10, 4, 3
_TP = None


def set_tp_group(group):
    global _TP
    _TP = group


def get_tp_group():
    return _TP


def tensor_model_parallel_all_reduce(x):
    x = x.clone()
    dist.all_reduce(x, group=get_tp_group())
    return x


def tensor_model_parallel_all_gather(x, dim=-1):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(get_tp_group()))]
    dist.all_gather(parts, x.contiguous(), group=get_tp_group())
    return torch.cat(parts, dim=dim)


class ColumnParallelLinear(nn.Module):
    def __init__(self, features, out, bias=True, gather_output=False):
        super().__init__()
        own = out // dist.get_world_size(get_tp_group())
        self.gather_output = gather_output
        self.weight = nn.Parameter(torch.empty(own, features))
        self.bias = nn.Parameter(torch.empty(own)) if bias else None

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        if self.gather_output:
            y = tensor_model_parallel_all_gather(y)
        return y


class RowParallelLinear(nn.Module):
    def __init__(self, features, out, bias=True, input_is_parallel=True, reduce_results=True):
        super().__init__()
        own = features // dist.get_world_size(get_tp_group())
        self.input_is_parallel, self.reduce_results = input_is_parallel, reduce_results
        self.weight = nn.Parameter(torch.empty(out, own))
        self.bias = nn.Parameter(torch.empty(out)) if bias else None

    def forward(self, x):
        if not self.input_is_parallel:
            x = x.chunk(dist.get_world_size(get_tp_group()), dim=-1)[dist.get_rank(get_tp_group())]
        bias = None if dist.get_rank(get_tp_group()) > 0 else self.bias
        y = F.linear(x, self.weight, bias)
        if self.reduce_results:
            y = tensor_model_parallel_all_reduce(y)
        return y


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, HIDDEN)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class ParallelMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = ColumnParallelLinear(DIM, HIDDEN)
        self.up = ColumnParallelLinear(DIM, HIDDEN)
        self.down = RowParallelLinear(HIDDEN, DIM, reduce_results=True)

    def forward(self, x):
        h = F.silu(self.gate(x)) * self.up(x)
        return self.down(h)


@gg.check(mesh={"tp": 2})
def vllm_mlp(mesh):
    set_tp_group(mesh.get_group("tp"))
    return gg.Refinement(MLP(), ParallelMLP(), (gg.tensor(4, DIM),), out_relations="replicate", grads=False)


def attend(q, k, v):
    q, k, v = (t.view(t.shape[0], -1, HEAD_DIM).transpose(0, 1) for t in (q, k, v))
    return (F.softmax(q @ k.transpose(1, 2) * HEAD_DIM**-0.5, dim=-1) @ v).transpose(0, 1).flatten(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.k = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.v = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.o = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x):
        return self.o(attend(self.q(x), self.k(x), self.v(x)))


class ParallelAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = ColumnParallelLinear(DIM, HEADS * HEAD_DIM)
        self.k = ColumnParallelLinear(DIM, HEADS * HEAD_DIM)
        self.v = ColumnParallelLinear(DIM, HEADS * HEAD_DIM)
        self.o = RowParallelLinear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x):
        context = attend(self.q(x), self.k(x), self.v(x))
        return self.o(context)


class Layer(nn.Module):
    def __init__(self, attention, mlp):
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(self.norm(x))


@gg.check(mesh={"tp": 2})
def vllm_layer(mesh):
    set_tp_group(mesh.get_group("tp"))
    spec, impl = Layer(Attention(), MLP()), Layer(ParallelAttention(), ParallelMLP())
    return gg.Refinement(spec, impl, (gg.tensor(4, DIM),), out_relations="replicate", grads=False)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(DIM, HIDDEN)
        self.head = nn.Linear(HIDDEN, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(x)))


class ParallelClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = ColumnParallelLinear(DIM, HIDDEN, gather_output=True)
        self.head = RowParallelLinear(HIDDEN, 3, input_is_parallel=False)

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return self.head(h)


@gg.check(mesh={"tp": 2})
def vllm_classifier(mesh):
    set_tp_group(mesh.get_group("tp"))
    inputs = (gg.tensor(4, DIM),)
    return gg.Refinement(Classifier(), ParallelClassifier(), inputs, out_relations="replicate", grads=False)
