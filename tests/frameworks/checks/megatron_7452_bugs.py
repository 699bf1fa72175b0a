"""Silent bugs of Megatron-LM's issue 7452 that stand in megatron-core 0.16.1, as it is; every specification is the same program on one rank.

They are numbered as in the issue.  Each is found where the program calls what makes it; the line in megatron-core is the second place of the finding, or the first one where
`sources = ["megatron"]` says that the package counts as one's own.  The checks with their repairs are in megatron_7452.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.distributed import finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
from megatron.core.ssm import gated_delta_net
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.transformer.attention import CrossAttention, CrossAttentionSubmodules
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.router import TopKRouter
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import megatron

# without Transformer Engine 0.16 leaves this name undefined, and uses it
moe_utils.te_general_gemm = None


@gg.check(mesh={"tp": 2})
def label_smoothing(mesh):
    """1: a rank smooths over its own part of the vocabulary."""
    megatron.world(mesh)

    def run(logits, labels):
        return vocab_parallel_cross_entropy(logits.clone(), labels, label_smoothing=0.1)  # the mistake

    inputs = (gg.tensor(5, 3, 8), gg.tensor(5, 3, dtype=torch.int64, low=0, high=8))
    return gg.Same(run, inputs, in_relations=({"tp": Shard(2)}, {}))


@gg.check(mesh={"tp": 2})
def gathered_logits(mesh):
    """2: gathered logits in a cross entropy that takes parts of the vocabulary."""
    megatron.world(mesh)
    model = megatron.gpt(megatron.config())
    # on one rank gathered logits are a view, which its loss overwrites
    gathered = mesh.size() > 1

    def run(tokens, labels):
        positions, mask = torch.arange(6, device=tokens.device).unsqueeze(0), megatron.mask(6, tokens.device)
        return model(tokens, positions, mask, labels=labels, runtime_gather_output=gathered)  # the mistake

    return gg.Same(run, megatron.text(2, 6))


class Cross(nn.Module):
    def __init__(self, groups: Any, linear: Callable[..., nn.Module]) -> None:
        super().__init__()
        parts = CrossAttentionSubmodules(linear, linear, DotProductAttention, RowParallelLinear)
        self.attention = CrossAttention(megatron.config(num_query_groups=4), parts, 1, pg_collection=groups).cuda()

    def forward(self, x, context):
        return self.attention(x, None, key_value_states=context)[0]  # the mistake


def crossed(groups: Any, linear: Callable[..., nn.Module] = ColumnParallelLinear) -> gg.Same:
    part = {"dp": Shard(1)}
    inputs = (gg.tensor(6, 4, 16), gg.tensor(5, 4, 16))
    return gg.Same(Cross(groups, linear), inputs, in_relations=(part, part), grads=False)


@gg.check(mesh={"tp": 2, "dp": 2})
def cross_attention(mesh):
    """6: cross-attention does not give its groups to its linear layers."""
    return crossed(megatron.groups(mesh))


def scattered(groups: Any) -> gg.Same:
    model = SimpleNamespace(
        pg_collection=groups,
        pre_process=True,
        post_process=True,
        context_parallel_lm=1,
        sequence_parallel_lm=groups.tp.size() > 1,
        tensor_model_parallel_size_lm=groups.tp.size(),
        tp_comm_overlap_lm=False,
    )

    def run(embeddings):
        if not model.sequence_parallel_lm:  # as its forward does
            return embeddings
        return LLaVAModel._process_embedding_token_parallel(model, embeddings, None, None, None)[0]  # the mistake

    return gg.Same(run, (gg.tensor(6, 4, 5),), in_relations={"dp": Shard(1)})


@gg.check(mesh={"tp": 2, "dp": 2})
def llava_embeddings(mesh):
    """7: LLaVA cuts the sequence over the global group."""
    return scattered(megatron.groups(mesh))


class Tagger(MegatronModule):
    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.model_type = ModelType.encoder_or_decoder
        self.embedding = nn.Embedding(megatron.VOCABULARY, 16)
        self.head = nn.Linear(16, megatron.VOCABULARY)

    def set_input_tensor(self, _: Any) -> None:
        pass

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def summed(mask, losses):
    return (losses * mask).sum(), mask.sum().int(), {}  # the mistake


def scheduled(loss: Callable[..., Any]) -> gg.Same:
    """A step of the schedule under context parallelism, with a mask of tokens."""
    settings = megatron.config(finalize_model_grads_func=finalize_model_grads)
    model = megatron.wrapped(Tagger(settings).cuda())

    def forward_step(batches, model):
        tokens, labels, mask = next(batches)
        losses = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="none")
        return losses, partial(loss, mask.flatten())

    def run(*batch):
        forward_backward_no_pipelining(
            forward_step_func=forward_step,
            data_iterator=iter([batch]),
            model=model,
            num_microbatches=1,
            seq_length=6,
            micro_batch_size=2,
        )
        return gg.gradients(model)

    mask = gg.tensor(2, 6, dtype=torch.int64, low=0, high=2)
    return gg.Same(run, (*megatron.text(2, 6), mask), in_relations={"cp": Shard(1)})


@gg.check(mesh={"cp": 2})
def context_parallel_loss(mesh):
    """9: the schedule divides by a rank's own tokens."""
    megatron.world(mesh)
    return scheduled(summed)


class Routed(MegatronModule):
    def __init__(self, settings: Any, groups: Any) -> None:
        super().__init__(settings)
        self.router = TopKRouter(settings, pg_collection=groups).cuda()

    def forward(self, x, padding):
        return self.router(x, padding)[0]


def balanced(groups: Any, *, masked: bool) -> gg.Same:
    settings = megatron.config(
        num_moe_experts=4,
        moe_router_topk=2,
        moe_router_load_balancing_type="aux_loss",
        moe_aux_loss_coeff=0.1,
        calculate_per_token_loss=True,
    )
    model = megatron.wrapped(Routed(settings, groups))

    def run(x, padding):
        probs = model(x, padding.bool() if masked else None)
        probs.square().sum().backward()  # the mistake
        finalize_model_grads([model])
        return gg.gradients(model)

    padding = gg.tensor(6, 2, dtype=torch.int64, low=0, high=2)
    return gg.Same(run, (gg.tensor(6, 2, 16), padding), in_relations={"cp": Shard(0)})


@gg.check(mesh={"cp": 2})
def auxiliary_loss(mesh):
    """Beside 10: without a mask of padding the auxiliary loss is multiplied by a rank's own tokens, where one rank multiplies by all of them."""
    return balanced(megatron.groups(mesh), masked=False)


def delta_rule(query, key, value, g, beta, **_):
    """What the kernel that megatron-core imports computes, token by token."""
    state = torch.zeros(*key.shape[:1], *key.shape[2:], value.shape[-1], device=key.device)
    outs = []
    for at in range(query.shape[1]):
        state = state * g[:, at, :, None, None].exp()
        seen = (state * key[:, at, :, :, None]).sum(-2)
        state = state + key[:, at, :, :, None] * ((value[:, at] - seen) * beta[:, at, :, None])[:, :, None]
        outs.append((state * query[:, at, :, :, None]).sum(-2))
    return torch.stack(outs, 1), None


class Delta(MegatronModule):
    def __init__(self, settings: Any, groups: Any) -> None:
        super().__init__(settings)
        gated_delta_net.HAVE_FLA, gated_delta_net.l2norm = True, partial(F.normalize, dim=-1)
        gated_delta_net.chunk_gated_delta_rule = delta_rule
        parts = gated_delta_net.GatedDeltaNetSubmodules(ColumnParallelLinear, megatron.Norm, RowParallelLinear)
        self.layer = gated_delta_net.GatedDeltaNet(settings, parts, 1, pg_collection=groups).cuda()

    def forward(self, x):
        return self.layer(x, None)[0]


def fused(groups: Any) -> tuple[nn.Module, Callable[..., None]]:
    """The layer, and what a rank has of its fused projection and convolution."""
    settings = megatron.config(
        linear_conv_kernel_dim=2,
        linear_key_head_dim=3,
        linear_value_head_dim=5,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
    )
    model = Delta(settings, groups)
    sizes = {"in_proj": [6, 6, 10, 10, 2, 2], "conv1d": [6, 6, 10]}

    def load(state, _, __):
        rank, ranks = groups.tp.rank(), groups.tp.size()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                whole, part = state[f"module.{name}"], name.split(".")[-2]
                parts = whole.split(sizes[part]) if part in sizes else [whole]
                if part != "out_norm":
                    parts = [one.chunk(ranks, 1 if part == "out_proj" else 0)[rank] for one in parts]
                parameter.copy_(torch.cat(parts))

    return model, load


@gg.check(mesh={"tp": 2})
def delta_net(mesh):  # the mistake
    """11: the norm of each head's output is on every rank, and its gradient only of a rank's heads."""
    model, load = fused(megatron.groups(mesh))
    wrapped = megatron.wrapped(model)

    def run(x):
        wrapped(x).square().mean().backward()
        finalize_model_grads([wrapped])
        return gg.gradients(wrapped)

    return gg.Same(run, (gg.tensor(3, 2, 16),), load=load)
