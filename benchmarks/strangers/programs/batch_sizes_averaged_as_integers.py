"""A metric is a sum over samples and their number, and both are averaged over the ranks; the number is an integer, so its mean is rounded down. Lightning's sync_dist.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/21838
Rule: wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SAMPLES, FEATURES, HIDDEN, TARGETS, BATCH_SIZE = 11, 9, 7, 3, 4


class DDPStrategy:
    """What trainers ask of their processes."""

    def __init__(self, process_group=None):
        self.process_group = process_group
        self.global_rank = 0 if process_group is None else dist.get_rank(process_group)
        self.world_size = 1 if process_group is None else dist.get_world_size(process_group)

    def reduce(self, tensor, reduce_op="mean"):
        return tensor if self.world_size == 1 else _sync_ddp(tensor.clone(), self.process_group, reduce_op)


def _sync_ddp(result, group, reduce_op):
    """The sum over a group, or the mean, for backends that have no such operation."""
    divide_by_world_size = reduce_op == "mean"
    op = dist.ReduceOp.MAX if reduce_op == "max" else dist.ReduceOp.SUM
    dist.all_reduce(result, op=op, group=group)
    if not divide_by_world_size:
        return result
    world_size = dist.get_world_size(group)
    return result.copy_(result / world_size)  # near


@dataclass
class _Sync:
    """How a metric goes over the ranks."""

    fn: Any
    should: bool = False
    op: str = "mean"

    def __call__(self, value):
        return self.fn(value, reduce_op=self.op) if self.should else value


@dataclass
class _Metadata:
    name: str
    reduce_fx: str
    sync: _Sync

    @property
    def is_mean_reduction(self):
        return self.reduce_fx == "mean"

    @property
    def is_max_reduction(self):
        return self.reduce_fx == "max"


class _ResultMetric:
    """Accumulates what is logged in an epoch."""

    def __init__(self, metadata):
        self.meta = metadata
        self.value = torch.tensor(float("-inf")) if metadata.is_max_reduction else torch.tensor(0.0)
        self.cumulated_batch_size = torch.tensor(0)

    def update(self, value, batch_size):
        if self.meta.is_mean_reduction:
            self.value = self.value + value * batch_size
            self.cumulated_batch_size = self.cumulated_batch_size + batch_size
        elif self.meta.is_max_reduction:
            self.value = torch.maximum(self.value, value)

    def compute(self):
        value = self.meta.sync(self.value)
        if self.meta.is_mean_reduction:
            cumulated_batch_size = self.meta.sync(self.cumulated_batch_size)  # fixed: cumulated_batch_size = self.meta.sync(self.cumulated_batch_size.to(value.dtype))
            return value / cumulated_batch_size
        return value


@dataclass
class _ResultCollection:
    strategy: DDPStrategy
    metrics: dict = field(default_factory=dict)

    def log(self, name, value, batch_size, reduce_fx="mean", sync_dist=False):
        if name not in self.metrics:
            sync = _Sync(self.strategy.reduce, should=sync_dist, op=reduce_fx)
            self.metrics[name] = _ResultMetric(_Metadata(name, reduce_fx, sync))
        self.metrics[name].update(value, batch_size)

    def epoch_metrics(self):
        return {name: metric.compute() for name, metric in self.metrics.items()}


class BoringModel(nn.Module):
    """A regression."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(FEATURES, HIDDEN)
        self.head = nn.Linear(HIDDEN, TARGETS)
        self.trainer = None

    def log(self, name, value, batch_size, reduce_fx="mean"):
        self.trainer.results.log(name, value, batch_size, reduce_fx, sync_dist=self.trainer.strategy.world_size > 1)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        prediction = self.head(torch.tanh(self.encoder(x)))
        self.log("val_loss", F.mse_loss(prediction, y), batch_size=len(x))
        self.log("val_mae", F.l1_loss(prediction, y), batch_size=len(x))
        self.log("val_worst", (prediction - y).abs().amax(), batch_size=len(x), reduce_fx="max")


class ShardedDataset:
    """An iterable one: each rank reads every so many samples, and nothing is filled up."""

    def __init__(self, x, y, strategy):
        rows = slice(strategy.global_rank, None, strategy.world_size)
        self.x, self.y = x[rows], y[rows]

    def batches(self):
        return zip(self.x.split(BATCH_SIZE), self.y.split(BATCH_SIZE), strict=True)


class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy
        self.results = _ResultCollection(strategy)

    @torch.no_grad()
    def validate(self, model, dataset):
        self.results.metrics.clear()
        model.trainer = self
        model.eval()
        for batch_idx, batch in enumerate(dataset.batches()):
            model.validation_step(batch, batch_idx)
        return self.results.epoch_metrics()


def run(model, strategy):
    trainer = Trainer(strategy)

    def validate(x, y):
        return trainer.validate(model, ShardedDataset(x, y, strategy))

    return validate


@gg.check(mesh={"ddp": 2})
def check(mesh):
    model = BoringModel()
    impl = run(copy.deepcopy(model), DDPStrategy(mesh.get_group("ddp")))
    inputs = (gg.tensor(SAMPLES, FEATURES), gg.tensor(SAMPLES, TARGETS))
    return gg.Refinement(run(model, DDPStrategy()), impl, inputs, out_relations="replicate", grads=False)
