"""Label smoothing averages the log-probabilities of the own part of the vocabulary, in the manner of Megatron-LM's vocab_parallel_cross_entropy.

Source: https://github.com/NVIDIA/Megatron-LM/issues/737
Rule: missing-reduction, wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, VOCABULARY, SMOOTHING = 5, 6, 0.1


def spec(logits, target):
    return F.cross_entropy(logits, target, label_smoothing=SMOOTHING, reduction="none")


class VocabUtility:
    @staticmethod
    def vocab_range(size, rank):
        return rank * size, (rank + 1) * size


class VocabParallelCrossEntropy:
    def __init__(self, group):
        self.group = group

    def max_of(self, logits):
        logits_max = logits.max(dim=-1).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=self.group)
        return logits_max

    def predicted_of(self, logits, target):
        start, end = VocabUtility.vocab_range(logits.shape[-1], dist.get_rank(self.group))
        target_mask = (target < start) | (target >= end)
        masked_target = (target - start).masked_fill(target_mask, 0)
        predicted = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted, group=self.group)
        return predicted

    def __call__(self, vocab_parallel_logits, target, label_smoothing):
        logits = vocab_parallel_logits - self.max_of(vocab_parallel_logits).unsqueeze(-1)
        predicted_logits = self.predicted_of(logits, target)
        sum_exp_logits = logits.exp().sum(dim=-1)
        dist.all_reduce(sum_exp_logits, group=self.group)
        log_sum = sum_exp_logits.log()
        loss = log_sum - predicted_logits
        if label_smoothing > 0:
            log_probs = logits - log_sum.unsqueeze(-1)
            mean_log_probs = log_probs.mean(dim=-1)  # fixed: mean_log_probs = log_probs.sum(dim=-1) / (log_probs.shape[-1] * dist.get_world_size(self.group))
            # fixed, insert: dist.all_reduce(mean_log_probs, group=self.group)
            loss = (1.0 - label_smoothing) * loss - label_smoothing * mean_log_probs  # near
        return loss


@gg.check(mesh={"tp": 2})
def check(mesh):
    loss = VocabParallelCrossEntropy(mesh.get_group("tp"))
    inputs = (gg.tensor(TOKENS, VOCABULARY), gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY))
    return gg.Refinement(
        spec,
        lambda logits, target: loss(logits, target, SMOOTHING),
        inputs,
        in_relations=({"tp": Shard(1)}, {}),
        out_relations="replicate",
        grads=False,
    )
