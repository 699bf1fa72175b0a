"""The padding token's row of an embedding gets no gradient; rows are divided over the ranks, and each rank takes the token's number for one of its own rows, so that other words' rows get none either. torchtitan's vocabulary-parallel embedding.

Source: https://github.com/pytorch/torchtitan/pull/4637
Rule: wrong-shard, process-dependent, wrong-relation, gradient-not-reduced
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCABULARY, PAD_TOKEN_ID, DIM, HIDDEN, BATCH, SEQUENCE = 15, 2, 4, 12, 6, 7


@dataclass(frozen=True)
class ModelArgs:
    vocab_size: int = VOCABULARY
    padding_idx: int | None = PAD_TOKEN_ID
    dim: int = DIM
    hidden_dim: int = HIDDEN
    tp_group: Any = None

    @property
    def tp_size(self):
        return 1 if self.tp_group is None else dist.get_world_size(self.tp_group)

    @property
    def tp_rank(self):
        return 0 if self.tp_group is None else dist.get_rank(self.tp_group)


class ReduceFromTensorParallel(torch.autograd.Function):
    """A sum of partial results that every rank has; its gradient is whole on every rank."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Embedding(nn.Module):
    """Rows ``start`` to ``stop`` of the vocabulary."""

    def __init__(self, args):
        super().__init__()
        self.args = args
        rows = args.vocab_size // args.tp_size
        self.start, self.stop = args.tp_rank * rows, (args.tp_rank + 1) * rows
        self.padding_idx = args.padding_idx  # fixed: self.padding_idx = args.padding_idx - self.start if self.start <= args.padding_idx < self.stop else None
        self.weight = nn.Parameter(torch.empty(rows, args.dim))

    def forward(self, tokens):
        if self.args.tp_size == 1:
            return F.embedding(tokens, self.weight, padding_idx=self.padding_idx)
        elsewhere = (tokens < self.start) | (tokens >= self.stop)
        local = (tokens - self.start).masked_fill(elsewhere, 0)
        out = F.embedding(local, self.weight, padding_idx=self.padding_idx)  # fault
        out = out.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return ReduceFromTensorParallel.apply(out, self.args.tp_group)


class FeedForward(nn.Module):
    """Columns of the first layer, rows of the second one."""

    def __init__(self, args):
        super().__init__()
        self.args = args
        self.w1 = nn.Parameter(torch.empty(args.hidden_dim // args.tp_size, args.dim))
        self.w2 = nn.Parameter(torch.empty(args.dim, args.hidden_dim // args.tp_size))

    def forward(self, x):
        if self.args.tp_size == 1:
            return F.silu(x @ self.w1.t()) @ self.w2.t()
        x = CopyToTensorParallel.apply(x, self.args.tp_group)
        return ReduceFromTensorParallel.apply(F.silu(x @ self.w1.t()) @ self.w2.t(), self.args.tp_group)


class Transformer(nn.Module):
    SHARDED: ClassVar = {"tok_embeddings.weight": 0, "feed_forward.w1": 0, "feed_forward.w2": 1}

    def __init__(self, args):
        super().__init__()
        self.args = args
        self.tok_embeddings = Embedding(args)
        self.feed_forward = FeedForward(args)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)

    def load(self, state):
        own = {}
        for name, value in state.items():
            dim = self.SHARDED.get(name)
            own[name] = value if dim is None else value.chunk(self.args.tp_size, dim)[self.args.tp_rank]
        self.load_state_dict(copy.deepcopy(own))
        return self

    def full_grads(self):
        grads = {}
        for name, parameter in self.named_parameters():
            grad, dim = parameter.grad, self.SHARDED.get(name)
            if dim is not None and self.args.tp_size > 1:
                shards = [torch.empty_like(grad) for _ in range(self.args.tp_size)]
                dist.all_gather(shards, grad.contiguous(), group=self.args.tp_group)
                grad = torch.cat(shards, dim)
            grads[name.replace(".", "_")] = grad
        return grads

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        return self.output(h + self.feed_forward(h))


def forward_backward(model):
    def run(tokens, labels):
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        return {"loss": loss.detach(), **model.full_grads()}

    return run


@gg.check(mesh={"tp": 3})
def check(mesh):
    state = {
        "tok_embeddings.weight": torch.randn(VOCABULARY, DIM),
        "feed_forward.w1": torch.randn(HIDDEN, DIM),
        "feed_forward.w2": torch.randn(DIM, HIDDEN),
        "output.weight": torch.randn(VOCABULARY, DIM),
    }
    tokens = gg.tensor(BATCH, SEQUENCE, dtype=torch.int64, high=VOCABULARY)
    return gg.Refinement(
        forward_backward(Transformer(ModelArgs()).load(state)),
        forward_backward(Transformer(ModelArgs(tp_group=mesh.get_group("tp"))).load(state)),
        (tokens, tokens),
        out_relations="replicate",
        grads=False,
    )
