"""The gates' weight holds b and a of each key head beside each other; it is loaded as two merged weights, each half cut into the ranks' parts. vLLM's Qwen3-Next.

Source: https://github.com/vllm-project/vllm/pull/36242
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, K_HEADS, V_HEADS, K_DIM, V_DIM = 3, 5, 4, 8, 2, 3


def gated_linear_attention(q, k, v, beta, g):
    """(tokens, heads, dim): a state of keys times values, that each token decays and adds to."""
    state = torch.zeros(v.shape[1], K_DIM, V_DIM)
    outs = []
    for t in range(q.shape[0]):
        state = state * g[t].exp()[:, None, None] + torch.einsum("h,hk,hv->hkv", beta[t], k[t], v[t])
        outs.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(outs)


def fix_query_key_value_ordering(mixed_ba, num_k_heads):
    """For each key head: b of its value heads, then a of them."""
    ba = mixed_ba.unflatten(-1, (num_k_heads, 2 * V_HEADS // K_HEADS))
    b, a = ba.chunk(2, dim=-1)
    return b.flatten(1), a.flatten(1)


class GatedDeltaNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, K_HEADS * K_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, K_HEADS * K_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, V_HEADS * V_DIM, bias=False)
        self.in_proj_ba = nn.Linear(HIDDEN, 2 * V_HEADS, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(V_HEADS))
        self.out_proj = nn.Linear(V_HEADS * V_DIM, HIDDEN, bias=False)

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (K_HEADS, K_DIM)).repeat_interleave(V_HEADS // K_HEADS, dim=1)
        k = self.k_proj(x).unflatten(-1, (K_HEADS, K_DIM)).repeat_interleave(V_HEADS // K_HEADS, dim=1)
        v = self.v_proj(x).unflatten(-1, (V_HEADS, V_DIM))
        b, a = fix_query_key_value_ordering(self.in_proj_ba(x), K_HEADS)
        out = gated_linear_attention(q, k, v, b.sigmoid(), -F.softplus(a + self.dt_bias))
        return self.out_proj(out.flatten(1))


class ColumnParallelLinear(nn.Module):
    def __init__(self, output_size, tp_rank, tp_size):
        super().__init__()
        self.tp_rank, self.tp_size = tp_rank, tp_size
        self.weight = nn.Parameter(torch.empty(output_size // tp_size, HIDDEN))

    def weight_loader(self, loaded_weight):
        self.weight.data.copy_(loaded_weight.chunk(self.tp_size)[self.tp_rank])

    def forward(self, x):
        return F.linear(x, self.weight)


class MergedColumnParallelLinear(ColumnParallelLinear):
    """Several linear layers in one weight; each is cut into the ranks' parts by itself."""

    def __init__(self, output_sizes, tp_rank, tp_size):
        super().__init__(sum(output_sizes), tp_rank, tp_size)
        self.output_sizes = output_sizes

    def weight_loader(self, loaded_weight):
        current = offset = 0
        for output_size in self.output_sizes:
            shard_size = output_size // self.tp_size
            shard = loaded_weight.narrow(0, current + self.tp_rank * shard_size, shard_size)  # near
            self.weight.data.narrow(0, offset, shard_size).copy_(shard)
            current += output_size
            offset += shard_size


class Qwen3NextGatedDeltaNet(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        tp_rank, tp_size = dist.get_rank(group), dist.get_world_size(group)
        self.k_heads, self.v_heads = K_HEADS // tp_size, V_HEADS // tp_size
        self.q_proj = ColumnParallelLinear(K_HEADS * K_DIM, tp_rank, tp_size)
        self.k_proj = ColumnParallelLinear(K_HEADS * K_DIM, tp_rank, tp_size)
        self.v_proj = ColumnParallelLinear(V_HEADS * V_DIM, tp_rank, tp_size)
        self.in_proj_ba = MergedColumnParallelLinear([V_HEADS] * 2, tp_rank, tp_size)  # fixed: self.in_proj_ba = MergedColumnParallelLinear([2 * V_HEADS], tp_rank, tp_size)
        self.dt_bias = nn.Parameter(torch.zeros(self.v_heads))
        self.out_proj = nn.Linear(self.v_heads * V_DIM, HIDDEN, bias=False)

    def forward(self, hidden_states):
        q = self.q_proj(hidden_states).unflatten(-1, (self.k_heads, K_DIM)).repeat_interleave(V_HEADS // K_HEADS, dim=1)
        k = self.k_proj(hidden_states).unflatten(-1, (self.k_heads, K_DIM)).repeat_interleave(V_HEADS // K_HEADS, dim=1)
        v = self.v_proj(hidden_states).unflatten(-1, (self.v_heads, V_DIM))
        b, a = fix_query_key_value_ordering(self.in_proj_ba(hidden_states), self.k_heads)
        out = gated_linear_attention(q, k, v, b.sigmoid(), -F.softplus(a + self.dt_bias))
        output = self.out_proj(out.flatten(1))
        dist.all_reduce(output, group=self.group)
        return output


def load_weights(state, model, mesh):
    tp_rank, tp_size = mesh.get_local_rank("tp"), mesh["tp"].size()
    for name in ("q_proj", "k_proj", "v_proj", "in_proj_ba"):
        getattr(model, name).weight_loader(state[f"{name}.weight"])
    with torch.no_grad():
        model.dt_bias.copy_(state["dt_bias"].chunk(tp_size)[tp_rank])
        model.out_proj.weight.copy_(state["out_proj.weight"].chunk(tp_size, dim=1)[tp_rank])


@gg.check(mesh={"tp": 2})
def check(mesh):
    impl = Qwen3NextGatedDeltaNet(mesh.get_group("tp"))
    inputs = (gg.tensor(TOKENS, HIDDEN),)
    return gg.Refinement(GatedDeltaNet(), impl, inputs, load=load_weights, out_relations="replicate", grads=False)
