"""The loss of accumulated micro-batches is divided by the tokens of the own rank alone, as Transformers' Trainer did.

Source: https://github.com/huggingface/transformers/pull/34373
Rule: missing-reduction, wrong-relation, wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCABULARY, HIDDEN, PADDING = 7, 4, 0


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids):
        return self.lm_head(torch.tanh(self.embed(input_ids)))


def fixed_cross_entropy(logits, labels, num_items_in_batch):
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * (labels.flatten() != PADDING)).sum() / num_items_in_batch


class Trainer:
    """The part of a trainer that a step goes through."""

    def __init__(self, model, group=None, steps=1):
        self.model = model
        self.group = group
        self.steps = steps

    def compute_loss(self, batch, num_items_in_batch):
        input_ids, labels = batch
        return fixed_cross_entropy(self.model(input_ids), labels, num_items_in_batch)

    def reduce(self, tensor):
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor


class SequentialTrainer(Trainer):
    def training_step(self, input_ids, labels):
        loss = self.compute_loss((input_ids, labels), (labels != PADDING).sum())
        loss.backward()
        return loss.detach(), self.model.embed.weight.grad, self.model.lm_head.weight.grad


class DistributedTrainer(Trainer):
    def get_batch_samples(self, input_ids, labels):
        batches = list(zip(input_ids.chunk(self.steps), labels.chunk(self.steps)))
        num_items_in_batch = sum((batch[1] != PADDING).sum() for batch in batches)  # fault
        return batches, num_items_in_batch  # fixed: return batches, self.reduce(num_items_in_batch)

    def training_step(self, input_ids, labels):
        batches, num_items_in_batch = self.get_batch_samples(input_ids, labels)
        total = torch.zeros(())
        for batch in batches:
            loss = self.compute_loss(batch, num_items_in_batch)
            loss.backward()
            total = total + loss.detach()
        for parameter in self.model.parameters():
            self.reduce(parameter.grad)
        return self.reduce(total), self.model.embed.weight.grad, self.model.lm_head.weight.grad


@gg.check(mesh={"dp": 2})
def check(mesh):
    ids = gg.tensor(4, 3, dtype=torch.int64, high=VOCABULARY)
    model = CausalLM()
    spec = SequentialTrainer(model).training_step
    impl = DistributedTrainer(copy.deepcopy(model), mesh.get_group("dp"), 2).training_step
    return gg.Refinement(spec, impl, (ids, ids), in_relations={"dp": Shard(0)}, out_relations="replicate", grads=False)
