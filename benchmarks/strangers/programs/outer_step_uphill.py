"""DiLoCo: the pseudo-gradient is the new weight less the old one, so that the outer optimizer steps away from what the workers found: torchft.

Source: https://github.com/meta-pytorch/torchft/pull/233
Rule: wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, OUTPUTS, SAMPLES, SYNC_EVERY = 3, 2, 12, 2
INNER_LR, OUTER_LR, MOMENTUM = 0.1, 0.7, 0.9


def inner_steps(weight, x):
    """What one worker does to its copy between two synchronisations."""
    for batch in x.chunk(SYNC_EVERY):
        weight = weight.detach().requires_grad_()
        (grad,) = torch.autograd.grad((batch @ weight).square().mean(), weight)
        weight = weight - INNER_LR * grad
    return weight.detach()


class OuterOptimizer:
    """SGD with Nesterov's momentum."""

    def step(self, weight, grad, velocity):
        velocity = MOMENTUM * velocity + grad
        return weight - OUTER_LR * (grad + MOMENTUM * velocity), velocity


def spec(weight, velocity, x):
    """Both workers, one after the other."""
    first, second = (inner_steps(weight, part) for part in x.chunk(2))
    return OuterOptimizer().step(weight, weight - (first + second) / 2, velocity)


class Fragment:
    """Parameters that are synchronised together."""

    def __init__(self, group, outer_optimizer):
        self.group = group
        self.outer_optimizer = outer_optimizer
        self.original_parameters = {}
        self.local_parameters = {}
        self.grads = {}

    def save_parameters(self, parameters):
        self.original_parameters = {name: parameter.clone() for name, parameter in parameters.items()}

    def prepare_sync(self, parameters):
        self.local_parameters = parameters
        for name, parameter in parameters.items():
            self.grads[name] = parameter - self.original_parameters[name]  # fixed: self.grads[name] = self.original_parameters[name] - parameter
            dist.all_reduce(self.grads[name], op=dist.ReduceOp.AVG, group=self.group)

    def perform_sync(self, name, velocity):
        return self.outer_optimizer.step(self.original_parameters[name], self.grads[name], velocity)


@gg.check(mesh={"dp": 2})
def check(mesh):
    fragment = Fragment(mesh.get_group("dp"), OuterOptimizer())

    def impl(weight, velocity, x):
        fragment.save_parameters({"weight": weight})
        fragment.prepare_sync({"weight": inner_steps(weight, x)})
        return fragment.perform_sync("weight", velocity)

    inputs = (gg.tensor(FEATURES, OUTPUTS), gg.tensor(FEATURES, OUTPUTS), gg.tensor(SAMPLES, FEATURES))
    return gg.Refinement(
        spec, impl, inputs, in_relations=({}, {}, {"dp": Shard(0)}), out_relations="replicate", grads=False
    )
