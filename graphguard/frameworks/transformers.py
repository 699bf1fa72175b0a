"""transformers (5): its own models, small and with weights that nobody downloads, as it distributes them, and a training step.

A check is then a few lines, for :class:`graphguard.Same`::

    @gg.check(mesh={"tp": 2})
    def qwen3(mesh):
        model = transformers.model("Qwen3", head_dim=8, distributed={"tp_size": mesh.size()})
        return gg.Same(transformers.step(model), (transformers.text(2, 8),))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import nn
from transformers.distributed import DistributedConfig

import graphguard as gg

VOCABULARY = 32
#: What a small model of most families takes.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "use_cache": False,
    "tie_word_embeddings": False,
}


def model(family: str, *, config: str = "", distributed: Mapping[str, Any] | None = None, **sizes: Any) -> nn.Module:
    """A causal language model of a family such as ``Llama``, with random weights.

    ``sizes`` are those of its configuration, whose class ``config`` names where it is not the family's own.
    ``distributed`` goes to ``DistributedConfig``: ``{"tp_size": 2}``; where all its sizes are 1 the model is whole.
    """
    configuration = getattr(transformers, config or f"{family}Config")(**{**SIZES, **sizes})
    kind = getattr(transformers, f"{family}ForCausalLM")
    wanted = {name: value for name, value in (distributed or {}).items() if not (name.endswith("_size") and value == 1)}
    if not any(name.endswith("_size") for name in wanted):
        return kind(configuration)
    settings, _, mesh = kind.prepare_distribute_model(DistributedConfig(**wanted))
    return kind.maybe_distribute_model(kind(configuration), settings, mesh)


def text(batch: int, length: int, vocabulary: int = VOCABULARY) -> Any:
    """Tokens, which are their own labels, as an input of a check."""
    return gg.tensor(batch, length, dtype=torch.int64, low=0, high=vocabulary)


def step(
    model: nn.Module,
    group: Any = None,
    backward: Callable[[torch.Tensor], None] = torch.Tensor.backward,
) -> Callable[[torch.Tensor], dict[str, Any]]:
    """A function of tokens: loss and gradients.  With a ``group`` of ranks that have other tokens each, the loss is the mean of theirs."""

    def run(tokens: torch.Tensor) -> dict[str, Any]:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        backward(loss)
        loss = loss.detach()
        if group is not None:
            dist.all_reduce(loss, group=group)
            loss /= dist.get_world_size(group)
        return {"loss": loss, "gradients": gg.gradients(model)}

    return run
