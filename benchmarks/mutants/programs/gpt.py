"""A GPT block with biases, tensor-parallel with Megatron's helper functions: the group is nowhere in sight."""

import torch
import torch.nn.functional as F
from mappings import (
    copy_to_tensor_model_parallel_region,
    get_tensor_model_parallel_world_size,
    initialize_model_parallel,
    reduce_from_tensor_model_parallel_region,
)
from torch import nn

import graphguard as gg

DIM, HEADS, HEAD_DIM, HIDDEN = 6, 4, 2, 12


def attend(qkv):
    batch, tokens, _ = qkv.shape
    q, k, v = (t.squeeze(2).transpose(1, 2) for t in qkv.view(batch, tokens, 3, -1, HEAD_DIM).split(1, dim=2))
    mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / HEAD_DIM**0.5).masked_fill(mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.k = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.v = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.proj = nn.Linear(HEADS * HEAD_DIM, DIM)

    def forward(self, x):
        return self.proj(attend(torch.cat((self.q(x), self.k(x), self.v(x)), dim=-1)))


class Block(nn.Module):
    """The specification."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class RowParallelLinear(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, features // get_tensor_model_parallel_world_size()))
        self.bias = nn.Parameter(torch.empty(out))

    def forward(self, x):
        partial = F.linear(x, self.weight)
        whole = reduce_from_tensor_model_parallel_region(partial)
        return whole + self.bias


class ParallelAttention(nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS // get_tensor_model_parallel_world_size() * HEAD_DIM
        self.q = nn.Linear(DIM, width)
        self.k = nn.Linear(DIM, width)
        self.v = nn.Linear(DIM, width)
        self.proj = RowParallelLinear(HEADS * HEAD_DIM, DIM)

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        qkv = torch.cat((self.q(x), self.k(x), self.v(x)), dim=-1)
        context = attend(qkv)
        return self.proj(context)


class ParallelBlock(nn.Module):
    """The implementation."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attention = ParallelAttention()
        self.norm2 = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN // get_tensor_model_parallel_world_size())
        self.down = RowParallelLinear(HIDDEN, DIM)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        h = copy_to_tensor_model_parallel_region(h)
        h = F.gelu(self.up(h), approximate="tanh")
        return x + self.down(h)


@gg.check(mesh={"tp": 2})
def gpt_block(mesh):
    initialize_model_parallel(mesh.get_group("tp"))
    return gg.Refinement(Block(), ParallelBlock(), (gg.tensor(2, 3, DIM),), out_relations="replicate")
