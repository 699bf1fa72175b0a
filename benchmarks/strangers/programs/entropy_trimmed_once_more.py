"""The last context rank drops the logits that predict nothing, and the entropy drops one more of them, so that its last position counts as zero. slime's FSDP actor.

Source: https://github.com/THUDM/slime/pull/1377
Rule: wrong-relation, wrong-shard
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate

import graphguard as gg

SEQUENCE, VOCAB, HIDDEN, INTERMEDIATE = 15, 7, 4, 9
TEMPERATURE, ENTROPY_COEF, EPS_CLIP, LR = 0.8, 0.3, 0.2, 0.35


@dataclass
class ParallelState:
    cp_rank: int = 0
    cp_size: int = 1
    cp_group: Any = None


class CausalLM(nn.Module):
    """Every position by itself; attention is left out."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.gate_proj = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
        self.down_proj = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, input_ids):
        hidden = self.embed_tokens(input_ids)
        hidden = hidden + self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return self.lm_head(hidden)


class AllGather(torch.autograd.Function):
    """The ranks' columns side by side; every rank's gradient of them is added."""

    @staticmethod
    def forward(ctx, stacked, group):
        ctx.group, ctx.width = group, stacked.shape[-1]
        parts = [torch.empty_like(stacked) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, stacked.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.narrow(-1, dist.get_rank(ctx.group) * ctx.width, ctx.width), None


def gather_log_probs_packed(shifted_logits, targets):
    log_probs = torch.log_softmax(shifted_logits / TEMPERATURE, dim=-1)
    return log_probs.gather(-1, targets[:, None]).squeeze(-1)


def entropy_from_logits(shifted_logits):
    log_probs_full = torch.log_softmax(shifted_logits, dim=-1)
    return -(log_probs_full.exp() * log_probs_full).sum(dim=-1)


def get_logprob_and_entropy_with_cp(logits, target_tokens, state):
    """Both have one entry less than the sequence has tokens."""
    if state.cp_size == 1:
        shifted_logits = logits[:-1]
        return gather_log_probs_packed(shifted_logits, target_tokens[1:]), entropy_from_logits(shifted_logits)

    chunk_size = logits.shape[0]
    is_last = state.cp_rank == state.cp_size - 1
    start = chunk_size * state.cp_rank
    end = start + chunk_size + (0 if is_last else 1)
    local_tokens = target_tokens[start:end]

    logits = logits[:-1] if is_last else logits  # near
    local_log_probs = gather_log_probs_packed(logits, local_tokens[1:])

    shifted_logits = logits[:-1] if is_last else logits  # fixed: shifted_logits = logits
    entropy = entropy_from_logits(shifted_logits)

    # all ranks' parts must be of one length
    local_log_probs = F.pad(local_log_probs, (0, chunk_size - local_log_probs.shape[0]))
    entropy = F.pad(entropy, (0, chunk_size - entropy.shape[0]))  # near
    gathered = AllGather.apply(torch.stack([local_log_probs, entropy]), state.cp_group)
    log_probs, entropy = gathered[:, : target_tokens.shape[0] - 1]
    return log_probs, entropy


class FSDPTrainRayActor:
    def __init__(self, model, state):
        self.model = model
        self.state = state

    def policy_loss(self, log_probs, old_log_probs, advantages, loss_mask):
        ratio = (log_probs - old_log_probs).exp()
        clipped = ratio.clamp(1 - EPS_CLIP, 1 + EPS_CLIP)
        pg_loss = torch.maximum(-ratio * advantages, -clipped * advantages)
        return (pg_loss * loss_mask).sum() / loss_mask.sum().clamp(min=1)

    def reduce_gradients(self):
        """FSDP: the mean over the ranks that hold the model's parts."""
        if self.state.cp_size > 1:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, group=self.state.cp_group)
                parameter.grad /= self.state.cp_size

    def train_step(self, input_ids, tokens, old_log_probs, advantages, loss_mask):
        """``input_ids`` are the own positions, ``tokens`` and the rest those of the whole sequence."""
        logits = self.model(input_ids)
        log_probs, entropy = get_logprob_and_entropy_with_cp(logits, tokens, self.state)
        mask = loss_mask[1:].float()
        pg_loss = self.policy_loss(log_probs, old_log_probs[1:], advantages[1:], mask)
        entropy_loss = (entropy * mask).sum() / mask.sum().clamp(min=1)
        loss = pg_loss - ENTROPY_COEF * entropy_loss
        loss.backward()
        self.reduce_gradients()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= LR * parameter.grad
        return {
            "loss": loss.detach(),
            "entropy": entropy.detach(),
            "log_probs": log_probs.detach(),
            **{name: parameter.detach() for name, parameter in self.model.named_parameters()},
        }


@gg.check(mesh={"cp": 3})
def check(mesh):
    model = CausalLM()
    state = ParallelState(mesh.get_local_rank("cp"), mesh.size(), mesh.get_group("cp"))
    tokens = gg.tensor(SEQUENCE, dtype=torch.int64, high=VOCAB)
    values, mask = gg.tensor(SEQUENCE), gg.tensor(SEQUENCE, dtype=torch.int64, high=2)

    def run(actor):
        def step(input_ids, old_log_probs, advantages, loss_mask):
            tokens = input_ids
            if actor.state.cp_size > 1:
                start = actor.state.cp_rank * (SEQUENCE // actor.state.cp_size)
                input_ids = tokens[start : start + SEQUENCE // actor.state.cp_size]
            return actor.train_step(input_ids, tokens, old_log_probs, advantages, loss_mask)

        return step

    return gg.Refinement(
        run(FSDPTrainRayActor(model, ParallelState())),
        run(FSDPTrainRayActor(copy.deepcopy(model), state)),
        (tokens, values, values, mask),
        in_relations={"cp": Replicate()},
        out_relations="replicate",
        grads=False,
    )
