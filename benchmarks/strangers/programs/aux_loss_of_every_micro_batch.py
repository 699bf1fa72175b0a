"""The model's loss is divided by the tokens of the whole batch; its balancing loss enters each micro-batch's backward pass undivided. NeMo Automodel's recipe.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/3359
Rule: wrong-scale
"""

import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, VOCABULARY, EXPERTS, MICRO_BATCHES = 3, 5, 2, 3
ROUTER_AUX_LOSS_COEF = 0.07


@dataclass
class Output:
    logits: torch.Tensor
    aux_loss: torch.Tensor


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.Parameter(torch.randn(EXPERTS, HIDDEN, HIDDEN))
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        scores = self.gate(x).softmax(-1)
        x = torch.tanh(torch.einsum("te,th,ehd->td", scores, x, self.experts))
        z_loss = self.gate(self.embed(input_ids)).logsumexp(-1).square().mean()
        return Output(self.lm_head(x), ROUTER_AUX_LOSS_COEF * z_loss)


def masked_cross_entropy(logits, labels, num_label_tokens):
    return F.cross_entropy(logits, labels, reduction="sum") / num_label_tokens


def gradients(model):
    return tuple(parameter.grad for parameter in model.parameters())


def spec_step(model):
    def step(input_ids, labels):
        output = model(input_ids)
        loss = masked_cross_entropy(output.logits, labels, labels.numel()) + output.aux_loss
        loss.backward()
        return gradients(model)

    return step


class TrainFinetuneRecipe:
    def __init__(self, model, dp_group):
        self.model = model
        self.dp_group = dp_group
        self.dp_group_size = dist.get_world_size(dp_group)

    def forward_backward_step(self, batch, num_label_tokens, num_batches):
        input_ids, labels = batch
        output = self.model(input_ids)
        local_loss = masked_cross_entropy(output.logits, labels, num_label_tokens)
        # gradients are averaged over the ranks, and the tokens counted over all of them
        loss = local_loss * self.dp_group_size + output.aux_loss  # fixed: loss = local_loss * self.dp_group_size + output.aux_loss / num_batches
        loss.backward()

    def run_train_optim_step(self, input_ids, labels):
        batches = list(zip(input_ids.chunk(MICRO_BATCHES), labels.chunk(MICRO_BATCHES), strict=True))
        num_label_tokens = torch.tensor(sum(batch[1].numel() for batch in batches))
        dist.all_reduce(num_label_tokens, group=self.dp_group)
        for batch in batches:
            self.forward_backward_step(batch, num_label_tokens, len(batches))
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        return gradients(self.model)


@gg.check(mesh={"dp": 2})
def check(mesh):
    ids = gg.tensor(12, dtype=torch.int64, high=VOCABULARY)
    model = CausalLM()
    recipe = TrainFinetuneRecipe(copy.deepcopy(model), mesh.get_group("dp"))
    return gg.Refinement(
        spec_step(model), recipe.run_train_optim_step, (ids, ids), in_relations={"dp": Shard(0)}, out_relations="replicate", grads=False
    )
