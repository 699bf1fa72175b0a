"""verl's engine: token-mean loss over a batch that is split over dp, and whose sequences are split over cp.

The mistake: 'batch_num_tokens' is summed over 'dp' alone: the sequence is split over 'cp' as well, so that it is a partial sum over 'cp'.

Rule: wrong-group, missing-reduction
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

VOCAB, DIM, LR = 7, 4, 0.1


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.mlp = nn.Linear(DIM, DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        h = self.embed(ids)
        return self.head(h + torch.tanh(self.mlp(h)))


def agg_loss(loss_mat, loss_mask, batch_num_tokens, dp_size=1):
    return (loss_mat * loss_mask).sum() / batch_num_tokens * dp_size


def per_token_loss(model, ids, responses, advantages):
    log_prob = -F.cross_entropy(model(ids).transpose(1, 2), responses, reduction="none")
    return -log_prob * advantages


def update_actor(model, ids, responses, advantages, mask):
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    loss = agg_loss(per_token_loss(model, ids, responses, advantages), mask, mask.sum())
    loss.backward()
    optimizer.step()
    return dict(model.named_parameters())


class Engine:
    def __init__(self, model, mesh):
        self.model = model
        self.mesh = mesh
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def get_data_parallel_groups(self, with_context_parallel=False):
        names = ("dp", "cp") if with_context_parallel else ("dp",)
        return [self.mesh.get_group(name) for name in names]

    def get_data_parallel_size(self):
        return self.mesh.size()

    def train_batch(self, ids, responses, advantages, mask):
        batch_num_tokens = mask.sum()
        for group in self.get_data_parallel_groups():  # fixed: for group in self.get_data_parallel_groups(with_context_parallel=True):
            dist.all_reduce(batch_num_tokens, group=group)  # fault
        loss = agg_loss(
            per_token_loss(self.model, ids, responses, advantages), mask, batch_num_tokens, self.get_data_parallel_size()
        )
        loss.backward()
        for parameter in self.model.parameters():
            for group in self.get_data_parallel_groups(with_context_parallel=True):
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group)
        self.optimizer.step()
        return dict(self.model.named_parameters())


@gg.check(mesh={"dp": 2, "cp": 2})
def check(mesh):
    model = Actor()
    engine = Engine(copy.deepcopy(model), mesh)
    ids = gg.tensor(4, 6, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        lambda *a: update_actor(model, *a),
        engine.train_batch,
        (ids, ids, gg.tensor(4, 6), gg.tensor(4, 6)),
        in_relations={"dp": Shard(0), "cp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
