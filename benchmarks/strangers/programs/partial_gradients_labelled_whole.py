"""The loss is taken chunk by chunk, and the chunks' gradients are collected in a buffer with the placement of the activations, though they are each rank's summands. torchtitan's ChunkedCELoss under tensor parallelism.

Source: https://github.com/pytorch/torchtitan/pull/3412
Rule: gradient-not-reduced, missing-reduction
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard

import graphguard as gg

BATCH, SEQUENCE, VOCAB, DIM, INNER, NUM_CHUNKS, LR = 5, 12, 14, 6, 9, 4, 0.25
NAMES = ("tok_embeddings", "w1", "w2", "output")


@dataclass
class DTensor:
    """A local tensor, and what it is of the global one."""

    _local_tensor: torch.Tensor
    device_mesh: Any
    placements: tuple

    def to_local(self):
        return self._local_tensor

    def redistribute(self, placements):
        local = self._local_tensor
        if isinstance(self.placements[0], Partial) and isinstance(placements[0], Replicate):
            local = local.clone()
            dist.all_reduce(local, group=self.device_mesh)  # near
        return DTensor(local, self.device_mesh, placements)


class VocabParallelCrossEntropy(torch.autograd.Function):
    """The sum of the losses, of logits that are cut by the vocabulary."""

    @staticmethod
    def forward(ctx, logits, labels, group):
        size = logits.shape[-1]
        start = dist.get_rank(group) * size
        largest = logits.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        exp = (logits - largest[..., None]).exp()
        total = exp.sum(-1)
        dist.all_reduce(total, group=group)
        own = (labels >= start) & (labels < start + size)
        index = (labels - start).clamp(0, size - 1)
        predicted = (logits.gather(-1, index[..., None]).squeeze(-1) - largest) * own
        dist.all_reduce(predicted, group=group)
        ctx.save_for_backward(exp / total[..., None], index, own)
        return (total.log() - predicted).sum()

    @staticmethod
    def backward(ctx, grad):
        softmax, index, own = ctx.saved_tensors
        one_hot = F.one_hot(index, softmax.shape[-1]) * own[..., None]
        return grad * (softmax - one_hot), None, None


class GradAccumulator:
    """Chunk gradients in a buffer that is allocated once."""

    def __init__(self, reference, num_chunks, seq_dim=1):
        self.seq_dim = seq_dim
        self.num_chunks = num_chunks
        self.index = 0
        self.device_mesh = reference.device_mesh
        self.placements = reference.placements  # fault
        self.buffer = torch.zeros(reference.to_local().shape)

    def add(self, chunk_grad):
        size = self.buffer.shape[self.seq_dim] // self.num_chunks
        self.buffer.narrow(self.seq_dim, self.index * size, size).copy_(chunk_grad.to_local())  # fault
        # fixed, insert: self.placements = chunk_grad.placements
        self.index += 1

    def result(self):
        return DTensor(self.buffer, self.device_mesh, self.placements)  # fault


class Output(nn.Module):
    """The head: whole activations, a weight that is cut by rows."""

    def __init__(self, weight, group):
        super().__init__()
        self.weight = weight
        self.group = group

    def forward(self, hidden):
        return F.linear(hidden, self.weight)

    def input_grad_placements(self):
        """The backward product contracts over the vocabulary."""
        return (Replicate(),) if self.group is None else (Partial("sum"),)


class ChunkedCELoss:
    def __init__(self, num_chunks, group=None):
        self.num_chunks = num_chunks
        self.group = group

    def cross_entropy(self, logits, labels):
        if self.group is None:
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return VocabParallelCrossEntropy.apply(logits, labels, self.group)

    def __call__(self, hidden, labels, lm_head, global_valid_tokens):
        """Goes back through the head at once; returns the loss, and the gradient of the hidden states."""
        reference = DTensor(hidden.detach(), self.group, (Replicate(),))
        accumulator = GradAccumulator(reference, self.num_chunks)
        total = torch.zeros(())
        chunks = zip(reference.to_local().chunk(self.num_chunks, 1), labels.chunk(self.num_chunks, 1), strict=True)
        for hidden_chunk, label_chunk in chunks:
            hidden_chunk = hidden_chunk.detach().requires_grad_()
            loss = self.cross_entropy(lm_head(hidden_chunk), label_chunk) / global_valid_tokens
            loss.backward()
            total = total + loss.detach()
            accumulator.add(DTensor(hidden_chunk.grad, self.group, lm_head.input_grad_placements()))
        grad = accumulator.result().redistribute((Replicate(),))
        return total, grad.to_local()


class Decoder(nn.Module):
    """All but the head; every rank has it whole."""

    def __init__(self, tok_embeddings, w1, w2):
        super().__init__()
        self.tok_embeddings, self.w1, self.w2 = tok_embeddings, w1, w2

    def forward(self, tokens):
        h = F.embedding(tokens, self.tok_embeddings)
        h = h + F.linear(F.silu(F.linear(h, self.w1)), self.w2)
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)


class Trainer:
    def __init__(self, num_chunks, tp_group=None):
        self.loss_fn = ChunkedCELoss(num_chunks, tp_group)
        self.tp_group = tp_group

    def train_step(self, tokens, labels, *weights):
        params = [nn.Parameter(weight.detach().clone()) for weight in weights]
        decoder, lm_head = Decoder(*params[:-1]), Output(params[-1], self.tp_group)
        hidden = decoder(tokens)
        loss, grad = self.loss_fn(hidden, labels, lm_head, labels.numel())
        hidden.backward(grad)
        with torch.no_grad():
            for parameter in params:
                parameter -= LR * parameter.grad
        return {"loss": loss, **{name: p.detach() for name, p in zip(NAMES, params, strict=True)}}


def specification(tokens, labels, *weights):
    """One chunk."""
    return Trainer(1).train_step(tokens, labels, *weights)


@gg.check(mesh={"tp": 2})
def check(mesh):
    ids = gg.tensor(BATCH, SEQUENCE, dtype=torch.int64, high=VOCAB)
    weights = (gg.tensor(VOCAB, DIM), gg.tensor(INNER, DIM), gg.tensor(DIM, INNER), gg.tensor(VOCAB, DIM))
    whole, rows = {"tp": Replicate()}, {"tp": Shard(0)}
    return gg.Refinement(
        specification,
        Trainer(NUM_CHUNKS, mesh.get_group("tp")).train_step,
        (ids, ids, *weights),
        in_relations=(whole, whole, whole, whole, whole, rows),
        out_relations={"loss": whole, "tok_embeddings": whole, "w1": whole, "w2": whole, "output": rows},
        grads=False,
    )
