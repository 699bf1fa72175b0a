"""megatron-core (0.16): its groups, a configuration that needs neither Apex nor Transformer Engine, and its training step with the finaliser.

A check is then a few lines, for :class:`graphguard.Same`::

    @gg.check(mesh={"tp": 2})
    def gpt(mesh):
        megatron.world(mesh)
        settings = megatron.config(sequence_parallel=mesh.size() > 1)
        return gg.Same(megatron.step(megatron.wrapped(megatron.gpt(settings))), megatron.text(2, 6))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.hyper_comm_grid import HyperCommGrid
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, clip_grads, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.fsdp_dtensor_checkpoint import get_global_unique_param_name
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from torch import nn

import graphguard as gg

VOCABULARY = 32
# How Megatron calls the size of an axis of the mesh.
_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}
# What a collection of groups calls those along one axis or several.
_GROUPS = {
    "tp": ["tp"],
    "cp": ["cp"],
    "dp": ["dp"],
    "pp": ["pp"],
    "mp": ["tp", "pp"],
    "tp_cp": ["tp", "cp"],
    "dp_cp": ["cp", "dp"],
    "tp_dp_cp": ["tp", "cp", "dp"],
}


def world(mesh: Any, **others: Any) -> None:
    """Make Megatron's groups anew, with the sizes of the mesh's axes ``tp``, ``pp``, ``cp`` and ``ep``; other axes are data parallel.

    ``others`` go to ``initialize_model_parallel``.  The mesh's axes must be ordered as Megatron orders ranks: ``tp`` varies fastest, then ``cp``, ``dp`` and ``pp``.  Raises ``ValueError`` where they are not.
    """
    names = mesh.mesh_dim_names
    order = [name for name in ("pp", "dp", "cp", "tp") if name in names]
    placed = [name for name in names if name in order]
    if placed != order:
        raise ValueError(
            f"Megatron orders ranks by {', '.join(order)}, the last varying fastest: give the mesh in that order; found {', '.join(placed)}"
        )
    _initialise(mesh, **others)


def groups(mesh: Any, **others: Any) -> ProcessGroupCollection:
    """Groups along the mesh's axes ``tp``, ``cp``, ``dp`` and ``pp``, in whatever order it has them, for what takes a ``pg_collection``.

    Megatron's global groups are made as well, of the same sizes and in Megatron's own order: what takes one of them although it was given another is found on a mesh such as ``{"tp": 2, "dp": 2}``,
    where ``tp`` varies slowest.  ``others`` go to ``initialize_model_parallel``.  Raises ``ValueError`` where the mesh has another axis.
    """
    unknown = [name for name in mesh.mesh_dim_names if name not in ("tp", "cp", "dp", "pp")]
    if unknown:
        raise ValueError(f"give a mesh of the axes tp, cp, dp and pp; found {', '.join(unknown)}")
    _initialise(mesh, **others)
    sizes = {name: mesh.size(place) for place, name in enumerate(mesh.mesh_dim_names)}
    # its first axis varies fastest, the mesh's last one
    axes = [*reversed(mesh.mesh_dim_names), *(name for name in ("tp", "cp", "dp", "pp") if name not in sizes)]
    grid = HyperCommGrid([sizes.get(name, 1) for name in axes], axes)
    found = ProcessGroupCollection.use_mpu_process_groups()
    for name, along in _GROUPS.items():
        setattr(found, name, grid.create_pg(along))
    return found


def _initialise(mesh: Any, **others: Any) -> None:
    sizes = {_SIZES[name]: mesh.size(place) for place, name in enumerate(mesh.mesh_dim_names) if name in _SIZES}
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(**{**sizes, **others})
    model_parallel_cuda_manual_seed(1)


def config(**settings: Any) -> TransformerConfig:
    """A small model's configuration for the groups that there are, without fused kernels, dropout and biases; ``settings`` are those of ``TransformerConfig``.

    Sequence parallelism is left out where there is nothing to divide, as Megatron's own arguments do.
    """
    usual: dict[str, Any] = {
        "num_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "ffn_hidden_size": 24,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "use_cpu_initialization": True,
        "add_bias_linear": False,
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "bias_activation_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False,
        "tensor_model_parallel_size": parallel_state.get_tensor_model_parallel_world_size(),
        "pipeline_model_parallel_size": parallel_state.get_pipeline_model_parallel_world_size(),
        "context_parallel_size": parallel_state.get_context_parallel_world_size(),
        "expert_model_parallel_size": parallel_state.get_expert_model_parallel_world_size(),
    }
    chosen = {**usual, **settings}
    if chosen["tensor_model_parallel_size"] == 1:
        chosen["sequence_parallel"] = False
    return TransformerConfig(**chosen)


class Norm(nn.RMSNorm):
    """Megatron's own norms that know sequence parallelism come from Apex and Transformer Engine; this one says what theirs say."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = config.sequence_parallel


def gpt(
    settings: TransformerConfig,
    *,
    length: int = 64,
    vocabulary: int = VOCABULARY,
    collection: ProcessGroupCollection | None = None,
    **layer: Any,
) -> GPTModel:
    """Megatron's GPT with its local layers, on CUDA, with layers that predict further tokens where ``settings`` ask for them; ``layer`` goes to ``get_gpt_layer_local_spec``.

    In a pipeline it is a rank's own stage, for :func:`scheduled`.
    ``collection`` are its groups (None: Megatron's global ones).
    """
    spec = get_gpt_layer_local_spec(**layer)
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    further = None
    if settings.mtp_num_layers:
        further = get_gpt_mtp_block_spec(settings, spec, use_transformer_engine=False)
        for one in further.layer_specs:
            one.submodules.enorm = one.submodules.hnorm = one.submodules.layer_norm = Norm
    return GPTModel(
        config=settings,
        transformer_layer_spec=TransformerBlockSubmodules(
            layer_specs=[spec] * get_num_layers_to_build(settings), layer_norm=Norm
        ),
        vocab_size=vocabulary,
        max_sequence_length=length,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
        mtp_block_spec=further,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        pg_collection=collection,
    ).cuda()


def wrapped(model: nn.Module, **settings: Any) -> DistributedDataParallel:
    """The model in Megatron's DistributedDataParallel; ``settings`` are those of its configuration."""
    chosen = DistributedDataParallelConfig(**{"overlap_grad_reduce": False, **settings})
    return DistributedDataParallel(model.config, chosen, model)


def optimizer(model: nn.Module, **settings: Any) -> MegatronOptimizer:
    """Megatron's optimizer of a wrapped model, Adam without clipping; ``settings`` are those of ``OptimizerConfig``.

    The norm of the gradients is taken without Apex and Transformer Engine, whose kernel takes that of several tensors at once.
    """
    clip_grads.l2_norm_impl = _norm
    chosen = OptimizerConfig(**{"optimizer": "adam", "lr": 0.01, "weight_decay": 0.0, "clip_grad": 0.0, **settings})
    return get_megatron_optimizer(chosen, [model])


def _norm(_chunk: int, _overflow: Any, lists: list[list[Any]], *_: Any) -> tuple[Any, None]:
    return torch.stack([gradient.norm() for gradient in lists[0]]).norm().view(1), None


def text(batch: int, length: int, vocabulary: int = VOCABULARY) -> tuple[Any, Any]:
    """Tokens and labels, as inputs of a check."""
    return tuple(gg.tensor(batch, length, dtype=torch.int64, low=0, high=vocabulary) for _ in range(2))  # type: ignore[return-value]


def step(
    model: nn.Module, finalise: Callable[[list[nn.Module]], None] | None = finalize_model_grads, **others: Any
) -> Callable[[Any, Any], dict[str, Any]]:
    """A function of tokens and labels: loss and gradients of one micro-batch, after ``finalise``, which Megatron's schedules call after the last one (None: without).

    ``others`` go to the model.
    """

    def run(tokens: Any, labels: Any) -> dict[str, Any]:
        length = tokens.shape[1]
        positions = torch.arange(length, device=tokens.device).unsqueeze(0)
        loss = model(tokens, positions, mask(length, tokens.device), labels=labels, **others).mean()
        loss.backward()
        if finalise is not None:
            finalise([model])
        return {"loss": loss.detach(), "gradients": gg.gradients(model)}

    return run


def scheduled(model: nn.Module, micro_batches: int = 1) -> Callable[[Any, Any], dict[str, Any]]:
    """A function of tokens and labels: loss and gradients of one step by Megatron's own schedule, over the stages of the pipeline that there are.

    Ranks have the loss where their stage is the last one, and the gradients of their own parameters, by their places in the whole model.
    """

    def one(batches: Any, model: nn.Module) -> tuple[Any, Callable[[Any], tuple[Any, dict[str, Any]]]]:
        tokens, labels = next(batches)
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        out = model(tokens, positions, mask(tokens.shape[1], tokens.device), labels=labels)
        return out, lambda losses: (losses.mean(), {"loss": losses.mean().detach()})

    def run(tokens: Any, labels: Any) -> dict[str, Any]:
        losses = get_forward_backward_func()(
            forward_step_func=one,
            data_iterator=zip(tokens.chunk(micro_batches), labels.chunk(micro_batches), strict=True),
            model=model,
            num_microbatches=micro_batches,
            seq_length=tokens.shape[1],
            micro_batch_size=tokens.shape[0] // micro_batches,
        )
        found = {place(model, name): parameter.grad for name, parameter in model.named_parameters()}
        return found | ({"loss": sum(one["loss"] for one in losses) / micro_batches} if losses else {})

    return run


def loaded(model: nn.Module) -> Callable[..., None]:
    """What ``gg.Same`` takes as ``load`` for a stage of a pipeline: its parameters are those of the model of one rank that have their places."""

    def load(state: dict[str, Any], *_: Any) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(state[place(model, name)])

    return load


def place(model: nn.Module, name: str) -> str:
    """A parameter's name, with its layer's number in the whole model in the place of that in the stage."""
    return get_global_unique_param_name([model], model.get_parameter(name))


def mask(length: int, device: Any = None) -> Any:
    """The attention mask of text: True where a token may not look, which is ahead."""
    return torch.ones(1, 1, length, length, dtype=torch.bool, device=device).triu(1)
