"""torchtitan's own Llama 3 with its compiled flex attention, under its own plan."""

import torch
import torch.nn.functional as F
from titan_llama import TEXT, TOKENS, dims, model
from torch.nn.attention.flex_attention import create_block_mask
from torchtitan.models.common.attention import FlexAttention

import graphguard as gg


def flexible():
    return model(attention=FlexAttention.Config()).cuda()


def causal(batch, head, query, key):
    return query >= key


def step(llama):
    """Loss and gradients."""

    def run(tokens, labels):
        mask = create_block_mask(causal, None, None, TOKENS, TOKENS, device=torch.device("cuda"))
        logits = llama(tokens, attention_masks=mask)
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in llama.named_parameters()}}

    return run


@gg.check(mesh={"tp": 2})
def flex_attention(mesh):
    parallel = flexible()
    parallel.parallelize(dims(mesh.size(), tp=mesh.size()))
    return gg.Refinement(step(flexible()), step(parallel), TEXT)
