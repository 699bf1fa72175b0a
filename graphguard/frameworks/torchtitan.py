"""torchtitan (0.3): its parallel dims for a mesh, a small Llama 3 under its own plans, and its training step.

A check is then a few lines, for :class:`graphguard.Same`::

    @gg.check(mesh={"tp": 2})
    def llama(mesh):
        model = torchtitan.parallelized(torchtitan.llama3(), torchtitan.dims(mesh))
        return gg.Same(torchtitan.step(model), torchtitan.text(2, 8))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.distributed import ParallelDims, utils
from torchtitan.distributed.fsdp import apply_fsdp_to_decoder
from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.rope import ComplexRoPE
from torchtitan.models.llama3 import _build_llama3_layers
from torchtitan.models.llama3.model import Llama3Model
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

import graphguard as gg

VOCABULARY, WIDTH = 32, 32
# How torchtitan calls the degree of an axis of the mesh.
_DEGREES = {"dp": "dp_shard", "fsdp": "dp_shard", "replicas": "dp_replicate"}
_NONE = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1, "ep": 1}


def dims(mesh: Any, **others: Any) -> ParallelDims:
    """torchtitan's dims for a mesh whose axes are named as it names degrees; ``dp`` and ``fsdp`` shard, ``replicas`` replicate.

    Raises ``ValueError`` for an axis of another name.
    """
    sizes = {_DEGREES.get(name, name): mesh.size(place) for place, name in enumerate(mesh.mesh_dim_names)}
    if unknown := sorted(sizes.keys() - _NONE.keys()):
        raise ValueError(f"torchtitan has no degree {', '.join(unknown)}: name axes {', '.join(_NONE)}")
    return ParallelDims(**{**_NONE, **sizes, "world_size": mesh.size(), "spmd_backend": "partial_dtensor", **others})


def llama3(*, layers: int = 1, length: int = 16, sequence_parallel: bool = True, attention: Any = None) -> Llama3Model:
    """torchtitan's Llama 3, small, with PyTorch's attention or another configuration of it."""
    config = Llama3Model.Config(
        dim=WIDTH,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=WIDTH),
        norm=RMSNorm.Config(normalized_shape=WIDTH),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCABULARY),
        layers=_build_llama3_layers(
            n_layers=layers,
            dim=WIDTH,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=48,
            fuse_qkv=False,
            rope=ComplexRoPE.Config(dim=WIDTH // 4, max_seq_len=length, theta=10000, scaling="none"),
            attn_backend="flex",
        ),
    )
    for layer in config.layers:
        layer.attention.inner_attention = attention or ScaledDotProductAttention.Config()
    set_llama3_sharding_config(config, enable_sp=sequence_parallel)
    return config.build()


def parallelized(model: Any, parallel: ParallelDims, **fully_sharded: Any) -> nn.Module:
    """The model under its tensor-parallel plan and FSDP2, as far as the dims ask for them, in full precision.

    ``fully_sharded`` goes to ``apply_fsdp_to_decoder``.
    """
    utils.set_spmd_backend(parallel.spmd_backend)
    model = model.cuda()
    if parallel.tp_enabled:
        model.parallelize(parallel)
    if parallel.dp_shard_enabled or parallel.dp_replicate_enabled:
        names = ["dp_replicate", "fsdp"] if parallel.dp_replicate_enabled else ["fsdp"]
        chosen = {"param_dtype": torch.float32, "reduce_dtype": torch.float32, "pp_enabled": False, **fully_sharded}
        apply_fsdp_to_decoder(model, parallel.get_mesh(names), **chosen)
    return model


def text(batch: int, length: int, vocabulary: int = VOCABULARY) -> tuple[Any, Any]:
    """Tokens and labels, as inputs of a check."""
    return tuple(gg.tensor(batch, length, dtype=torch.int64, low=0, high=vocabulary) for _ in range(2))  # type: ignore[return-value]


def forward_backward(model: nn.Module, tokens: Any, labels: Any, group: Any = None) -> torch.Tensor:
    """The loss of all ranks' tokens: each differentiates its part, divided by the number of valid labels of all ranks of ``group``, and FSDP sums gradients."""
    valid = (labels != -100).sum()
    if group is not None:
        dist.all_reduce(valid, group=group)
    loss, _ = CrossEntropyLoss.Config().build()(model(tokens), labels, valid)
    loss.backward()
    loss = loss.detach().clone()
    if group is not None:
        dist.all_reduce(loss, group=group)
    return loss


def step(model: nn.Module, group: Any = None) -> Callable[[Any, Any], dict[str, Any]]:
    """A function of tokens and labels: loss and gradients; ``group`` are the ranks that have other tokens each."""

    def run(tokens: Any, labels: Any) -> dict[str, Any]:
        loss = forward_backward(model, tokens, labels, group)
        return {"loss": loss, "gradients": gg.gradients(model)}

    return run
