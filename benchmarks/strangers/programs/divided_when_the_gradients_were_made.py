"""The loss is a sum that is divided by all valid tokens; under a pipeline the schedule goes back by itself, and the division comes after it, for the log alone. torchtitan.

Source: https://github.com/pytorch/torchtitan/issues/2972
Rule: wrong-scale
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, SEQ_LEN, VOCAB, DIM, FFN, N_MICROBATCHES, LR = 20, 7, 11, 8, 9, 4, 0.1
LAYERS, IGNORE_INDEX = 6, -100


def cross_entropy_loss(pred, labels, global_valid_tokens=None):
    """The sum over tokens, or their part of the mean over all valid ones."""
    loss = F.cross_entropy(pred.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORE_INDEX)
    return loss if global_valid_tokens is None else loss / global_valid_tokens


class FeedForward(nn.Module):
    def __init__(self, w1, w2):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(w1.detach().clone()), nn.Parameter(w2.detach().clone())

    def forward(self, h):
        return h + F.silu(h @ self.w1.t()) @ self.w2.t()


class Decoder(nn.Module):
    """Some layers, with what stands before the first and behind the last one where it is theirs."""

    def __init__(self, tok_embeddings, w1, w2, output, layers=range(LAYERS)):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): FeedForward(w1[i], w2[i]) for i in layers})
        self.tok_embeddings = nn.Parameter(tok_embeddings.detach().clone()) if 0 in layers else None
        self.output = nn.Parameter(output.detach().clone()) if LAYERS - 1 in layers else None

    def forward(self, h):
        if self.tok_embeddings is not None:
            h = F.embedding(h, self.tok_embeddings)
        for layer in self.layers.values():
            h = layer(h)
        return h if self.output is None else h @ self.output.t()


class PipelineStage:
    def __init__(self, submodule, group):
        self.submod = submodule
        self.group = group
        self.stage_index, self.num_stages = dist.get_rank(group), dist.get_world_size(group)
        self.fwd_cache = []

    @property
    def is_first(self):
        return self.stage_index == 0

    @property
    def is_last(self):
        return self.stage_index == self.num_stages - 1

    def forward_one_chunk(self, chunk):
        if self.is_first:
            received = chunk
        else:
            received = torch.empty(*chunk.shape, DIM)
            dist.recv(received, self.stage_index - 1, group=self.group)
            received.requires_grad_()
        output = self.submod(received)
        if not self.is_last:
            dist.send(output.detach(), self.stage_index + 1, group=self.group)
        self.fwd_cache.append((received, output))
        return output

    def backward_one_chunk(self, loss=None):
        received, output = self.fwd_cache.pop(0)
        if loss is not None:
            loss.backward()
        else:
            grad = torch.empty_like(output)
            dist.recv(grad, self.stage_index + 1, group=self.group)
            output.backward(grad)
        if not self.is_first:
            dist.send(received.grad, self.stage_index - 1, group=self.group)


class ScheduleGPipe:
    """All forward passes, then all backward ones; gradients are not scaled by the number of micro-batches."""

    def __init__(self, stage, n_microbatches, loss_fn):
        self._stage, self._n_microbatches, self._loss_fn = stage, n_microbatches, loss_fn

    def step(self, inputs, target, losses, loss_kwargs=None):
        targets = target.chunk(self._n_microbatches)
        for chunk, labels in zip(inputs.chunk(self._n_microbatches), targets, strict=True):
            output = self._stage.forward_one_chunk(chunk)
            if self._stage.is_last:
                losses.append(self._loss_fn(output, labels, **(loss_kwargs or {})))
        for i in range(self._n_microbatches):
            self._stage.backward_one_chunk(losses[i] if self._stage.is_last else None)  # near


class Trainer:
    def __init__(self, model, pp_group=None):
        self.model = model
        self.pp_group = pp_group
        self.loss_fn = cross_entropy_loss
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        if pp_group is not None:
            self.stage = PipelineStage(model, pp_group)
            self.pp_schedule = ScheduleGPipe(self.stage, N_MICROBATCHES, self.loss_fn)

    def forward_backward_step(self, inputs, labels, global_valid_tokens):
        if self.pp_group is not None:
            losses = []
            self.pp_schedule.step(inputs, labels, losses)  # fixed: self.pp_schedule.step(inputs, labels, losses, {"global_valid_tokens": global_valid_tokens})
            if not self.stage.is_last:
                return torch.zeros(())
            return torch.stack(losses).sum().detach() / global_valid_tokens  # fixed: return torch.stack(losses).sum().detach()
        loss = self.loss_fn(self.model(inputs), labels, global_valid_tokens)
        loss.backward()
        return loss.detach()

    def train_step(self, inputs, labels):
        global_valid_tokens = (labels != IGNORE_INDEX).sum()
        self.optimizer.zero_grad()
        loss = self.forward_backward_step(inputs, labels, global_valid_tokens)
        self.optimizer.step()
        if self.pp_group is not None:
            dist.all_reduce(loss, group=self.pp_group)
        return loss


def collect(model, shapes, pp_group):
    """What the stages have, on all ranks."""
    own = dict(model.named_parameters())
    result = {}
    for name, (shape, owner) in shapes.items():
        tensor = own[name].detach().clone() if name in own else torch.empty(shape)
        if pp_group is not None:
            dist.broadcast(tensor, owner, group=pp_group)
        result[name] = tensor
    return result


def train(pp_group=None):
    def step(inputs, labels, tok_embeddings, w1, w2, output):
        per_stage = LAYERS if pp_group is None else LAYERS // dist.get_world_size(pp_group)
        first = 0 if pp_group is None else dist.get_rank(pp_group) * per_stage
        model = Decoder(tok_embeddings, w1, w2, output, range(first, first + per_stage))
        loss = Trainer(model, pp_group).train_step(inputs, labels)
        shapes = {"tok_embeddings": (tok_embeddings.shape, 0), "output": (output.shape, (LAYERS - 1) // per_stage)}
        for i in range(LAYERS):
            shapes[f"layers.{i}.w1"] = (w1.shape[1:], i // per_stage)
            shapes[f"layers.{i}.w2"] = (w2.shape[1:], i // per_stage)
        return {"loss": loss, **collect(model, shapes, pp_group)}

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    tokens = gg.tensor(BATCH, SEQ_LEN, dtype=torch.int64, high=VOCAB)
    labels = gg.tensor(BATCH, SEQ_LEN, dtype=torch.int64, low=IGNORE_INDEX, high=VOCAB)
    layers = (gg.tensor(LAYERS, FFN, DIM), gg.tensor(LAYERS, DIM, FFN))
    inputs = (tokens, labels, gg.tensor(VOCAB, DIM), *layers, gg.tensor(VOCAB, DIM))
    return gg.Refinement(train(), train(mesh.get_group("pp")), inputs, out_relations="replicate", grads=False)
