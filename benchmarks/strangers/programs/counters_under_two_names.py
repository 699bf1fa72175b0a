"""A metric's numerator is kept under two names, and so is another one's denominator; the trainer sums up every name in place, so that what is one tensor is summed over the ranks twice. vLLM's speculators.

Source: https://github.com/vllm-project/speculators/pull/759
Rule: extra-reduction, wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, TOKENS, VOCAB, HIDDEN = 9, 4, 3, 5


@dataclass(frozen=True)
class DraftConfig:
    ttt_steps: int = 2
    confidence_weight: float = 0.5


class DraftModel(nn.Module):
    """Words guessed one after the other from the verifier's hidden states, and how sure the guess is."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.confidence_head = nn.Linear(HIDDEN, 1)

    def draft_step(self, hidden_states, input_ids):
        hidden_states = torch.tanh(self.fc(torch.cat([hidden_states, self.embed_tokens(input_ids)], dim=-1)))
        return hidden_states, self.lm_head(hidden_states), self.confidence_head(hidden_states).squeeze(-1).sigmoid()

    def forward(self, hidden_states, input_ids, loss_mask):
        metrics, total_loss, prev_correct = {}, torch.zeros(()), None
        for step in range(self.config.ttt_steps):
            window = slice(step, step + TOKENS)
            targets, mask = input_ids[:, 1:][:, window], loss_mask[:, window]
            hidden_states, logits, confidence = self.draft_step(hidden_states, input_ids[:, window])
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(mask.shape)
            total_loss = total_loss + (losses * mask).sum()
            correct = (logits.argmax(-1) == targets) & (mask > 0)
            if step == 0:
                metrics |= confidence_metrics(confidence, correct, mask)
            metrics |= accuracy_metrics(step, correct, mask, prev_correct)
            prev_correct = correct if prev_correct is None else prev_correct & correct
        metrics["loss_sum"], metrics["loss_total"] = total_loss, loss_mask[:, :TOKENS].sum().to(total_loss.dtype)
        return metrics


def compute_accuracy_single_step(correct, mask, prev_correct):
    """Of all tokens that count, and of those where all guesses so far were right."""
    full_total = mask.sum()
    cond_total = full_total.clone() if prev_correct is None else (prev_correct & (mask > 0)).sum()
    if prev_correct is not None:
        correct = correct & prev_correct
    correct_sum = correct.sum()
    counts = [count.to(torch.get_default_dtype()) for count in (correct_sum, full_total, cond_total)]
    correct_sum, full_total, cond_total = counts
    return correct_sum, full_total, correct_sum, cond_total  # fixed: return correct_sum, full_total, correct_sum.clone(), cond_total


def accuracy_metrics(step, correct, mask, prev_correct):
    full_sum, full_total, cond_sum, cond_total = compute_accuracy_single_step(correct, mask, prev_correct)
    return {
        f"full_acc_{step}_sum": full_sum,  # near
        f"full_acc_{step}_total": full_total,
        f"cond_acc_{step}_sum": cond_sum,  # near
        f"cond_acc_{step}_total": cond_total,
    }


def confidence_metrics(confidence, accepted, mask):
    """How far a guess's confidence is from what became of it, and how large it is."""
    mask_total = mask.sum().to(confidence.dtype)
    abs_error = (confidence - accepted.to(confidence.dtype)).abs()
    return {
        "confidence_abs_error_sum": (abs_error * mask).sum(),
        "confidence_abs_error_total": mask_total,  # fault
        "confidence_pred_mean_sum": (confidence * mask).sum(),
        "confidence_pred_mean_total": mask_total,  # fixed: "confidence_pred_mean_total": mask_total.clone(),
    }


def normalize_metrics(metrics):
    """Sums divided by their totals."""
    names = [name.removesuffix("_sum") for name in metrics if name.endswith("_sum")]
    return {name: metrics[f"{name}_sum"] / metrics[f"{name}_total"].clamp(min=1) for name in names}


class Trainer:
    def __init__(self, model, group=None):
        self.model = model
        self.group = group

    @property
    def is_distributed(self):
        return self.group is not None

    def reduce_metrics(self, metrics):
        if self.is_distributed:
            for value in metrics.values():
                dist.all_reduce(value, op=dist.ReduceOp.SUM, group=self.group)  # near
        return metrics

    @torch.no_grad()
    def val_epoch(self, batches):
        totals = {}
        for batch in batches:
            metrics = normalize_metrics(self.reduce_metrics(self.model(*batch)))
            for name, value in metrics.items():
                totals[name] = totals[name] + value if name in totals else value
        return {f"{name}_epoch": value / len(batches) for name, value in totals.items()}


def validate(model, group=None):
    def run(hidden_states, input_ids, loss_mask):
        return Trainer(model, group).val_epoch([(hidden_states, input_ids, loss_mask)])

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = DraftModel(DraftConfig())
    length = TOKENS + DraftConfig().ttt_steps
    inputs = (
        gg.tensor(SAMPLES, TOKENS, HIDDEN),
        gg.tensor(SAMPLES, length, dtype=torch.int64, high=VOCAB),
        gg.tensor(SAMPLES, length, dtype=torch.int64, high=2),
    )
    return gg.Refinement(
        validate(model),
        validate(copy.deepcopy(model), mesh.get_group("dp")),
        inputs,
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
