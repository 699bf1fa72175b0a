"""Decode context parallelism: the kernel returns natural log-sums, the merge of the ranks' outputs takes them for logarithms to base 2. SGLang with FlashMLA.

Source: https://github.com/sgl-project/sglang/issues/33064
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, HIDDEN, HEADS, HEAD_DIM, CACHED = 2, 5, 4, 3, 6
SCALE = HEAD_DIM**-0.5


def flash_decode(q, k_cache, v_cache):
    """(batch, heads, dim) and the natural log-sum of each row; the cache has the tokens first."""
    scores = torch.einsum("bhd,shd->bhs", q, k_cache) * SCALE
    lse = scores.logsumexp(-1)
    probs = (scores - lse.unsqueeze(-1)).exp()
    return torch.einsum("bhs,shd->bhd", probs, v_cache), lse


class Decoder(nn.Module):
    """One step of attention over a cache: the specification."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, k_cache, v_cache):
        q = self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM))
        scores = torch.einsum("bhd,shd->bhs", q, k_cache) * SCALE
        out = torch.einsum("bhs,shd->bhd", scores.softmax(-1), v_cache)
        return x + self.o_proj(out.flatten(1))


class GroupCoordinator:
    def __init__(self, group):
        self.device_group = group
        self.rank_in_group, self.world_size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, x):
        """A new leading dim, of the ranks."""
        out = torch.empty(self.world_size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.device_group)
        return out.unflatten(0, (self.world_size, -1))

    def all_reduce(self, x):
        dist.all_reduce(x, group=self.device_group)
        return x

    def reduce_scatter(self, x, dim):
        parts = [part.contiguous() for part in x.chunk(self.world_size, dim=dim)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=self.device_group)
        return out


def correct_attn_out(out, lses, rank, is_lse_base_on_e):
    """Weigh this rank's output by its share of the softmax's denominator."""
    if is_lse_base_on_e:
        total = lses.logsumexp(0)
        factor = (lses[rank] - total).exp()
    else:
        total = torch.exp2(lses).sum(0).log2()  # fault
        factor = torch.exp2(lses[rank] - total)  # fault
    return out * factor.unsqueeze(-1)


def cp_lse_ag_out_rs(out, lse, cp_group, is_lse_base_on_e=False):
    """Outputs of all parts of the cache, merged; each rank keeps its heads."""
    if cp_group.world_size == 1:
        return out
    lses = cp_group.all_gather(lse)
    out = correct_attn_out(out, lses, cp_group.rank_in_group, is_lse_base_on_e)
    return cp_group.reduce_scatter(out, dim=1)


class FlashMLABackend:
    def __init__(self, dcp_group):
        self.dcp_group = dcp_group

    def forward_decode(self, q, k_cache, v_cache):
        out, lse = flash_decode(q, k_cache, v_cache)
        return cp_lse_ag_out_rs(out, lse, self.dcp_group)  # fixed: return cp_lse_ag_out_rs(out, lse, self.dcp_group, is_lse_base_on_e=True)


class ParallelDecoder(nn.Module):
    """All heads' queries against the own part of the cache; the output projection is cut along the heads."""

    def __init__(self, group):
        super().__init__()
        self.group = GroupCoordinator(group)
        self.backend = FlashMLABackend(self.group)
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM // self.group.world_size, HIDDEN, bias=False)

    @torch.no_grad()
    def forward(self, x, k_cache, v_cache):
        q = self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM))
        out = self.backend.forward_decode(q, k_cache, v_cache)
        return x + self.group.all_reduce(self.o_proj(out.flatten(1)))


@gg.check(mesh={"dcp": 2})
def check(mesh):
    cache = gg.tensor(CACHED, HEADS, HEAD_DIM)
    rows = {"dcp": Shard(0)}
    impl = ParallelDecoder(mesh.get_group("dcp"))
    inputs = (gg.tensor(BATCH, HIDDEN), cache, cache)
    return gg.Refinement(Decoder(), impl, inputs, in_relations=({}, rows, rows), out_relations="replicate", grads=False)
