"""Gradients are clipped by their largest entry; the norm's type is the word "inf" and compared with a number, so the total is taken to the power of zero. torchrec with FSDP2.

Source: https://github.com/meta-pytorch/torchrec/pull/3199
Rule: wrong-relation, wrong-scale
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SAMPLES, FEATURES, HIDDEN, OUTPUTS, STEPS = 12, 5, 6, 3, 2
LR, MAX_GRADIENT = 0.2, 0.07


class _FullParameter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        full = torch.empty(dist.get_world_size(group) * shard.shape[0], *shard.shape[1:])
        dist.all_gather_into_tensor(full, shard.contiguous(), group=group)
        return full

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class SGD:
    def __init__(self, params, lr):
        self.params = params
        self.lr = lr

    def step(self):
        with torch.no_grad():
            for param in self.params.values():
                param -= self.lr * param.grad

    def zero_grad(self):
        for param in self.params.values():
            param.grad = None


def _batch_cal_norm(grads, norm_type, process_groups=()):
    """Of all gradients, to the power of the norm's type unless that is infinite."""
    norms = torch.stack([torch.linalg.vector_norm(grad, float(norm_type)) for grad in grads])
    if norm_type == "inf":
        total, op = norms.max(), dist.ReduceOp.MAX
    else:
        total, op = (norms**norm_type).sum(), dist.ReduceOp.SUM
    for group in process_groups:
        dist.all_reduce(total, op=op, group=group)
    return total


class GradientClippingOptimizer:
    """Clips the gradients of sharded and of whole parameters together, then steps."""

    def __init__(self, optimizer, max_gradient, norm_type=2.0, sharded=None):
        self._optimizer = optimizer
        self._max_gradient = max_gradient
        self._norm_type = norm_type
        self._sharded_params: dict[Any, list[str]] = sharded or {}
        names = {name for part in self._sharded_params.values() for name in part}
        self._replicate_params = [name for name in optimizer.params if name not in names]

    def _grads(self, names):
        return [self._optimizer.params[name].grad for name in names]

    def _total_norm(self):
        norms = []
        for group, names in self._sharded_params.items():
            norms.append(_batch_cal_norm(self._grads(names), self._norm_type, (group,)))
        if self._replicate_params:
            norms.append(_batch_cal_norm(self._grads(self._replicate_params), self._norm_type))
        total_grad_norm = torch.stack(norms)
        total_grad_norm = total_grad_norm.max() if self._norm_type == "inf" else total_grad_norm.sum()
        if self._norm_type != torch.inf:  # fixed: if float(self._norm_type) != torch.inf:
            total_grad_norm = total_grad_norm ** (1.0 / float(self._norm_type))  # fault
        return total_grad_norm

    def clip_grad_norm_(self):
        clip_coef = self._max_gradient / (self._total_norm() + 1e-6)
        clip_coef_clamped = torch.clamp(clip_coef, max=1.0)
        for grad in self._grads(self._optimizer.params):
            grad *= clip_coef_clamped

    def step(self):
        self.clip_grad_norm_()
        self._optimizer.step()
        self._optimizer.zero_grad()


def over_arch(x, over, final, scale):
    return torch.tanh(x @ over.t()) @ final.t() * scale


def spec(x, target, over, final, scale):
    """By hand, with the largest entry of all gradients."""
    params = [tensor.clone().requires_grad_() for tensor in (over, final, scale)]
    for _ in range(STEPS):
        loss = (over_arch(x, *params) - target).square().sum() / SAMPLES
        grads = torch.autograd.grad(loss, params)
        largest = torch.stack([grad.abs().max() for grad in grads]).max()
        coef = torch.clamp(MAX_GRADIENT / (largest + 1e-6), max=1.0)
        params = [(p - LR * coef * g).detach().requires_grad_() for p, g in zip(params, grads, strict=True)]
    return tuple(param.detach() for param in params)


def train(group):
    def impl(x, target, over, final, scale):
        params = {"over": over, "final": final, "scale": scale}
        params = {name: tensor.clone().requires_grad_() for name, tensor in params.items()}
        optimizer = GradientClippingOptimizer(
            SGD(params, LR), MAX_GRADIENT, norm_type="inf", sharded={group: ["over", "final"]}
        )
        for _ in range(STEPS):
            full = [_FullParameter.apply(params[name], group) for name in ("over", "final")]
            loss = (over_arch(x, *full, params["scale"]) - target).square().sum() / SAMPLES
            loss.backward()
            dist.all_reduce(params["scale"].grad, group=group)
            optimizer.step()
        return tuple(param.detach() for param in params.values())

    return impl


@gg.check(mesh={"dp": 3})
def check(mesh):
    rows, whole = {"dp": Shard(0)}, {"dp": Replicate()}
    batch = (gg.tensor(SAMPLES, FEATURES), gg.tensor(SAMPLES, OUTPUTS))
    tensors = (gg.tensor(HIDDEN, FEATURES), gg.tensor(OUTPUTS, HIDDEN), gg.tensor(OUTPUTS))
    return gg.Refinement(
        spec,
        train(mesh.get_group("dp")),
        (*batch, *tensors),
        in_relations=(rows, rows, rows, rows, whole),
        out_relations=(rows, rows, whole),
        grads=False,
    )
