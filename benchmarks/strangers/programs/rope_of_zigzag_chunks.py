"""Context parallelism deals chunks from both ends; the rotary embedding is cut into plain parts.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

SEQUENCE, HEADS, DIM = 8, 2, 4


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary_pos_emb(t, freqs):
    return t * freqs.cos() + rotate_half(t) * freqs.sin()


class RotaryEmbedding(nn.Module):
    def __init__(self, cp_group=None):
        super().__init__()
        self.cp_group = cp_group
        self.inv_freq = 1.0 / (100 ** (torch.arange(0, DIM, 2) / DIM))

    def get_pos_emb_on_this_cp_rank(self, emb):
        cp_size, cp_rank = dist.get_world_size(self.cp_group), dist.get_rank(self.cp_group)
        emb = emb.view(2 * cp_size, emb.shape[0] // (2 * cp_size), *emb.shape[1:])
        cp_idx = torch.tensor([2 * cp_rank, 2 * cp_rank + 1])  # fixed: cp_idx = torch.tensor([cp_rank, 2 * cp_size - cp_rank - 1])
        emb = emb.index_select(0, cp_idx)  # near
        return emb.flatten(0, 1)

    def forward(self, max_seq_len):
        freqs = torch.outer(torch.arange(max_seq_len).float(), self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)[:, None]
        if self.cp_group is not None:
            emb = self.get_pos_emb_on_this_cp_rank(emb)
        return emb


def dealt(x, mesh):
    """The chunks of a rank: one from the front, one from the back."""
    size, rank = mesh["cp"].size(), mesh.get_local_rank("cp")
    chunks = x.chunk(2 * size)
    return torch.cat([chunks[rank], chunks[2 * size - rank - 1]])


class Attention(nn.Module):
    def __init__(self, cp_group=None):
        super().__init__()
        self.cp_group = cp_group
        self.rotary = RotaryEmbedding(cp_group)
        self.linear_q = nn.Linear(HEADS * DIM, HEADS * DIM, bias=False)
        self.linear_k = nn.Linear(HEADS * DIM, HEADS * DIM, bias=False)

    def all_keys(self, k):
        if self.cp_group is None:
            return k
        size = dist.get_world_size(self.cp_group)
        parts = [torch.empty_like(k) for _ in range(size)]
        dist.all_gather(parts, k.contiguous(), group=self.cp_group)
        halves = [part.chunk(2) for part in parts]
        return torch.cat([half[0] for half in halves] + [half[1] for half in reversed(halves)])

    def forward(self, x):
        emb = self.rotary(SEQUENCE)
        q = apply_rotary_pos_emb(self.linear_q(x).unflatten(-1, (HEADS, DIM)), emb)
        k = apply_rotary_pos_emb(self.linear_k(x).unflatten(-1, (HEADS, DIM)), emb)
        keys = self.all_keys(k)
        scores = torch.einsum("qhd,khd->hqk", q, keys)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), keys).flatten(1)


@gg.check(mesh={"cp": 2})
def check(mesh):
    return gg.Refinement(
        Attention(),
        Attention(mesh.get_group("cp")),
        (gg.tensor(SEQUENCE, HEADS * DIM),),
        shard_inputs=lambda inputs, mesh: tuple(dealt(x, mesh) for x in inputs),
        grads=False,
    )
