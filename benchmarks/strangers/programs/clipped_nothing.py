"""The norm over all shards is right; what is handed on to be scaled are gradients where parameters are asked, so that nothing is clipped. Transformers with TP.

Source: https://github.com/huggingface/transformers/pull/46113
Rule: wrong-relation, wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INTERMEDIATE, LR, MAX_GRAD_NORM = 5, 4, 6, 0.3, 0.05


class Qwen3MLP(nn.Module):
    """A norm, then a gated MLP: the specification."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.ones(HIDDEN))
        self.gate_proj = nn.Parameter(torch.randn(INTERMEDIATE, HIDDEN))
        self.up_proj = nn.Parameter(torch.randn(INTERMEDIATE, HIDDEN))
        self.down_proj = nn.Parameter(torch.randn(HIDDEN, INTERMEDIATE))

    def forward(self, x):
        h = F.rms_norm(x, (HIDDEN,), self.norm, 1e-5)
        return x + (torch.sigmoid(h @ self.gate_proj.t()) * (h @ self.up_proj.t())) @ self.down_proj.t()


class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceInGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


BASE_MODEL_TP_PLAN = {"gate_proj": "colwise", "up_proj": "colwise", "down_proj": "rowwise"}


class TensorParallelMLP(nn.Module):
    """What ``base_model_tp_plan`` makes of it; what the plan does not name is on all ranks."""

    def __init__(self, model, group):
        super().__init__()
        self.group = group
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        for name, parameter in model.named_parameters():
            style = BASE_MODEL_TP_PLAN.get(name)
            own = parameter.detach()
            if style is not None:
                own = own.chunk(size, dim=0 if style == "colwise" else 1)[rank]
            sharded = nn.Parameter(own.clone())
            sharded.is_sharded = style is not None
            setattr(self, name, sharded)

    def forward(self, x):
        h = CopyToGroup.apply(F.rms_norm(x, (HIDDEN,), self.norm, 1e-5), self.group)
        own = torch.sigmoid(h @ self.gate_proj.t()) * (h @ self.up_proj.t())
        return x + ReduceInGroup.apply(own @ self.down_proj.t(), self.group)


def get_total_norm(parameters, group):
    """The norm of the whole gradient: shards are summed over the ranks, the others count once."""
    sharded = sum(p.grad.square().sum() for p in parameters if p.is_sharded)
    dist.all_reduce(sharded, group=group)
    whole = sum(p.grad.square().sum() for p in parameters if not p.is_sharded)
    return (sharded + whole).sqrt()


@torch.no_grad()
def clip_grad_norm(model, max_norm, group):
    parameters = [p for p in model.parameters() if p.grad is not None]
    grads = [p.grad for p in parameters]
    total_norm = get_total_norm(parameters, group)
    torch.nn.utils.clip_grads_with_norm_(grads, max_norm, total_norm)  # fixed: torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


def sgd(model):
    return {name: p.detach() - LR * p.grad for name, p in model.named_parameters()}


def spec_step(model):
    def step(x, target):
        (model(x) - target).square().mean().backward()
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        return {**sgd(model), "grad_norm": total_norm}

    return step


class Trainer:
    def __init__(self, model, group):
        self.model = model
        self.group = group

    def training_step(self, x, target):
        (self.model(x) - target).square().mean().backward()
        grad_norm = clip_grad_norm(self.model, MAX_GRAD_NORM, self.group)  # near
        return {**sgd(self.model), "grad_norm": grad_norm}


@gg.check(mesh={"tp": 3})
def check(mesh):
    model, group = Qwen3MLP(), mesh.get_group("tp")
    trainer = Trainer(TensorParallelMLP(copy.deepcopy(model), group), group)
    tokens = gg.tensor(TOKENS, HIDDEN)
    rows, columns, whole = {"tp": Shard(0)}, {"tp": Shard(1)}, {}
    return gg.Refinement(
        spec_step(model),
        trainer.training_step,
        (tokens, tokens),
        out_relations=(whole, rows, rows, columns, whole),
        grads=False,
    )
