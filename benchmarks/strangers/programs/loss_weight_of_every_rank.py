"""The tokens of a batch are counted over all ranks, though those of a tensor-parallel group have the same tokens: the loss and its gradient are too small by their number. AReaL's FSDP engine.

Source: https://github.com/areal-project/AReaL/pull/335
Rule: wrong-group, wrong-scale, extra-reduction, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, TOKENS, VOCAB, HIDDEN, FFN, LR = 8, 5, 7, 3, 6, 0.3


@dataclass(frozen=True)
class ParallelHelper:
    """The groups of a rank; without a mesh there is one rank."""

    mesh: Any = None

    def group(self, axis):
        return None if self.mesh is None else self.mesh.get_group(axis)

    def size(self, axis):
        return 1 if self.mesh is None else dist.get_world_size(self.group(axis))

    def rank(self, axis):
        return 0 if self.mesh is None else dist.get_rank(self.group(axis))


@dataclass(frozen=True)
class TrainEngineConfig:
    n_mbs: int = 1
    lr: float = LR


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    """Its hidden units are divided over the tensor-parallel ranks."""

    def __init__(self, up, down, helper):
        super().__init__()
        size, rank = helper.size("tp"), helper.rank("tp")
        self.up_proj = nn.Parameter(up.chunk(size, dim=0)[rank].detach().clone())
        self.down_proj = nn.Parameter(down.chunk(size, dim=1)[rank].detach().clone())
        self.helper = helper

    def forward(self, x):
        group = self.helper.group("tp")
        x = x if group is None else _Copy.apply(x, group)
        out = F.linear(F.silu(F.linear(x, self.up_proj)), self.down_proj)
        return out if group is None else _Reduce.apply(out, group)


class CausalLM(nn.Module):
    def __init__(self, embed, up, down, head, helper):
        super().__init__()
        self.embed_tokens = nn.Parameter(embed.detach().clone())
        self.mlp = MLP(up, down, helper)
        self.lm_head = nn.Parameter(head.detach().clone())

    def forward(self, input_ids):
        hidden = F.embedding(input_ids, self.embed_tokens)
        return F.linear(hidden + self.mlp(hidden), self.lm_head)


def compute_packed_sft_loss(logits, mb):
    """The mean over a micro-batch's own tokens."""
    labels, mask = mb["input_ids"][:, 1:], mb["loss_mask"][:, 1:]
    logprobs = logits[:, :-1].log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return -(logprobs * mask).sum() / mask.sum().clamp(min=1)


def count_tokens(mb):
    return mb["loss_mask"][:, 1:].sum()


class FSDPEngine:
    """Gradients are averaged over the data-parallel ranks; losses are weighed so that this is the mean over all tokens."""

    def __init__(self, config, model, helper):
        self.config, self.model, self.helper = config, model, helper
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)

    @property
    def initialized(self):
        return self.helper.mesh is not None

    def prepare_mb_list(self, input_):
        parts = {name: tensor.chunk(self.config.n_mbs) for name, tensor in input_.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(self.config.n_mbs)]

    def get_total_loss_weight(self, mb_list, loss_weight_fn):
        total_loss_weight = sum(loss_weight_fn(mb) for mb in mb_list)
        if self.initialized:
            dist.all_reduce(total_loss_weight)  # fixed: dist.all_reduce(total_loss_weight, group=self.helper.group("dp"))
        return total_loss_weight

    def reduce_gradients(self):
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, group=self.helper.group("dp"))
            parameter.grad /= self.helper.size("dp")

    def train_batch(self, input_, loss_fn, loss_weight_fn):
        self.optimizer.zero_grad()
        mb_list = self.prepare_mb_list(input_)
        total_loss_weight = self.get_total_loss_weight(mb_list, loss_weight_fn)
        total_loss = torch.zeros(())
        for mb in mb_list:
            loss = loss_fn(self.model(mb["input_ids"]), mb)
            loss_scale = loss_weight_fn(mb) / total_loss_weight  # fault
            loss = loss * loss_scale * self.helper.size("dp")  # near
            loss.backward()
            total_loss += loss.detach()
        if self.initialized:
            self.reduce_gradients()
            dist.all_reduce(total_loss, group=self.helper.group("dp"))
            total_loss /= self.helper.size("dp")
        self.optimizer.step()
        return total_loss


def train_step(config, helper):
    def step(input_ids, loss_mask, *weights):
        model = CausalLM(*weights, helper)
        engine = FSDPEngine(config, model, helper)
        batch = {"input_ids": input_ids, "loss_mask": loss_mask}
        loss = engine.train_batch(batch, compute_packed_sft_loss, count_tokens)
        return {"loss": loss, **{name.replace(".", "_"): p.detach() for name, p in model.named_parameters()}}

    return step


@gg.check(mesh={"dp": 2, "tp": 2})
def check(mesh):
    ids = gg.tensor(SAMPLES, TOKENS, dtype=torch.int64, high=VOCAB)
    mask = gg.tensor(SAMPLES, TOKENS, dtype=torch.int64, high=2)
    weights = (gg.tensor(VOCAB, HIDDEN), gg.tensor(FFN, HIDDEN), gg.tensor(HIDDEN, FFN), gg.tensor(VOCAB, HIDDEN))
    samples, whole = {"dp": Shard(0)}, {}
    relations = {"loss": whole, "embed_tokens": whole, "lm_head": whole}
    relations |= {"mlp_up_proj": {"tp": Shard(0)}, "mlp_down_proj": {"tp": Shard(1)}}
    return gg.Refinement(
        train_step(TrainEngineConfig(), ParallelHelper()),
        train_step(TrainEngineConfig(n_mbs=2), ParallelHelper(mesh)),
        (ids, mask, *weights),
        in_relations=(samples, samples, *[whole] * len(weights)),
        out_relations=relations,
        grads=False,
    )
