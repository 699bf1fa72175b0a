"""min-p filtering of probabilities whose vocabulary is split over tp.

The mistake: 'top' is the largest probability of the own part of the vocabulary: the largest of all ranks is needed.

Rule: missing-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, HIDDEN, MIN_P = 8, 5, 0.3


def sequential(hidden, weight):
    probs = F.linear(hidden, weight).softmax(-1)
    top = probs.max(-1, keepdim=True).values
    kept = torch.where(probs >= MIN_P * top, probs, torch.zeros_like(probs))
    return kept / kept.sum(-1, keepdim=True)


class VocabParallelSampler:
    def __init__(self, group):
        self.group = group

    def reduce(self, t, op=dist.ReduceOp.SUM):
        dist.all_reduce(t, op=op, group=self.group)
        return t

    def probabilities(self, logits):
        largest = self.reduce(logits.max(-1, keepdim=True).values, dist.ReduceOp.MAX)
        e = (logits - largest).exp()
        return e / self.reduce(e.sum(-1, keepdim=True))

    def min_p(self, probs):
        top = probs.max(-1, keepdim=True).values  # fixed: top = self.reduce(probs.max(-1, keepdim=True).values, dist.ReduceOp.MAX)
        kept = torch.where(probs >= MIN_P * top, probs, torch.zeros_like(probs))  # fault
        return kept / self.reduce(kept.sum(-1, keepdim=True))

    def __call__(self, hidden, weight):
        return self.min_p(self.probabilities(F.linear(hidden, weight)))


@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(
        sequential,
        VocabParallelSampler(mesh.get_group("tp")),
        (gg.tensor(3, HIDDEN), gg.tensor(VOCAB, HIDDEN)),
        in_relations=({}, {"tp": Shard(0)}),
        out_relations={"tp": Shard(1)},
        grads=False,
    )
