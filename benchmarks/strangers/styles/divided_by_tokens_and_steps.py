"""A trainer with gradient accumulation: losses are divided by the tokens of the whole batch over all micro-batches and ranks.

The mistake: the loss is divided by the tokens of all micro-batches and by the number of micro-batches: gradients are 1/2 of what is needed.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, LR, PAD = 7, 4, 0.1, 0


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.mlp = nn.Linear(DIM, DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, labels, num_items):
        logits = self.lm_head(torch.tanh(self.mlp(self.embed_tokens(ids))))
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * (labels.flatten() != PAD)).sum() / num_items


class TrainingArguments:
    gradient_accumulation_steps = 2
    learning_rate = LR
    average_tokens_across_devices = True


class Trainer:
    def __init__(self, model, args, group):
        self.model, self.args, self.group = model, args, group
        self.world = dist.get_world_size(group)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, eps=1e-2)
        self.model_accepts_loss_kwargs = True

    def get_batch_samples(self, ids, labels):
        steps = self.args.gradient_accumulation_steps
        batches = list(zip(ids.chunk(steps), labels.chunk(steps), strict=True))
        num_items = sum((part != PAD).sum() for _, part in batches)
        if self.args.average_tokens_across_devices:
            dist.all_reduce(num_items, group=self.group)
        return batches, num_items

    def training_step(self, batch, num_items):
        loss = self.model(*batch, num_items) * self.world
        if self.args.gradient_accumulation_steps > 1:  # fixed: if not self.model_accepts_loss_kwargs:
            loss = loss / self.args.gradient_accumulation_steps  # fault
        loss.backward()

    def train(self, ids, labels):
        batches, num_items = self.get_batch_samples(ids, labels)
        for batch in batches:
            self.training_step(batch, num_items)
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
        self.optimizer.step()
        return dict(self.model.named_parameters())


def sequential(model):
    def train(ids, labels):
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, eps=1e-2)
        model(ids, labels, (labels != PAD).sum()).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return train


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = CausalLM()
    trainer = Trainer(copy.deepcopy(model), TrainingArguments(), mesh.get_group("dp"))
    ids = gg.tensor(12, 3, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        sequential(model), trainer.train, (ids, ids), in_relations={"dp": Shard(0)}, out_relations="replicate", grads=False
    )
