"""ZeRO-3 runs Muon where a gradient is reduced, so on each micro-batch instead of their sum. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/pull/8600
Rule: wrong-relation, nonlinear-on-partial
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

MICRO_BATCHES, SAMPLES, FEATURES, HIDDEN, CLASSES = 3, 12, 5, 4, 7
SHAPES = {"up": (FEATURES, HIDDEN), "down": (HIDDEN, CLASSES)}
LR, MOMENTUM, EPS = 0.1, 0.8, 1e-7


def newton_schulz(x):
    """One step towards the nearest orthogonal matrix."""
    x = x / (x.square().sum().sqrt() + EPS)
    gram = x @ x.t()
    return 1.5 * x - 0.5 * gram @ x


def muon(grad, momentum):
    """The update and the new momentum, by Nesterov's rule."""
    momentum = MOMENTUM * momentum + grad
    return newton_schulz(grad + MOMENTUM * momentum), momentum


def loss_of(parameters, x):
    """Of one micro-batch, divided by the number of micro-batches."""
    hidden = torch.tanh(x @ parameters["up"])
    return (hidden @ parameters["down"]).square().mean() / MICRO_BATCHES


def spec_step(batch, up, down, momentum_up, momentum_down):
    parameters = {"up": up.detach().requires_grad_(), "down": down.detach().requires_grad_()}
    momenta = {"up": momentum_up.view(SHAPES["up"]), "down": momentum_down.view(SHAPES["down"])}
    for micro_batch in batch:
        loss_of(parameters, micro_batch).backward()
    result = {}
    for name, parameter in parameters.items():
        update, momentum = muon(parameter.grad, momenta[name])
        result[name] = (parameter.detach() - LR * update).flatten()
        result[f"momentum_{name}"] = momentum.flatten()
    return result


class PartitionedParameter:
    """A parameter of which each rank keeps a flat part, and as much of its momentum and its gradient."""

    def __init__(self, name, tensor, momentum, zero):
        self.name, self.shape, self.zero = name, tensor.shape, zero
        self.partition = zero.own(tensor.detach().flatten())
        self.momentum = momentum
        self.averaged_gradient = None

    def all_gather(self):
        return self.zero.gather(self.partition).view(self.shape)


class Zero3Group:
    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def own(self, flat):
        return flat.chunk(self.size)[self.rank]

    def gather(self, partition):
        out = torch.empty(self.size * partition.numel())
        dist.all_gather_into_tensor(out, partition.contiguous(), group=self.group)
        return out

    def reduce_scatter_mean(self, flat):
        out = torch.empty(flat.numel() // self.size)
        dist.reduce_scatter_tensor(out, flat.contiguous(), op=dist.ReduceOp.AVG, group=self.group)
        return out


class DeepSpeedZeroOptimizerStage3:
    """Gathers parameters for each micro-batch, reduces their gradients after it, and updates partitions."""

    def __init__(self, tensors, momenta, zero):
        self.zero = zero
        self.params = [PartitionedParameter(name, tensors[name], momenta[name], zero) for name in SHAPES]

    def apply_muon(self, param, gradient):
        """It takes whole matrices: gather, orthogonalize, and back to the own part."""
        whole = [self.zero.gather(part).view(param.shape) for part in (gradient, param.momentum)]
        update, momentum = muon(*whole)
        param.momentum = self.zero.own(momentum.flatten())
        return self.zero.own(update.flatten())

    def avg_scatter_contiguous_grads(self, param, grad):
        partition = self.zero.reduce_scatter_mean(grad.flatten())
        update = self.apply_muon(param, partition)  # fixed: update = partition
        return update

    def partition_grads(self, leaves):
        """The first micro-batch's gradient is kept, those of the others are added."""
        for param in self.params:
            partition = self.avg_scatter_contiguous_grads(param, leaves[param.name].grad)
            before = param.averaged_gradient
            param.averaged_gradient = partition if before is None else before + partition  # fault

    def backward(self, micro_batch):
        leaves = {param.name: param.all_gather().requires_grad_() for param in self.params}
        loss_of(leaves, micro_batch).backward()
        self.partition_grads(leaves)

    def step(self):
        result = {}
        for param in self.params:
            update = param.averaged_gradient  # fixed: update = self.apply_muon(param, param.averaged_gradient)
            param.partition = param.partition - LR * update
            param.averaged_gradient = None
            result[param.name] = param.partition
            result[f"momentum_{param.name}"] = param.momentum
        return result


def train_step(zero):
    def step(batch, up, down, momentum_up, momentum_down):
        tensors, momenta = {"up": up, "down": down}, {"up": momentum_up, "down": momentum_down}
        optimizer = DeepSpeedZeroOptimizerStage3(tensors, momenta, zero)
        for micro_batch in batch:
            optimizer.backward(micro_batch)
        return optimizer.step()

    return step


@gg.check(mesh={"dp": 2})
def check(mesh):
    weights = (gg.tensor(*SHAPES["up"]), gg.tensor(*SHAPES["down"]))
    momenta = (gg.tensor(FEATURES * HIDDEN), gg.tensor(HIDDEN * CLASSES))
    inputs = (gg.tensor(MICRO_BATCHES, SAMPLES, FEATURES), *weights, *momenta)
    whole, samples, parts = {"dp": Replicate()}, {"dp": Shard(1)}, {"dp": Shard(0)}
    return gg.Refinement(
        spec_step,
        train_step(Zero3Group(mesh.get_group("dp"))),
        inputs,
        in_relations=(samples, whole, whole, parts, parts),
        out_relations=parts,
        grads=False,
    )
