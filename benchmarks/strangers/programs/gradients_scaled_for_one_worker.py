"""The recipe sums the tokens' losses and divides the gradients by all ranks' tokens at the end; that the sharded modules average their gradients already is not made good. torchtune.

Source: https://github.com/meta-pytorch/torchtune/pull/2172
Rule: wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCABULARY, HIDDEN, BATCH, SEQUENCE, ACCUMULATION, PAD, LR = 9, 7, 12, 5, 2, 0, 0.3


class _Unshard(torch.autograd.Function):
    """All-gathers a parameter for its use; its gradient is reduced to the mean and scattered."""

    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        full = torch.empty(dist.get_world_size(group) * shard.shape[0], *shard.shape[1:])
        dist.all_gather_into_tensor(full, shard.contiguous(), group=group)
        return full

    @staticmethod
    def backward(ctx, grad):
        size = dist.get_world_size(ctx.group)
        out = torch.empty(grad.shape[0] // size, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)  # near
        return out / size, None  # near


class TransformerDecoder(nn.Module):
    """As much of it as a loss needs: embeddings, one MLP, and the output projection."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.randn(VOCABULARY, HIDDEN))
        self.mlp = nn.Parameter(torch.randn(2 * VOCABULARY, HIDDEN))
        self.output = nn.Parameter(torch.randn(VOCABULARY, 2 * VOCABULARY))
        self.group = None

    def full(self, parameter):
        return parameter if self.group is None else _Unshard.apply(parameter, self.group)

    def forward(self, tokens):
        h = F.embedding(tokens, self.full(self.tok_embeddings))
        h = torch.tanh(h @ self.full(self.mlp).t())
        return h @ self.full(self.output).t()


def shard_model(model, group):
    """Each rank keeps its rows of every parameter."""
    model.group = group
    for name, parameter in list(model.named_parameters()):
        rows = parameter.detach().chunk(dist.get_world_size(group))[dist.get_rank(group)]
        setattr(model, name, nn.Parameter(rows.clone()))
    return model


def scale_grads(model, scaler):
    for p in model.parameters():
        if p.grad is not None:
            p.grad *= scaler


class FullFinetuneRecipeDistributed:
    """Micro-batches of unequal numbers of tokens make up a step."""

    def __init__(self, model, group=None):
        self._model = model
        self._group = group
        self.world_size = 1 if group is None else dist.get_world_size(group)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        self._gradient_accumulation_steps = ACCUMULATION

    def _loss_step(self, tokens, labels):
        """Mean over the tokens that are not padding."""
        logits = self._model(tokens).flatten(0, 1)
        total = F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, reduction="sum")
        return total / self._count(labels)

    @staticmethod
    def _count(labels):
        return (labels != PAD).sum()

    def _all_reduce(self, tensor):
        if self._group is not None:
            dist.all_reduce(tensor, group=self._group)

    def train(self, tokens, labels):
        running_loss, num_tokens = torch.zeros(()), torch.zeros(())
        for idx in range(self._gradient_accumulation_steps):
            current_num_tokens = self._count(labels[idx])
            num_tokens += current_num_tokens
            current_loss = self._loss_step(tokens[idx], labels[idx]) * current_num_tokens
            running_loss += current_loss.detach()
            current_loss.backward()

        self._all_reduce(num_tokens)
        self._all_reduce(running_loss)
        scale_grads(self._model, 1 / num_tokens)  # fixed: scale_grads(self._model, self.world_size / num_tokens)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {"loss": running_loss / num_tokens, **{n: p.detach() for n, p in self._model.named_parameters()}}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model, group = TransformerDecoder(), mesh.get_group("dp")
    sharded = shard_model(copy.deepcopy(model), group)
    tokens = gg.tensor(ACCUMULATION, BATCH, SEQUENCE, dtype=torch.int64, high=VOCABULARY)
    samples, rows = {"dp": Shard(1)}, {"dp": Shard(0)}
    return gg.Refinement(
        FullFinetuneRecipeDistributed(model).train,
        FullFinetuneRecipeDistributed(sharded, group).train,
        (tokens, tokens),
        in_relations=(samples, samples),
        out_relations=("replicate", rows, rows, rows),
        grads=False,
    )
