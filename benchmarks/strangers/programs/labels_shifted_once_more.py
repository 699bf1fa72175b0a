"""Sequence parallelism shifts the labels before it cuts the sequence; a loss that is asked for by name shifts them again, in each part. ms-swift.

Source: https://github.com/modelscope/ms-swift/pull/10185
Rule: wrong-shard, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SEQUENCE, VOCABULARY, HIDDEN, DIM, IGNORE_INDEX = 12, 11, 6, 5, -100


class _GatherSequence(torch.autograd.Function):
    """Keys and values of the whole sequence; their gradients are summed and scattered."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


def roll_labels(labels):
    """What comes after each token; after the last one comes nothing."""
    return F.pad(labels, (0, 1), value=IGNORE_INDEX)[1:]


class SequenceParallel:
    def __init__(self, group):
        self.group = group
        self.world_size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)

    def split(self, tensor):
        return tensor.chunk(self.world_size)[self.rank]

    def gather(self, tensor):
        return _GatherSequence.apply(tensor, self.group)

    def prepare_inputs(self, inputs):
        inputs = {**inputs, "labels": roll_labels(inputs["labels"])}  # near
        return {name: self.split(tensor) for name, tensor in inputs.items()}


@dataclass
class ModelOutput:
    logits: Any


class CausalLM(nn.Module):
    """One layer of attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(HIDDEN, DIM, bias=False) for _ in range(3))
        self.lm_head = nn.Linear(DIM, VOCABULARY)
        self.sequence_parallel = None

    def forward(self, input_ids, position_ids):
        hidden = self.embed(input_ids)
        q, k, v = self.q_proj(hidden), self.k_proj(hidden), self.v_proj(hidden)
        if self.sequence_parallel is not None:
            k, v = self.sequence_parallel.gather(k), self.sequence_parallel.gather(v)
        later = torch.arange(k.shape[0]) > position_ids[:, None]
        scores = (q @ k.t() * DIM**-0.5).masked_fill(later, float("-inf"))
        return ModelOutput(self.lm_head(scores.softmax(-1) @ v))


def cross_entropy(logits, labels):
    return F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="none")


def per_token_loss_func(outputs, labels):
    return cross_entropy(outputs.logits, roll_labels(labels))


def per_token_loss_func_sp(outputs, labels):
    return cross_entropy(outputs.logits, labels)


class CrossEntropyLoss:
    """``--loss_type cross_entropy``"""

    def __init__(self, trainer):
        self.trainer = trainer

    def __call__(self, outputs, labels, num_items_in_batch):
        token_loss = per_token_loss_func(outputs, labels)  # fixed: token_loss = self.trainer.per_token_loss(outputs, labels)
        return token_loss.sum() / num_items_in_batch


loss_map = {"cross_entropy": CrossEntropyLoss}


class Seq2SeqTrainer:
    def __init__(self, model, loss_type=None, sequence_parallel=None):
        self.model = model
        self.sequence_parallel = model.sequence_parallel = sequence_parallel
        self.compute_loss_func = loss_map[loss_type](self) if loss_type else None

    def per_token_loss(self, outputs, labels):
        func = per_token_loss_func if self.sequence_parallel is None else per_token_loss_func_sp
        return func(outputs, labels)

    def compute_loss(self, inputs, num_items_in_batch):
        if self.sequence_parallel is not None:
            inputs = self.sequence_parallel.prepare_inputs(inputs)
        labels = inputs.pop("labels")
        outputs = self.model(**inputs)
        if self.compute_loss_func is not None:
            return self.compute_loss_func(outputs, labels, num_items_in_batch)
        return self.per_token_loss(outputs, labels).sum() / num_items_in_batch

    def training_step(self, input_ids, labels):
        inputs = {"input_ids": input_ids, "position_ids": torch.arange(SEQUENCE), "labels": labels}
        loss = self.compute_loss(inputs, SEQUENCE - 1)
        loss.backward()
        results = {"loss": loss.detach(), **{name: p.grad for name, p in self.model.named_parameters()}}
        if self.sequence_parallel is not None:
            for tensor in results.values():
                dist.all_reduce(tensor, group=self.sequence_parallel.group)
        return results


@gg.check(mesh={"sp": 3})
def check(mesh):
    model = CausalLM()
    impl = Seq2SeqTrainer(copy.deepcopy(model), "cross_entropy", SequenceParallel(mesh.get_group("sp")))
    ids = gg.tensor(SEQUENCE, dtype=torch.int64, high=VOCABULARY)
    return gg.Refinement(
        Seq2SeqTrainer(model).training_step, impl.training_step, (ids, ids), out_relations="replicate", grads=False
    )
