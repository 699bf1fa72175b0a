"""PPO: the policy's loss, an entropy bonus and a KL penalty, as means over the tokens of all ranks.

The mistake: the entropy is averaged over each rank's own tokens ('mask.sum()'), the policy loss over those of all ranks.

Rule: wrong-scale, missing-reduction
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, LR = 6, 4, 0.1
ENTROPY_COEFF, KL_COEFF = 0.02, 0.1


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()  # fault


def agg_loss(values, mask, num_tokens, dp_size):
    return (values * mask).sum() / num_tokens * dp_size


def low_var_kl(logps, reference):
    delta = reference - logps
    return delta.exp() - delta - 1


def ppo_loss(model, batch, num_tokens, dp_size=1):
    ids, actions, old_logps, reference, advantages, mask = batch
    logits = model(ids)
    logps = -F.cross_entropy(logits.transpose(1, 2), actions, reduction="none")
    ratio = (logps - old_logps).exp()
    pg_loss = agg_loss(-ratio * advantages, mask, num_tokens, dp_size)
    log_softmax = logits.log_softmax(-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    entropy_loss = masked_mean(entropy, mask)  # fixed: entropy_loss = agg_loss(entropy, mask, num_tokens, dp_size)
    kl_loss = agg_loss(low_var_kl(logps, reference), mask, num_tokens, dp_size)
    return pg_loss - ENTROPY_COEFF * entropy_loss + KL_COEFF * kl_loss


def step_of(model, group=None):
    def step(*batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        num_tokens = batch[-1].sum()
        if group is None:
            ppo_loss(model, batch, num_tokens).backward()
        else:
            dist.all_reduce(num_tokens, group=group)
            ppo_loss(model, batch, num_tokens, dist.get_world_size(group)).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Policy()
    ids, real = gg.tensor(4, 3, dtype=torch.int64, high=VOCAB), gg.tensor(4, 3)
    return gg.Refinement(
        step_of(model),
        step_of(copy.deepcopy(model), mesh.get_group("dp")),
        (ids, ids, real, real, real, real),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
