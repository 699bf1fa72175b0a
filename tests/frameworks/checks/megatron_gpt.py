"""megatron-core as it is: a GPT model under tensor and sequence parallelism, and its finaliser, as one training step."""

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch import nn

import graphguard as gg

VOCABULARY, TOKENS, BATCH = 32, 6, 2


def parallel(tp: int = 1, **others: int) -> None:
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, **others)
    model_parallel_cuda_manual_seed(1)


def config(tp: int = 1, *, num_layers: int = 1, sequence_parallel: bool = False, **others) -> TransformerConfig:
    return TransformerConfig(
        num_layers=num_layers,
        hidden_size=16,
        num_attention_heads=4,
        num_query_groups=2,
        ffn_hidden_size=24,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        tensor_model_parallel_size=tp,
        sequence_parallel=sequence_parallel,
        use_cpu_initialization=True,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        **others,
    )


class Norm(nn.RMSNorm):
    """Megatron's own norms that know sequence parallelism come from Apex and Transformer Engine; this one says what theirs say."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = config.sequence_parallel


def gpt(settings: TransformerConfig, **others) -> GPTModel:
    layer = get_gpt_layer_local_spec(**others)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    return GPTModel(
        config=settings,
        transformer_layer_spec=TransformerBlockSubmodules(layer_specs=[layer], layer_norm=Norm),
        vocab_size=VOCABULARY,
        max_sequence_length=TOKENS,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    )


def step(model, finalise=None):
    """Loss and gradients of one micro-batch; ``finalise`` is what Megatron's schedules call after the last one."""

    def run(tokens, labels):
        positions = torch.arange(TOKENS, device=tokens.device).unsqueeze(0)
        mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool, device=tokens.device).triu(1)
        loss = model(tokens, positions, mask, labels=labels).mean()
        loss.backward()
        if finalise is not None:
            finalise([model])
        gradients = {name: getattr(p, "main_grad", p.grad) for name, p in model.named_parameters()}
        return {"loss": loss.detach(), **gradients}

    return run


TEXT = tuple(gg.tensor(BATCH, TOKENS, dtype=torch.int64, low=0, high=VOCABULARY) for _ in range(2))


def specification(**others):
    """Megatron itself on one rank; its groups are global, so they are made again when it runs."""
    parallel()
    run = step(gpt(config(), **others).cuda())

    def alone(tokens, labels):
        parallel()
        return run(tokens, labels)

    return alone


def wrapped(model, settings):
    return DistributedDataParallel(settings, DistributedDataParallelConfig(overlap_grad_reduce=False), model)


@gg.check(mesh={"tp": 2})
def tensor_parallel(mesh):
    spec = specification()
    parallel(2)
    return gg.Refinement(spec, step(gpt(config(2)).cuda()), TEXT)


@gg.check(mesh={"tp": 2})
def sequence_parallel(mesh):
    spec = specification()
    parallel(2)
    settings = config(2, sequence_parallel=True)
    model = wrapped(gpt(settings).cuda(), settings)
    return gg.Refinement(spec, step(model, finalize_model_grads), TEXT)
