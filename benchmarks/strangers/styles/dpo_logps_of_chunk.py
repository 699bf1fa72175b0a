"""DPO with the sequence split: a sequence's log-probability is the sum over all ranks' tokens.

The mistake: 'logps' is the sum over the own tokens: a partial sum over 'sp' where logsigmoid is taken of it.

Rule: nonlinear-on-partial, missing-reduction
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

VOCAB, DIM, BETA, LR = 7, 4, 0.2, 0.3


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.fc = nn.Linear(DIM, DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        h = self.wte(ids)
        return self.lm_head(h + F.gelu(self.fc(h)))


class SumOverSequence(torch.autograd.Function):
    """Every rank computes the same loss of the sum, so that the gradient comes back as it is."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def get_batch_logps(model, ids, labels, mask, group=None):
    per_token = -F.cross_entropy(model(ids).transpose(1, 2), labels, reduction="none")
    logps = (per_token * mask).sum(-1)  # fault
    # fixed, insert: if group is not None:
        # fixed, insert: logps = SumOverSequence.apply(logps, group)
    return logps  # fault


def dpo_loss(policy_chosen, policy_rejected, reference_chosen, reference_rejected):
    logits = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected)
    return -F.logsigmoid(BETA * logits).mean()


def train_step(model, group=None):
    def step(chosen, chosen_labels, rejected, rejected_labels, mask, reference_chosen, reference_rejected):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        policy_chosen = get_batch_logps(model, chosen, chosen_labels, mask, group)
        policy_rejected = get_batch_logps(model, rejected, rejected_labels, mask, group)
        loss = dpo_loss(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
        loss.backward()
        if group is not None:
            for p in model.parameters():
                dist.all_reduce(p.grad, group=group)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"sp": 2})
def check(mesh):
    model = LM()
    ids = gg.tensor(3, 4, dtype=torch.int64, high=VOCAB)
    split, whole = {"sp": Shard(1)}, {"sp": Replicate()}
    return gg.Refinement(
        train_step(model),
        train_step(copy.deepcopy(model), mesh.get_group("sp")),
        (ids, ids, ids, ids, gg.tensor(3, 4), gg.tensor(3), gg.tensor(3)),
        in_relations=(split, split, split, split, split, whole, whole),
        out_relations="replicate",
        grads=False,
    )
