"""Context parallelism deals chunks from both ends, then the loss shifts the labels: each chunk's last token is to predict another chunk's first. BioNeMo's recipes.

Source: https://github.com/NVIDIA-BioNeMo/bionemo-recipes/pull/1449
Rule: wrong-shard, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SEQUENCE, HIDDEN, VOCABULARY, IGNORE_INDEX = 12, 3, 5, -100


class LlamaModel(nn.Module):
    """An embedding, one layer for each token, and a head."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layer = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids, labels=None, shift_labels=None, num_items_in_batch=1):
        hidden_states = self.embed_tokens(input_ids)
        logits = self.lm_head(hidden_states + torch.tanh(self.layer(hidden_states)))
        return causal_lm_loss(logits, labels, shift_labels, num_items_in_batch)


def causal_lm_loss(logits, labels, shift_labels, num_items_in_batch):
    """Transformers' loss: labels are shifted here unless they have been."""
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=IGNORE_INDEX)[1:]  # near
    loss = F.cross_entropy(logits, shift_labels, ignore_index=IGNORE_INDEX, reduction="sum")
    return loss / num_items_in_batch


def split_batch_by_cp_rank(tensor, cp_rank, cp_world_size):
    """The rank's chunk from the front, and its chunk from the back."""
    chunks = tensor.chunk(2 * cp_world_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_world_size - 1 - cp_rank]])


class DataCollatorForContextParallel:
    def __init__(self, cp_rank, cp_world_size):
        self.cp_rank = cp_rank
        self.cp_world_size = cp_world_size

    def __call__(self, input_ids, labels):
        batch = {"input_ids": input_ids, "labels": labels}  # fixed: batch = {"input_ids": input_ids, "shift_labels": F.pad(labels, (0, 1), value=IGNORE_INDEX)[1:]}
        return {
            name: split_batch_by_cp_rank(tensor, self.cp_rank, self.cp_world_size)  # fault
            for name, tensor in batch.items()
        }


def gradients(model, loss):
    return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def spec_step(model):
    def step(input_ids, labels):
        loss = model(input_ids, labels=labels, num_items_in_batch=SEQUENCE - 1)
        loss.backward()
        return gradients(model, loss)

    return step


def train_step(model, group):
    collator = DataCollatorForContextParallel(dist.get_rank(group), dist.get_world_size(group))

    def step(input_ids, labels):
        batch = collator(input_ids, labels)
        loss = model(**batch, num_items_in_batch=SEQUENCE - 1)
        loss.backward()
        results = gradients(model, loss)
        for result in results.values():
            dist.all_reduce(result, group=group)
        return results

    return step


@gg.check(mesh={"cp": 2})
def check(mesh):
    model = LlamaModel()
    ids = gg.tensor(SEQUENCE, dtype=torch.int64, high=VOCABULARY)
    impl = train_step(copy.deepcopy(model), mesh.get_group("cp"))
    return gg.Refinement(spec_step(model), impl, (ids, ids), out_relations="replicate", grads=False)
