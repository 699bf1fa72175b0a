"""The bugs of Megatron-LM's issue 7452 in megatron_7452_later_bugs, repaired from outside, numbered as in the issue."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.moe.router import TopKRouter
from megatron_7452_later_bugs import Router, balanced, further, packed, ratio

import graphguard as gg
from graphguard.frameworks import megatron


def of_all_ranks(tokens, rolled):
    counts = torch.stack([tokens, rolled])
    dist.all_reduce(counts, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return ratio(*counts)


@gg.check(mesh={"dp": 2})
def further_tokens(mesh):
    """3: the tokens of all ranks are counted."""
    megatron.world(mesh)
    return further(of_all_ranks)


@gg.check(mesh={"cp": 2})
def auxiliary_loss(mesh):
    """10: the overwritten count is that of all ranks, which is what one rank multiplies by; right for any mask."""
    return balanced(megatron.groups(mesh), TopKRouter, masked=True)


@gg.check(mesh={"cp": 2})
def auxiliary_loss_before(mesh):
    """Beside 10: without a mask of padding the number of ranks makes a rank's own count that of all."""
    return balanced(megatron.groups(mesh), Router, masked=False)


class Packed(SelfAttention):
    """Takes a batch's own group, and gives it back."""

    def forward(self, hidden, *others, packed_seq_params, **named):
        group = self.pg_collection.cp
        if packed_seq_params.cp_group is not None:
            self.pg_collection.cp = packed_seq_params.cp_group
        out = super().forward(hidden, *others, packed_seq_params=packed_seq_params, **named)
        self.pg_collection.cp = group
        return out


@gg.check(mesh={"cp": 2, "dp": 2})
def group_of_the_batch(mesh):
    """13: the group of a batch is that batch's."""
    return packed(megatron.groups(mesh), Packed)
