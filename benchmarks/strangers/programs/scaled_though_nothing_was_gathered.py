"""A contrastive loss is multiplied by the number of devices because gradients are averaged over them, which is meant for documents gathered from all devices; it is multiplied where nothing is gathered as well, so that the step is too long. PyLate.

Source: https://github.com/lightonai/pylate/pull/156
Rule: wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DEVICES, BATCH = 3, 4
QUERY_LENGTH, DOCUMENT_LENGTH, HIDDEN, EMBEDDING = 5, 7, 8, 6


def get_rank(group):
    return 0 if group is None else dist.get_rank(group)


def get_world_size(group):
    return 1 if group is None else dist.get_world_size(group)


def all_gather_with_own_gradients(tensor, group):
    """The other devices' embeddings are constants."""
    gathered = [torch.empty_like(tensor) for _ in range(get_world_size(group))]
    dist.all_gather(gathered, tensor.detach().contiguous(), group=group)
    gathered[get_rank(group)] = tensor
    return torch.cat(gathered)


def colbert_scores(queries, documents):
    """For each token of a query the most similar one of a document."""
    scores = torch.einsum("ash,bth->abst", queries, documents)
    return scores.max(dim=-1).values.sum(dim=-1)


@dataclass(frozen=True)
class TrainingArguments:
    process_group: Any = None
    gradient_accumulation_steps: int = 1
    learning_rate: float = 0.3
    momentum: float = 0.9
    steps: int = 2
    temperature: float = 0.7
    gather_across_devices: bool = False


class ColBERT(nn.Module):
    """Token embeddings of unit length."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.Linear(HIDDEN, HIDDEN)
        self.dense = nn.Linear(HIDDEN, EMBEDDING, bias=False)

    def forward(self, features):
        return F.normalize(self.dense(torch.tanh(self.transformer(features))), dim=-1)


class Contrastive(nn.Module):
    """A query's document among those of the batch and the hard negatives."""

    def __init__(self, model, args):
        super().__init__()
        self.model = model
        self.temperature = args.temperature
        self.gather_across_devices = args.gather_across_devices
        self.group = args.process_group

    def forward(self, query, positive, negative):
        queries, *documents = [self.model(features) for features in (query, positive, negative)]
        labels = torch.arange(queries.shape[0])
        if self.gather_across_devices:
            documents = [all_gather_with_own_gradients(group, self.group) for group in documents]
            labels = labels + get_rank(self.group) * queries.shape[0]
        scores = torch.cat([colbert_scores(queries, group) for group in documents], dim=1)
        loss = F.cross_entropy(scores / self.temperature, labels)
        loss = loss * get_world_size(self.group)  # fixed: loss = loss * (get_world_size(self.group) if self.gather_across_devices else 1)
        return loss


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.loss = Contrastive(model, args)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)

    def average(self, tensor):
        """As a data-parallel wrapper does it."""
        if self.args.process_group is not None:
            dist.all_reduce(tensor, group=self.args.process_group)
            tensor.div_(get_world_size(self.args.process_group))  # near
        return tensor

    def training_step(self, batch):
        """The batches of one optimizer step, one after the other."""
        accumulated = self.args.gradient_accumulation_steps
        total = torch.zeros(())
        for micro_batch in zip(*(features.chunk(accumulated) for features in batch), strict=True):
            loss = self.loss(*micro_batch) / accumulated
            loss.backward()  # near
            total = total + loss.detach()
        for parameter in self.model.parameters():
            self.average(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.average(total)

    def train(self, query, positive, negative):
        log = [self.training_step((query, positive, negative)) for _ in range(self.args.steps)]
        weights = {name.replace(".", "_"): weight.detach() for name, weight in self.model.named_parameters()}
        return {"loss": torch.stack(log), **weights}


@gg.check(mesh={"dp": DEVICES})
def check(mesh):
    """One device that accumulates over the batches, and as many devices as there are batches."""
    model = ColBERT()
    one = TrainingArguments(gradient_accumulation_steps=DEVICES)
    many = TrainingArguments(process_group=mesh.get_group("dp"))
    samples = DEVICES * BATCH
    return gg.Refinement(
        Trainer(copy.deepcopy(model), one).train,
        Trainer(model, many).train,
        (
            gg.tensor(samples, QUERY_LENGTH, HIDDEN),
            gg.tensor(samples, DOCUMENT_LENGTH, HIDDEN),
            gg.tensor(samples, DOCUMENT_LENGTH, HIDDEN),
        ),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
