"""megatron-core's pipeline: its 1F1B schedule over a GPT cut into stages, as one step of several micro-batches."""

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron_gpt import BATCH, TEXT, TOKENS, VOCABULARY, Norm, config, parallel

import graphguard as gg

STAGES, MICRO = 2, 2


def stage(settings, layers: int, *, first: bool = True, last: bool = True) -> GPTModel:
    layer = get_gpt_layer_local_spec()
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    return GPTModel(
        config=settings,
        transformer_layer_spec=TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=Norm),
        vocab_size=VOCABULARY,
        max_sequence_length=TOKENS,
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    ).cuda()


def mean(losses):
    return losses.mean()


def step(model, at: int = 0, loss=mean, again=None):
    """Loss and gradients of a batch; layers are named by their place in the whole model."""

    def one(batches, model):
        tokens, labels = next(batches)
        positions = torch.arange(TOKENS, device=tokens.device).unsqueeze(0)
        mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool, device=tokens.device).triu(1)

        def told(losses):
            value = loss(losses)
            return value, {"loss": value.detach()}

        return model(tokens, positions, mask, labels=labels), told

    def run(tokens, labels):
        if again is not None:
            again()
        losses = get_forward_backward_func()(
            forward_step_func=one,
            data_iterator=zip(tokens.chunk(MICRO), labels.chunk(MICRO), strict=True),
            model=model,
            num_microbatches=MICRO,
            seq_length=TOKENS,
            micro_batch_size=BATCH // MICRO,
        )
        gradients = {placed(name, at): parameter.grad for name, parameter in model.named_parameters()}
        return gradients | ({"loss": sum(one["loss"] for one in losses)} if losses else {})

    return run


def placed(name: str, at: int) -> str:
    return name.replace("layers.0.", f"layers.{at}.") if at else name


def pair(mesh, loss=mean) -> gg.Refinement:
    parallel()
    spec = step(stage(config(num_layers=STAGES), STAGES), again=parallel)
    parallel(pipeline_model_parallel_size=STAGES)
    at = mesh.get_local_rank("pp")
    settings = config(num_layers=STAGES, pipeline_model_parallel_size=STAGES, pipeline_dtype=torch.float32)
    model = stage(settings, 1, first=at == 0, last=at == STAGES - 1)

    def load(state, _, __):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(state[placed(name, at)])

    return gg.Refinement(spec, step(model, at, loss), TEXT, load=load)


@gg.check(mesh={"pp": 2})
def one_forward_one_backward(mesh):
    return pair(mesh)
