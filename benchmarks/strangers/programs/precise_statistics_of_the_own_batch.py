"""Precise batch norm: the statistics of all ranks' batches are averaged over iterations, each weighed by its batch; the batch is that of the own rank, so the ranks come to different means. detectron2 with fvcore.

Source: https://github.com/facebookresearch/detectron2/issues/5398
Rule: missing-reduction, nonlinear-on-partial, wrong-scale, wrong-relation
"""

import copy
import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

CHANNELS, HIDDEN, EPS, MOMENTUM = 4, 7, 1e-5, 0.1
# rows of each rank in each iteration: the proposals that were left on its images
PROPOSALS = ((3, 1, 2), (1, 4, 2), (6, 2, 1), (2, 2, 5))
TOTAL = sum(map(sum, PROPOSALS))


@dataclass(frozen=True)
class Comm:
    group: Any = None

    @property
    def world_size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    def all_reduce(self, tensor):
        if self.world_size == 1:
            return tensor
        tensor = tensor.clone()
        dist.all_reduce(tensor, group=self.group)
        return tensor


class NaiveSyncBatchNorm(nn.Module):
    """Of all rows of all ranks, however many each has."""

    def __init__(self, num_features, comm):
        super().__init__()
        self.comm = comm
        self.momentum = MOMENTUM
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, num_features))
        self.bias = nn.Parameter(torch.linspace(-0.2, 0.3, num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x):
        if self.training:
            count = self.comm.all_reduce(torch.tensor(float(x.shape[0])))
            mean = self.comm.all_reduce(x.sum(0)) / count
            var = self.comm.all_reduce((x - mean).square().sum(0)) / count
            unbiased = var * (count / (count - 1))
            self.running_mean = self.running_mean + self.momentum * (mean - self.running_mean)
            self.running_var = self.running_var + self.momentum * (unbiased - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        return (x - mean) * torch.rsqrt(var + EPS) * self.weight + self.bias


class BoxHead(nn.Module):
    def __init__(self, comm):
        super().__init__()
        self.fc1 = nn.Linear(CHANNELS, HIDDEN, bias=False)
        self.norm1 = NaiveSyncBatchNorm(HIDDEN, comm)
        self.fc2 = nn.Linear(HIDDEN, CHANNELS, bias=False)
        self.norm2 = NaiveSyncBatchNorm(CHANNELS, comm)

    def forward(self, x):
        x = torch.tanh(self.norm1(self.fc1(x)))
        return self.norm2(self.fc2(x))


class _PopulationVarianceEstimator:
    """The mean and the variance of a population, of batches of its members."""

    def __init__(self, mean_buffer, var_buffer):
        self.pop_mean = torch.zeros_like(mean_buffer)
        self.pop_square_mean = torch.zeros_like(var_buffer)
        self.tot = 0

    def update(self, batch_mean, batch_var, batch_size):
        self.tot = self.tot + batch_size
        batch_square_mean = batch_mean.square() + batch_var * ((batch_size - 1) / batch_size)  # fault
        self.pop_mean = self.pop_mean + (batch_mean - self.pop_mean) * (batch_size / self.tot)  # fault
        self.pop_square_mean = self.pop_square_mean + (batch_square_mean - self.pop_square_mean) * (batch_size / self.tot)  # fault

    @property
    def pop_var(self):
        return self.pop_square_mean - self.pop_mean.square()


def get_bn_modules(model):
    return [module for module in model.modules() if module.training and isinstance(module, NaiveSyncBatchNorm)]


@torch.no_grad()
def update_bn_stats(model, data_loader, num_iters, comm):
    bn_layers = get_bn_modules(model)
    # without a momentum the running statistics are those of the batch
    momentum_actual = [bn.momentum for bn in bn_layers]
    batch_size_per_bn_layer = {}

    def get_bn_batch_size_hook(module, args):
        batch_size = torch.tensor(float(args[0].shape[0]))
        batch_size_per_bn_layer[module] = batch_size  # fixed: batch_size_per_bn_layer[module] = comm.all_reduce(batch_size)

    hooks = []
    for bn in bn_layers:
        bn.momentum = 1.0
        hooks.append(bn.register_forward_pre_hook(get_bn_batch_size_hook))
    estimators = [_PopulationVarianceEstimator(bn.running_mean, bn.running_var) for bn in bn_layers]

    for inputs in itertools.islice(data_loader, num_iters):
        batch_size_per_bn_layer.clear()
        model(inputs)
        for bn, estimator in zip(bn_layers, estimators, strict=True):
            estimator.update(bn.running_mean, bn.running_var, batch_size_per_bn_layer[bn])

    for bn, estimator, momentum, hook in zip(bn_layers, estimators, momentum_actual, hooks, strict=True):
        bn.running_mean = estimator.pop_mean
        bn.running_var = estimator.pop_var
        bn.momentum = momentum
        hook.remove()


class PreciseBN:
    """The hook of the training loop, before the evaluation."""

    def __init__(self, model, data_loader, num_iters, comm):
        self._model = model
        self._data_loader = data_loader
        self._num_iter = num_iters
        self._comm = comm

    def after_step(self):
        self._model.train()
        update_bn_stats(self._model, self._data_loader, self._num_iter, self._comm)  # near


def build_detection_train_loader(features, comm):
    """The rows of this rank, iteration after iteration."""
    start = 0
    for sizes in PROPOSALS:
        if comm.world_size == 1:
            yield features[start : start + sum(sizes)]
        else:
            rank = dist.get_rank(comm.group)
            first = start + sum(sizes[:rank])
            yield features[first : first + sizes[rank]]
        start += sum(sizes)


def evaluate_after_precise_bn(model, comm):
    @torch.no_grad()
    def run(features, test_features):
        loader = build_detection_train_loader(features, comm)
        PreciseBN(model, loader, len(PROPOSALS), comm).after_step()
        model.eval()
        statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
        return {"scores": model(test_features), **statistics}

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    comm = Comm(mesh.get_group("dp"))
    model, local = BoxHead(Comm()), BoxHead(comm)
    local.load_state_dict(copy.deepcopy(model.state_dict()))
    return gg.Refinement(
        evaluate_after_precise_bn(model, Comm()),
        evaluate_after_precise_bn(local, comm),
        (gg.tensor(TOTAL, CHANNELS), gg.tensor(8, CHANNELS)),
        out_relations="replicate",
        grads=False,
    )
