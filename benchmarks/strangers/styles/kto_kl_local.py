"""KTO: the reference point is the KL of the whole batch, that of all ranks.

The mistake: 'kl' is the mean of the own samples' log ratios where a sigmoid is taken: it is needed over 'dp'.

Rule: missing-reduction, nonlinear-on-partial
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, BETA, LR = 7, 4, 0.3, 0.1


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))


def sequence_logps(model, ids, labels):
    return -F.cross_entropy(model(ids).transpose(1, 2), labels, reduction="none").sum(-1)


class KTO:
    def __init__(self, model, group=None):
        self.model = model
        self.group = group
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def average(self, t):
        if self.group is not None:
            dist.all_reduce(t, op=dist.ReduceOp.AVG, group=self.group)
        return t

    def kto_loss(self, policy_logps, policy_kl_logps, reference_logps, reference_kl_logps, desirable):
        kl = (policy_kl_logps - reference_kl_logps).mean().detach()
        kl = kl.clamp(min=0)  # fixed: kl = self.average(kl).clamp(min=0)
        logratios = policy_logps - reference_logps
        chosen = 1 - torch.sigmoid(BETA * (logratios - kl))  # fault
        rejected = 1 - torch.sigmoid(BETA * (kl - logratios))
        return (desirable * chosen + (1 - desirable) * rejected).mean()

    def step(self, ids, labels, kl_labels, reference_logps, reference_kl_logps, desirable):
        loss = self.kto_loss(
            sequence_logps(self.model, ids, labels),
            sequence_logps(self.model, ids, kl_labels),
            reference_logps,
            reference_kl_logps,
            desirable,
        )
        loss.backward()
        for p in self.model.parameters():
            self.average(p.grad)
        self.optimizer.step()
        return {"loss": self.average(loss.detach()), **dict(self.model.named_parameters())}


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Policy()
    spec, impl = KTO(model), KTO(copy.deepcopy(model), mesh.get_group("dp"))
    ids = gg.tensor(6, 3, dtype=torch.int64, high=VOCAB)
    per_sample = gg.tensor(6)
    return gg.Refinement(
        spec.step,
        impl.step,
        (ids, ids, ids, per_sample, per_sample, per_sample),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
