"""A mistake with torchtitan's Qwen3."""

import torch.nn.functional as F
from titan_qwen3 import EXPERTS, _build_qwen3_moe_layers, pair

import graphguard as gg


def without_a_gather(qwen):
    """The loss of this rank's part of the vocabulary."""

    def run(tokens, labels):
        logits = qwen(tokens)
        loss = F.cross_entropy(logits.to_local().flatten(0, 1), labels.flatten() % 16)  # the mistake
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in qwen.named_parameters()}}

    return run


@gg.check(mesh={"tp": 2})
def part_of_the_vocabulary(mesh):
    return pair(_build_qwen3_moe_layers, EXPERTS, without_a_gather)
