"""accelerate, unmodified: a model of transformers under its tensor-parallel plan, prepared by accelerate."""

from accelerate import Accelerator
from accelerate.utils import ParallelismConfig
from transformers_plans import TOKENS, pair

import graphguard as gg


def step(model, backward=lambda loss: loss.backward()):
    """Loss and gradients."""

    def run(tokens):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        backward(loss)
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"tp": 2})
def tensor_parallel(mesh):
    accelerator = Accelerator(parallelism_config=ParallelismConfig(tp_size=mesh.size()))
    whole, parallel = pair("Llama", mesh.size())
    return gg.Refinement(step(whole.cuda()), step(accelerator.prepare(parallel), accelerator.backward), (TOKENS,))
