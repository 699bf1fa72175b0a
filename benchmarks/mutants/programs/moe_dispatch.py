"""Experts split over 'ep': tokens travel to the ranks of their experts and back by all-to-all (top-1 routing with a fixed capacity)."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, DIM, HIDDEN, EXPERTS = 8, 5, 6, 4


def expert(x, up, down):
    """(experts, rows, features) through each expert's own weights."""
    return torch.bmm(F.relu(torch.bmm(x, up)), down)


def moe(x, gate, up, down):
    """The specification: the tokens stand in groups of equal size, one for each expert."""
    weight = torch.sigmoid(x @ gate)
    slots = x.view(2, EXPERTS, -1, DIM).transpose(0, 1).reshape(EXPERTS, -1, DIM)
    y = expert(slots, up, down)
    y = y.view(EXPERTS, 2, -1, DIM).transpose(0, 1).reshape(TOKENS, DIM)
    return y * weight


def exchange(x, group):
    """All-to-all of equal parts along dim 0."""
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x.contiguous(), group=group)
    return out


@gg.check(mesh={"ep": 2})
def dispatch(mesh):
    group, ranks, rank = mesh.get_group("ep"), mesh["ep"].size(), mesh.get_local_rank("ep")

    def impl(x, gate, up, down):
        weight = torch.sigmoid(x @ gate)
        own = EXPERTS // ranks
        slots = x.view(EXPERTS, -1, DIM)
        sent = exchange(slots, group)
        mine = sent.view(ranks, own, -1, DIM).transpose(0, 1).reshape(own, -1, DIM)
        first = rank * own
        y = expert(mine, up[first : first + own], down[first : first + own])
        back = y.view(own, ranks, -1, DIM).transpose(0, 1).reshape(EXPERTS, -1, DIM)
        y = exchange(back, group).view(-1, DIM)
        return y * weight

    inputs = (
        gg.tensor(TOKENS, DIM),
        gg.tensor(DIM, 1),
        gg.tensor(EXPERTS, DIM, HIDDEN),
        gg.tensor(EXPERTS, HIDDEN, DIM),
    )
    return gg.Refinement(
        moe, impl, inputs, in_relations=({"ep": Shard(0)}, {}, {}, {}), out_relations={"ep": Shard(0)}, grads=False
    )
