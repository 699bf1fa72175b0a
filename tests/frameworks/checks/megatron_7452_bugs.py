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
from megatron.core.extensions import transformer_engine
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
from megatron.core.ssm import gated_delta_net
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, random
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.tensor_parallel.utils import gather_split_1d_tensor, split_tensor_into_1d_equal_chunks
from megatron.core.transformer.attention import CrossAttention, CrossAttentionSubmodules
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from megatron.core.utils import make_viewless_tensor
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import megatron


def smooth(losses: Callable[..., Any]) -> gg.Same:
    inputs = (gg.tensor(5, 3, 8), gg.tensor(5, 3, dtype=torch.int64, low=0, high=8))
    return gg.Same(losses, inputs, in_relations=({"tp": Shard(2)}, {}))


def smoothed(logits, labels):
    return vocab_parallel_cross_entropy(logits.clone(), labels, label_smoothing=0.1)  # the mistake


@gg.check(mesh={"tp": 2})
def label_smoothing(mesh):
    """1: a rank smooths over its own part of the vocabulary."""
    megatron.world(mesh)
    return smooth(smoothed)


def lost(gathered: bool) -> gg.Same:
    model = megatron.gpt(megatron.config())

    def run(tokens, labels):
        positions, mask = torch.arange(6, device=tokens.device).unsqueeze(0), megatron.mask(6, tokens.device)
        return model(tokens, positions, mask, labels=labels, runtime_gather_output=gathered)  # the mistake

    return gg.Same(run, megatron.text(2, 6))


@gg.check(mesh={"tp": 2})
def gathered_logits(mesh):
    """2: gathered logits in a cross entropy that takes parts of the vocabulary; on one rank they are a view, which its loss overwrites."""
    megatron.world(mesh)
    return lost(gathered=mesh.size() > 1)


def recomputed(groups: Any, checkpoint: Callable[..., Any]) -> gg.Same:
    """The layer's recomputation of a block that keeps a part of its input on every rank; ``checkpoint`` stands in for that of Transformer Engine."""
    transformer_engine.te_checkpoint = checkpoint
    settings = megatron.config(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    settings.fp8, settings.distribute_saved_activations = "hybrid", True
    layer = SimpleNamespace(config=settings, tp_group=groups.tp)
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).cuda()

    def run(hidden):
        hidden = hidden.requires_grad_()
        out = MultiTokenPredictionLayer._checkpointed_forward(
            layer, block, make_viewless_tensor(hidden * 1, True, True)
        )
        out.square().sum().backward()  # the mistake
        return out, hidden.grad

    return gg.Same(run, (gg.tensor(6, 2, 4),), in_relations={"dp": Shard(1)})


def kept_in_parts(function, parts, _, group, *inputs):
    """What Transformer Engine's checkpoint does, by Megatron's own."""
    random.split_tensor_into_1d_equal_chunks = partial(split_tensor_into_1d_equal_chunks, tp_group=group)
    random.gather_split_1d_tensor = partial(gather_split_1d_tensor, tp_group=group)
    return random.checkpoint(function, parts, *inputs)


@gg.check(mesh={"tp": 2, "dp": 2})
def recomputed_prediction(mesh):
    """4: the layer that predicts further tokens recomputes over the global group."""
    return recomputed(megatron.groups(mesh), kept_in_parts)


def padded(groups: Any) -> gg.Same:
    model = megatron.gpt(megatron.config(sequence_parallel=True), collection=groups)

    def run(tokens, padding):
        positions = torch.arange(6, device=tokens.device).unsqueeze(0)
        return model._preprocess(tokens, positions, padding_mask=padding.bool())[5]  # the mistake

    inputs = (megatron.text(4, 6)[0], gg.tensor(4, 6, dtype=torch.int64, low=0, high=2))
    return gg.Same(run, inputs, in_relations={"dp": Shard(0)})


@gg.check(mesh={"tp": 2, "dp": 2})
def padding_mask(mesh):
    """5: GPT cuts the mask of padding over the global group."""
    return padded(megatron.groups(mesh))


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


def normed(model: nn.Module) -> gg.Same:
    """The norm of the gradients, as the optimizer takes it."""
    optimizer, step = megatron.optimizer(model), megatron.step(model)

    def run(tokens, labels):
        found = step(tokens, labels)
        optimizer.prepare_grads()
        return {**found, "norm": optimizer.get_grad_norm()}  # the mistake

    return gg.Same(run, megatron.text(2, 6))


@gg.check(mesh={"tp": 2})
def sink_in_the_norm(mesh):
    """8: the sinks of attention are not marked as parts of a whole, and the norm of the gradients counts those of the first rank alone."""
    megatron.world(mesh)
    return normed(megatron.wrapped(megatron.gpt(megatron.config(softmax_type="learnable"))))


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
        forward_backward_no_pipelining(  # its other half: the mistake
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
def delta_net(mesh):
    """11: the norm of each head's output is on every rank, and its gradient only of a rank's heads."""
    model, load = fused(megatron.groups(mesh))
    wrapped = megatron.wrapped(model)

    def run(x):
        wrapped(x).square().mean().backward()  # the mistake
        finalize_model_grads([wrapped])
        return gg.gradients(wrapped)

    return gg.Same(run, (gg.tensor(3, 2, 16),), load=load)


def resumed(name: Callable[[nn.Module, nn.Parameter], str]) -> gg.Same:
    """Layers of the stages of a pipeline with what each finds in a checkpoint of one rank, strictly by the names of its parameters."""
    model = megatron.gpt(megatron.config(num_layers=2, pipeline_dtype=torch.float32))

    def run(x, first, second):
        saved = {f"decoder.layers.{at}.mlp.linear_fc1.weight": one for at, one in enumerate((first, second))}
        return {
            megatron.place(model, key): F.linear(x, saved[name(model, parameter)])  # the mistake
            for key, parameter in model.named_parameters()
            if "linear_fc1" in key
        }

    return gg.Same(run, (gg.tensor(2, 16), gg.tensor(48, 16), gg.tensor(48, 16)))


def of_the_stage(model, parameter):
    return next(name for name, one in model.named_parameters() if one is parameter)


@gg.check(mesh={"pp": 2})
def resized_pipeline(mesh):
    """12: checkpoints of Megatron-FSDP number layers within a stage."""
    megatron.world(mesh)
    return resumed(of_the_stage)
