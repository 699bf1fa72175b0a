"""Gradients are clipped by a norm that sums the stages' norms and not their squares, in the manner of torchtitan's clip_grad_norm_.

Source: https://github.com/pytorch/torchtitan/pull/649
Rule: wrong-relation, wrong-scale, nonlinear-on-partial
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

MAX_NORM = 0.5


def total_norm_of(grads, norm_type=2.0):
    norms = [torch.linalg.vector_norm(grad, norm_type) for grad in grads]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


def clip_grads_with_norm(grads, max_norm, total_norm):
    clip_coef = max_norm / (total_norm + 1e-6)
    clip_coef_clamped = torch.clamp(clip_coef, max=1.0)
    return [grad * clip_coef_clamped for grad in grads]


class Optimizer:
    """Plain SGD on named tensors."""

    def __init__(self, lr):
        self.lr = lr

    def step(self, params, grads):
        return tuple(param - self.lr * grad for param, grad in zip(params, grads))


class PipelineClipping:
    """Every stage holds the gradients of its own layers."""

    def __init__(self, pp_group, norm_type=2.0):
        self.pp_group = pp_group
        self.norm_type = norm_type

    def total_norm(self, grads):
        total_norm = total_norm_of(grads, self.norm_type)
        if self.norm_type == float("inf"):
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=self.pp_group)
            return total_norm
        # fixed, insert: total_norm **= self.norm_type
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=self.pp_group)  # fault
        return total_norm  # fixed: return total_norm ** (1.0 / self.norm_type)

    def __call__(self, grads):
        return clip_grads_with_norm(grads, MAX_NORM, self.total_norm(grads))


def spec(weight, bias, weight_grad, bias_grad):
    clipped = clip_grads_with_norm([weight_grad, bias_grad], MAX_NORM, total_norm_of([weight_grad, bias_grad]))
    return Optimizer(0.1).step([weight, bias], clipped)


@gg.check(mesh={"pp": 2})
def check(mesh):
    clip = PipelineClipping(mesh.get_group("pp"))

    def impl(weight, bias, weight_grad, bias_grad):
        return Optimizer(0.1).step([weight, bias], clip([weight_grad, bias_grad]))

    layers = {"pp": Shard(0)}  # the layers' tensors, stacked
    inputs = (gg.tensor(4, 3, 3), gg.tensor(4, 3), gg.tensor(4, 3, 3), gg.tensor(4, 3))
    return gg.Refinement(spec, impl, inputs, in_relations=layers, out_relations=layers, grads=False)
