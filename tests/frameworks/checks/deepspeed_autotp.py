"""DeepSpeed's AutoTP as its engine applies it to a Llama of transformers: logits, and a training step with every parameter."""

import copy
import os

os.environ.setdefault("DS_ACCELERATOR", "cuda")  # what a job on GPUs finds; on a CPU DeepSpeed builds an extension

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import graphguard as gg

VOCABULARY = 20
IDS = (gg.tensor(2, 5, dtype=torch.int64, low=0, high=VOCABULARY),)


def llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, vocab_size=VOCABULARY, **sizes))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def engine(model: torch.nn.Module):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": 0},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "tensor_parallel": {"autotp_size": 2},
    }
    made, *_ = deepspeed.initialize(model=model, optimizer=sgd(model), config=config)
    made.first_dataloader_check.remove()  # it compares the ranks' inputs, which only numbers can tell
    return made


@gg.check(mesh={"tp": 2})
def logits(mesh):
    spec = llama()
    made = engine(copy.deepcopy(spec).cuda())
    return gg.Refinement(
        lambda ids: spec(input_ids=ids).logits, lambda ids: made(input_ids=ids).logits, IDS, out_relations="replicate"
    )


@gg.check(mesh={"tp": 2})
def training_step(mesh):
    spec = llama()
    model, optimiser = copy.deepcopy(spec).cuda(), sgd(spec)
    made = engine(model)

    def sequential(ids: torch.Tensor):
        loss = spec(input_ids=ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        return {"loss": loss.detach(), **dict(spec.named_parameters())}

    def parallel(ids: torch.Tensor):
        loss = made(input_ids=ids, labels=ids).loss
        made.backward(loss)
        made.step()
        return {"loss": loss.detach(), **dict(model.named_parameters())}

    return gg.Refinement(sequential, parallel, IDS)
