"""GRPO: rewards of all ranks are gathered, normalised within their groups, and every rank takes its own back.

The mistake: 'process_slice' starts at rank * number of prompts: rank 1 reads advantages 2.., needs 6.

Rule: wrong-shard
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, DIM, GENERATIONS, LR = 7, 4, 3, 0.1
PROMPTS = 4


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))


def group_advantages(rewards):
    grouped = rewards.view(-1, GENERATIONS)
    mean = grouped.mean(dim=1, keepdim=True)
    std = (grouped - mean).square().mean(dim=1, keepdim=True).sqrt()
    return ((grouped - mean) / (std + 1e-4)).flatten()


def policy_loss(model, ids, completions, advantages):
    logps = -F.cross_entropy(model(ids).transpose(1, 2), completions, reduction="none")
    return -(logps * advantages[:, None]).mean()


def spec_step(model):
    def step(ids, completions, rewards):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        policy_loss(model, ids, completions, group_advantages(rewards)).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


class GRPOTrainer:
    def __init__(self, model, group):
        self.model, self.group = model, group
        self.num_processes, self.process_index = dist.get_world_size(group), dist.get_rank(group)
        self.num_prompts = PROMPTS // self.num_processes
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def gather(self, t):
        out = torch.empty(self.num_processes * len(t))
        dist.all_gather_into_tensor(out, t.contiguous(), group=self.group)
        return out

    def score(self, rewards):
        advantages = group_advantages(self.gather(rewards))
        process_slice = slice(  # fault
            self.process_index * self.num_prompts,  # fixed: self.process_index * len(rewards),
            self.process_index * self.num_prompts + len(rewards),  # fixed: self.process_index * len(rewards) + len(rewards),
        )
        return advantages[process_slice]  # fault

    def step(self, ids, completions, rewards):
        policy_loss(self.model, ids, completions, self.score(rewards)).backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
        self.optimizer.step()
        return dict(self.model.named_parameters())


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Policy()
    ids = gg.tensor(PROMPTS * GENERATIONS, 2, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        spec_step(model),
        GRPOTrainer(copy.deepcopy(model), mesh.get_group("dp")).step,
        (ids, ids, gg.tensor(PROMPTS * GENERATIONS)),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
