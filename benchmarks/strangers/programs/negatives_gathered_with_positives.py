"""In-batch negatives of all ranks: each rank's positives and negatives are gathered as one, the labels count as if all positives came first. Sentence Transformers.

Source: https://github.com/huggingface/sentence-transformers/pull/3453
Rule: wrong-shard, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, EMBEDDING, SCALE = 3, 4, 5.0


class SentenceTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(FEATURES, EMBEDDING)
        self.pooler = nn.Linear(EMBEDDING, EMBEDDING, bias=False)

    def forward(self, features):
        return self.pooler(torch.tanh(self.dense(features)))


class GatherLayer(torch.autograd.Function):
    """All ranks' rows, one rank after the other; the gradient of the own rows is the sum over the ranks."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group, ctx.rows = group, tensor.shape[0]
        gathered = torch.empty(dist.get_world_size(group) * tensor.shape[0], *tensor.shape[1:])
        dist.all_gather_into_tensor(gathered, tensor.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        start = dist.get_rank(ctx.group) * ctx.rows
        return grad[start : start + ctx.rows], None


class MultipleNegativesRankingLoss:
    """An anchor is to find its positive among all positives and negatives; with a group, among those of all ranks."""

    def __init__(self, model, scale=SCALE, gather_group=None):
        self.model = model
        self.scale = scale
        self.gather_group = gather_group

    def all_gather_with_grad(self, embeddings):
        return embeddings if self.gather_group is None else GatherLayer.apply(embeddings, self.gather_group)

    def offset(self, batch_size):
        return 0 if self.gather_group is None else dist.get_rank(self.gather_group) * batch_size

    def __call__(self, sentence_features):
        anchors, *candidates = [self.model(features) for features in sentence_features]
        candidates = torch.cat(candidates)  # fixed: candidates = [self.all_gather_with_grad(column) for column in candidates]
        candidates = self.all_gather_with_grad(candidates)  # fixed: candidates = torch.cat(candidates)
        batch_size = anchors.shape[0]
        offset = self.offset(batch_size)
        range_labels = torch.arange(offset, offset + batch_size)  # near
        scores = anchors @ candidates.t() * self.scale
        return F.cross_entropy(scores, range_labels)  # fault


class SentenceTransformerTrainer:
    """Two data sets in turn: pairs, which have no negatives, and rows with two negatives each."""

    def __init__(self, model, loss, ddp_group=None):
        self.model = model
        self.loss = loss
        self.ddp_group = ddp_group

    def mean(self, tensor):
        tensor = tensor.detach().clone()
        if self.ddp_group is not None:
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=self.ddp_group)
        return tensor

    def training_step(self, columns):
        self.model.zero_grad()
        loss = self.loss(columns)
        loss.backward()
        grads = {name: self.mean(parameter.grad) for name, parameter in self.model.named_parameters()}
        return self.mean(loss), grads

    def train(self, question, answer, query, positive, hard_negative, easy_negative):
        return {
            "pairs": self.training_step([question, answer]),
            "negatives": self.training_step([query, positive, hard_negative, easy_negative]),
        }


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = SentenceTransformer()
    local, group = copy.deepcopy(model), mesh.get_group("dp")
    one = SentenceTransformerTrainer(model, MultipleNegativesRankingLoss(model))
    all_ranks = SentenceTransformerTrainer(local, MultipleNegativesRankingLoss(local, gather_group=group), group)
    pairs, rows = gg.tensor(9, FEATURES), gg.tensor(6, FEATURES)
    inputs = (pairs, pairs, rows, rows, rows, rows)
    return gg.Refinement(
        one.train, all_ranks.train, inputs, in_relations={"dp": Shard(0)}, out_relations="replicate", grads=False
    )
