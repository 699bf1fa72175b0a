"""Context parallelism is on for the training step only: when it evaluates, every rank has the whole sequence, and the loss is scaled as if each had a part. Transformers' Trainer.

Source: https://github.com/huggingface/transformers/pull/48167
Rule: wrong-scale, wrong-relation
"""

import contextlib
import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, SEQUENCE, VOCAB, HIDDEN, HEAD_DIM, EVAL_STEPS, LR = 2, 12, 11, 6, 7, 5, 0.3
IGNORE_INDEX = -100


class _AllGather(torch.autograd.Function):
    """Along the sequence; its gradient is summed and scattered."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        parts = [part.contiguous() for part in grad.chunk(dist.get_world_size(ctx.group), dim=1)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=ctx.group)
        return out, None


class Accelerator:
    """What the trainer knows of its processes."""

    def __init__(self, cp_group=None):
        self.cp_group = cp_group
        self.num_processes = 1 if cp_group is None else dist.get_world_size(cp_group)
        self.non_data_parallel_size = self.num_processes
        self.in_context = False

    @contextlib.contextmanager
    def maybe_context_parallel(self, buffers):
        """Inside, each buffer holds this rank's part of the sequence."""
        if self.cp_group is None:
            yield
            return
        whole, rank = dict(buffers), dist.get_rank(self.cp_group)
        buffers.update({name: b.chunk(self.num_processes, dim=1)[rank] for name, b in whole.items()})
        self.in_context = True
        yield
        self.in_context = False
        buffers.update(whole)

    def gather(self, tensor):
        if self.cp_group is None:
            return tensor.reshape(1)
        out = torch.empty(self.num_processes, dtype=tensor.dtype)
        dist.all_gather_into_tensor(out, tensor.reshape(1), group=self.cp_group)
        return out

    def reduce_gradients(self, model):
        """As the sharded modules do, to the mean."""
        if self.cp_group is not None:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, group=self.cp_group)
                parameter.grad /= self.num_processes


@dataclass
class CausalLMOutput:
    loss: Any
    logits: Any


class LlamaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(HIDDEN, HEAD_DIM, bias=False) for _ in range(3))
        self.lm_head = nn.Linear(HEAD_DIM, VOCAB, bias=False)

    def forward(self, accelerator, input_ids, position_ids, shift_labels, num_items_in_batch):
        hidden = self.embed_tokens(input_ids)
        query, key, value = self.q_proj(hidden), self.k_proj(hidden), self.v_proj(hidden)
        if accelerator.in_context:
            key, value = _AllGather.apply(key, accelerator.cp_group), _AllGather.apply(value, accelerator.cp_group)
        later = torch.arange(key.shape[1]) > position_ids[..., None]
        scores = (query @ key.transpose(1, 2) * HEAD_DIM**-0.5).masked_fill(later, float("-inf"))
        logits = self.lm_head(scores.softmax(-1) @ value)
        total = F.cross_entropy(logits.flatten(0, 1), shift_labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
        return CausalLMOutput(total / num_items_in_batch, logits)


class Trainer:
    def __init__(self, model, accelerator):
        self.model = model
        self.accelerator = accelerator
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def _get_num_items_in_batch(self, inputs):
        """Of all processes; those that have the same samples count once."""
        num_items = (inputs["shift_labels"] != IGNORE_INDEX).sum()
        return self.accelerator.gather(num_items).sum() // self.accelerator.non_data_parallel_size

    def compute_loss(self, inputs, num_items_in_batch):
        outputs = self.model(self.accelerator, **inputs, num_items_in_batch=num_items_in_batch)
        return outputs.loss * self.accelerator.num_processes  # near

    def training_step(self, inputs):
        num_items_in_batch = self._get_num_items_in_batch(inputs)
        with self.accelerator.maybe_context_parallel(inputs):
            loss = self.compute_loss(inputs, num_items_in_batch)
            loss.backward()
        self.accelerator.reduce_gradients(self.model)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.accelerator.gather(loss.detach()).mean()

    def prediction_step(self, inputs):
        num_items_in_batch = self._get_num_items_in_batch(inputs)
        with torch.no_grad():  # fixed: with torch.no_grad(), self.accelerator.maybe_context_parallel(inputs):
            loss = self.compute_loss(inputs, num_items_in_batch)
        return loss.detach().mean()

    def evaluate(self, batches):
        losses = [self.accelerator.gather(self.prediction_step(inputs)).mean() for inputs in batches]
        return torch.stack(losses).mean()


def collate(input_ids, shift_labels):
    positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE)
    return {"input_ids": input_ids, "position_ids": positions, "shift_labels": shift_labels}


def run(trainer):
    def train_then_evaluate(ids, labels, eval_ids, eval_labels):
        train_loss = trainer.training_step(collate(ids, labels))
        batches = [collate(*batch) for batch in zip(eval_ids.unbind(), eval_labels.unbind(), strict=True)]
        return {"train_loss": train_loss, "eval_loss": trainer.evaluate(batches)}

    return train_then_evaluate


@gg.check(mesh={"cp": 3})
def check(mesh):
    model = LlamaForCausalLM()
    impl = Trainer(copy.deepcopy(model), Accelerator(mesh.get_group("cp")))
    batch, eval_batches = (BATCH, SEQUENCE), (EVAL_STEPS, BATCH, SEQUENCE)
    ids, eval_ids = (gg.tensor(*shape, dtype=torch.int64, high=VOCAB) for shape in (batch, eval_batches))
    labels, eval_labels = (
        gg.tensor(*shape, dtype=torch.int64, low=IGNORE_INDEX, high=VOCAB) for shape in (batch, eval_batches)
    )
    inputs = (ids, labels, eval_ids, eval_labels)
    return gg.Refinement(run(Trainer(model, Accelerator())), run(impl), inputs, out_relations="replicate", grads=False)
