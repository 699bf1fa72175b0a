"""A natural mistake with transformers' tensor parallelism."""

from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from transformers_plans import TOKENS, pair

import graphguard as gg


def step(model: nn.Module):
    """Loss and clipped gradients; some parameters are sharded, the norms are not, and `clip_grad_norm_` does not take both."""

    def run(tokens):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        gradients = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
        norm = get_total_norm(gradients)  # the mistake
        for gradient in gradients:
            gradient.mul_((0.1 / (norm + 1e-6)).clamp(max=1))
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"tp": 2})
def clipped_by_every_rank(mesh):
    whole, parallel = pair("Llama", mesh.size())
    return gg.Refinement(step(whole), step(parallel), (TOKENS,))
