"""A draft model's queries, keys and values are loaded one after the other into the weight that is read group by group. NeMo RL's Eagle3 in Megatron.

Source: https://github.com/NVIDIA-NeMo/RL/pull/2802
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, HEADS, GROUPS, DIM = 3, 5, 6, 2, 2
PER_GROUP = HEADS // GROUPS


def attention(q, k, v):
    """(tokens, heads, dim)"""
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


class LlamaAttention(nn.Module):
    """The published model's layer, which is the specification."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, GROUPS * DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, GROUPS * DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (HEADS, DIM))
        k = self.k_proj(x).unflatten(-1, (GROUPS, DIM)).repeat_interleave(PER_GROUP, dim=1)
        v = self.v_proj(x).unflatten(-1, (GROUPS, DIM)).repeat_interleave(PER_GROUP, dim=1)
        return self.o_proj(attention(q, k, v))


class SelfAttention(nn.Module):
    """Megatron's: for each group its queries, its key and its value, in one weight."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.num_query_groups_per_partition = GROUPS // self.size
        rows = self.num_query_groups_per_partition * (PER_GROUP + 2) * DIM
        self.linear_qkv = nn.Linear(HIDDEN, rows, bias=False)
        self.linear_proj = nn.Linear(HEADS * DIM // self.size, HIDDEN, bias=False)

    def get_query_key_value_tensors(self, hidden_states):
        mixed_qkv = self.linear_qkv(hidden_states).unflatten(-1, (self.num_query_groups_per_partition, PER_GROUP + 2, DIM))
        query, key, value = mixed_qkv.split([PER_GROUP, 1, 1], dim=2)
        key, value = (each.expand(-1, -1, PER_GROUP, -1).flatten(1, 2) for each in (key, value))
        return query.flatten(1, 2), key, value

    def forward(self, hidden_states):
        query, key, value = self.get_query_key_value_tensors(hidden_states)
        output = self.linear_proj(attention(query, key, value))
        dist.all_reduce(output, group=self.group)
        return output


def interleave_qkv(q, k, v):
    """(groups, queries then key then value of one group, dim), flat."""
    q = q.unflatten(0, (GROUPS, PER_GROUP, DIM))
    k, v = k.unflatten(0, (GROUPS, 1, DIM)), v.unflatten(0, (GROUPS, 1, DIM))
    return torch.cat([q, k, v], dim=1).flatten(0, 2)


def load_hf_weights_to_eagle(state, model, mesh):
    q, k, v = state["q_proj.weight"], state["k_proj.weight"], state["v_proj.weight"]
    qkv = torch.cat([q, k, v])  # fixed: qkv = interleave_qkv(q, k, v)
    with torch.no_grad():
        model.linear_qkv.weight.copy_(qkv.chunk(model.size)[model.rank])  # near
        model.linear_proj.weight.copy_(state["o_proj.weight"].chunk(model.size, dim=1)[model.rank])


@gg.check(mesh={"tp": 2})
def check(mesh):
    impl = SelfAttention(mesh.get_group("tp"))
    inputs = (gg.tensor(TOKENS, HIDDEN),)
    return gg.Refinement(LlamaAttention(), impl, inputs, load=load_hf_weights_to_eagle, out_relations="replicate", grads=False)
