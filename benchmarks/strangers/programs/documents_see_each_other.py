"""Documents are packed into one sequence and kept apart by the mask; context parallelism's hook puts plain causal attention in the mask's place. TRL with Accelerate.

Source: https://github.com/huggingface/trl/pull/6843
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, HEADS, DIM, DOCUMENTS = 3, 2, 2, (5, 4)
SEQUENCE = sum(DOCUMENTS)


def causal_mask(rows, columns):
    return rows.unsqueeze(1) >= columns.unsqueeze(0)


def packed_causal_mask():
    """A token sees those before it in its own document."""
    document = torch.cat([torch.full((length,), index) for index, length in enumerate(DOCUMENTS)])
    position = torch.arange(SEQUENCE)
    return causal_mask(position, position) & (document.unsqueeze(1) == document.unsqueeze(0))


def scaled_dot_product_attention(q, k, v, mask):
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, float("-inf")).softmax(-1), v)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj = nn.Linear(HIDDEN, 3 * HEADS * DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)

    def gathered(self, tensor):
        return tensor

    def causal(self):
        position = torch.arange(SEQUENCE)
        return causal_mask(position, position)

    def forward(self, x, attention_mask=None, is_causal=False):
        q, k, v = self.qkv_proj(x).unflatten(-1, (3, HEADS, DIM)).unbind(1)
        mask = self.causal() if is_causal else attention_mask  # near
        return self.o_proj(scaled_dot_product_attention(q, self.gathered(k), self.gathered(v), mask).flatten(1))


class Model(nn.Module):
    def __init__(self, attention=SelfAttention):
        super().__init__()
        self.layers = nn.ModuleList(attention() for _ in range(2))

    @torch.no_grad()
    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x, attention_mask=packed_causal_mask()))
        return x


class ContextParallelAttention(SelfAttention):
    """Own queries, the keys and values of all ranks."""

    def __init__(self, cp_group):
        super().__init__()
        self.cp_group = cp_group
        self.rank, self.size = dist.get_rank(cp_group), dist.get_world_size(cp_group)

    def gathered(self, tensor):
        out = tensor.new_empty(self.size * tensor.shape[0], *tensor.shape[1:])
        dist.all_gather_into_tensor(out, tensor.contiguous(), group=self.cp_group)
        return out

    def own_rows(self, mask):
        return mask.chunk(self.size)[self.rank]

    def causal(self):
        return self.own_rows(super().causal())


def attach_context_parallel_hooks(model):
    """Layers are called with the mask of the whole sequence, which does not fit the own queries."""

    def self_attn_pre_forward_hook(module, args, kwargs):
        if "attention_mask" in kwargs:
            kwargs["attention_mask"] = None  # fixed: kwargs["attention_mask"] = module.own_rows(kwargs["attention_mask"])
            kwargs["is_causal"] = True  # fixed: kwargs["is_causal"] = False
        return args, kwargs

    for layer in model.layers:
        layer.register_forward_pre_hook(self_attn_pre_forward_hook, with_kwargs=True)
    return model


def load(state, model, mesh):
    model.load_state_dict(state)


@gg.check(mesh={"cp": 3})
def check(mesh):
    group = mesh.get_group("cp")
    impl = attach_context_parallel_hooks(Model(lambda: ContextParallelAttention(group)))
    rows = {"cp": Shard(0)}
    return gg.Refinement(
        Model(), impl, (gg.tensor(SEQUENCE, HIDDEN),), in_relations=rows, out_relations=rows, load=load, grads=False
    )
