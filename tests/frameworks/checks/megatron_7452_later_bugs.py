"""The bugs of Megatron-LM's issue 7452 that came with a later version than megatron-core 0.16.1: its classes, with the lines that the issue is about as they are in that version.

The checks with their repairs are in megatron_7452_later.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core.distributed import finalize_model_grads
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, roll_tensor
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import megatron

# without Transformer Engine 0.16 leaves this name undefined, and uses it
moe_utils.te_general_gemm = None


def ratio(tokens, rolled):
    return tokens / rolled.clamp(min=1)  # the mistake


class Further(MegatronModule):
    """A head for the next token and for the one after it, whose loss is scaled as `process_mtp_loss` does it."""

    def __init__(self, settings: Any, scale: Callable[..., Any]) -> None:
        super().__init__(settings)
        self.first, self.head, self.scale = nn.Linear(5, 16), nn.Linear(16, 12, bias=False), scale

    def forward(self, hidden, labels, mask):
        hidden = self.first(hidden)
        further, (rolled, count) = roll_tensor(labels)[0], roll_tensor(mask)
        loss = rolled * self.losses(further, hidden)
        hidden = MTPLossAutoScaler.apply(hidden, loss * self.scale(mask.sum(), count))
        return (self.losses(labels, hidden) * mask).sum()

    def losses(self, labels, hidden):
        return F.cross_entropy(self.head(hidden).permute(1, 2, 0), labels, reduction="none")


def further(scale: Callable[..., Any]) -> gg.Same:
    model = megatron.wrapped(Further(megatron.config(mtp_num_layers=1, calculate_per_token_loss=True), scale).cuda())

    def run(hidden, labels, mask):
        model(hidden, labels, mask).backward()
        finalize_model_grads([model], mask.sum().int())
        return gg.gradients(model)

    inputs = (gg.tensor(6, 4, 5), megatron.text(4, 6, 12)[0])
    mask = gg.tensor(4, 6, dtype=torch.int64, low=0, high=2)
    return gg.Same(run, (*inputs, mask), in_relations=({"dp": Shard(1)}, {"dp": Shard(0)}, {"dp": Shard(0)}))


@gg.check(mesh={"dp": 2})
def further_tokens(mesh):
    """3: the loss of further tokens is scaled by a rank's own counts."""
    megatron.world(mesh)
    return further(ratio)


class Router(TopKRouter):
    """Multiplies the auxiliary loss by the number of ranks that share it, which one rank's tokens are to be multiplied by."""

    def attach_and_log_load_balancing_loss(self, activation, coefficient, loss, *others, **named):
        return super().attach_and_log_load_balancing_loss(
            activation, coefficient, loss * self.tp_cp_group.size(), *others, **named
        )


class Routed(MegatronModule):
    def __init__(self, settings: Any, groups: Any, router: type[TopKRouter]) -> None:
        super().__init__(settings)
        self.router = router(settings, pg_collection=groups).cuda()

    def forward(self, x, padding):
        return self.router(x, padding)[0]  # the mistake


def balanced(groups: Any, router: type[TopKRouter], *, masked: bool) -> gg.Same:
    settings = megatron.config(
        num_moe_experts=4,
        moe_router_topk=2,
        moe_router_load_balancing_type="aux_loss",
        moe_aux_loss_coeff=0.1,
        calculate_per_token_loss=True,
    )
    model = megatron.wrapped(Routed(settings, groups, router))

    def run(x, padding):
        probs = model(x, padding.bool() if masked else None)
        probs.square().sum().backward()
        finalize_model_grads([model])
        return gg.gradients(model)

    padding = gg.tensor(6, 2, dtype=torch.int64, low=0, high=2)
    return gg.Same(run, (gg.tensor(6, 2, 16), padding), in_relations={"cp": Shard(0)})


@gg.check(mesh={"cp": 2})
def auxiliary_loss(mesh):
    """10: with a mask of padding a rank's count is overwritten by that of all ranks, and multiplied by their number."""
    return balanced(megatron.groups(mesh), Router, masked=True)


@gg.check(mesh={"cp": 2})
def auxiliary_loss_before(mesh):
    """Beside 10, as 0.16.1 is: without a mask of padding the auxiliary loss is multiplied by a rank's own tokens, where one rank multiplies by all of them."""
    return balanced(megatron.groups(mesh), TopKRouter, masked=False)


class Token(nn.Module):
    """What attention does with a token alone, as context parallelism needs Transformer Engine's."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, query, key, value, *_, **__):
        return (query * value).flatten(1)


class Packed(SelfAttention):
    """Takes a batch's own group, by the lines of the later version's `forward`."""

    def forward(self, hidden, *others, packed_seq_params, **named):
        if packed_seq_params.cp_group is not None:
            self.pg_collection.cp = packed_seq_params.cp_group
        return super().forward(hidden, *others, packed_seq_params=packed_seq_params, **named)  # the mistake


def packed(groups: Any, attention: type[SelfAttention]) -> gg.Same:
    """Attention to a batch that a group of its own shares, and then to one that the model's group shares."""
    parts = SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear, core_attention=Token, linear_proj=RowParallelLinear
    )
    layer = attention(megatron.config(num_query_groups=4), parts, 1, pg_collection=groups).cuda()
    angles = (torch.arange(8.0).view(8, 1, 1, 1) * torch.tensor([1.0, 0.5, 1.0, 0.5])).cuda()
    model_group = groups.cp

    def attend(x, group, given):
        bounds, chunks = torch.tensor([0, 8], dtype=torch.int32, device=x.device), x.chunk(2 * group.size())
        sizes = PackedSeqParams("thd", bounds, bounds, max_seqlen_q=8, max_seqlen_kv=8, cp_group=given)
        mine = torch.cat([chunks[group.rank()], chunks[-1 - group.rank()]])
        loss = layer(mine, None, rotary_pos_emb=angles, packed_seq_params=sizes)[0].square().sum()
        dist.all_reduce(loss, group=group)
        return loss

    def run(first, second):
        return attend(first, groups.dp, groups.dp), attend(second, model_group, None)

    return gg.Same(run, (gg.tensor(8, 1, 16), gg.tensor(8, 1, 16)), grads=False)


@gg.check(mesh={"cp": 2, "dp": 2})
def group_of_the_batch(mesh):
    """13: the group of one batch stays for those after it."""
    return packed(megatron.groups(mesh), Packed)
