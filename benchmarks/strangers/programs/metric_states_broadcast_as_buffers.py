"""A metric keeps its sums as buffers, and the data-parallel wrapper copies the first rank's buffers to all before each forward pass, so that what the others have summed is lost. PyTorch Lightning's metrics.

Source: https://github.com/Lightning-AI/pytorch-lightning/pull/4482
Rule: wrong-relation, wrong-shard
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, SAMPLES, FEATURES, HIDDEN, TARGETS = 4, 6, 5, 9, 2


class Metric(nn.Module):
    """A state of its own on every rank; ``compute`` sees the states of all."""

    def __init__(self, process_group=None):
        super().__init__()
        self.process_group = process_group
        self._defaults, self._reductions = {}, {}

    def add_state(self, name, default, dist_reduce_fx):
        self._defaults[name] = default
        self._reductions[name] = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[dist_reduce_fx]
        self.register_buffer(name, default.clone(), persistent=False)  # fixed: setattr(self, name, default.clone())

    def reset(self):
        for name, default in self._defaults.items():
            setattr(self, name, default.clone())

    def _synced(self, name):
        state = getattr(self, name).clone()
        if self.process_group is not None:
            dist.all_reduce(state, op=self._reductions[name], group=self.process_group)  # near
        return state

    def compute(self):
        return self._compute(**{name: self._synced(name) for name in self._defaults})


class MeanSquaredError(Metric):
    def __init__(self, process_group=None):
        super().__init__(process_group)
        self.add_state("sum_squared_error", torch.tensor(0.0), "sum")
        self.add_state("total", torch.tensor(0.0), "sum")

    def update(self, preds, target):
        self.sum_squared_error = self.sum_squared_error + (preds - target).square().sum()
        self.total = self.total + target.numel()

    def _compute(self, sum_squared_error, total):
        return sum_squared_error / total


class ExplainedVariance(Metric):
    def __init__(self, process_group=None):
        super().__init__(process_group)
        for name in ("sum_error", "sum_squared_error", "sum_target", "sum_squared_target"):
            self.add_state(name, torch.zeros(TARGETS), "sum")
        self.add_state("total", torch.tensor(0.0), "sum")

    def update(self, preds, target):
        error = target - preds
        self.sum_error = self.sum_error + error.sum(0)
        self.sum_squared_error = self.sum_squared_error + error.square().sum(0)
        self.sum_target = self.sum_target + target.sum(0)
        self.sum_squared_target = self.sum_squared_target + target.square().sum(0)
        self.total = self.total + len(target)

    def _compute(self, sum_error, sum_squared_error, sum_target, sum_squared_target, total):
        variance_of_error = sum_squared_error / total - (sum_error / total).square()
        variance_of_target = sum_squared_target / total - (sum_target / total).square()
        return (1.0 - variance_of_error / variance_of_target).mean()


class MaxError(Metric):
    def __init__(self, process_group=None):
        super().__init__(process_group)
        self.add_state("largest", torch.tensor(0.0), "max")

    def update(self, preds, target):
        self.largest = torch.maximum(self.largest, (preds - target).abs().amax())

    def _compute(self, largest):
        return largest


class LitRegressor(nn.Module):
    def __init__(self, input_mean, process_group=None):
        super().__init__()
        self.register_buffer("input_mean", input_mean.clone())
        self.encoder = nn.Linear(FEATURES, HIDDEN)
        self.head = nn.Linear(HIDDEN, TARGETS)
        metrics = {"mse": MeanSquaredError, "explained_variance": ExplainedVariance, "max_error": MaxError}
        self.val_metrics = nn.ModuleDict({name: metric(process_group) for name, metric in metrics.items()})

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x - self.input_mean)))

    def validation_step(self, batch):
        x, y = batch
        preds = self(x)
        for metric in self.val_metrics.values():
            metric.update(preds, y)

    def validation_epoch_end(self):
        logged = {f"val_{name}": metric.compute() for name, metric in self.val_metrics.items()}
        for metric in self.val_metrics.values():
            metric.reset()
        return logged


class LightningDistributedDataParallel(nn.Module):
    """Its ``forward`` is the module's step; buffers are those of the first rank."""

    def __init__(self, module, process_group, broadcast_buffers=True):
        super().__init__()
        self.module = module
        self.process_group = process_group
        self.broadcast_buffers = broadcast_buffers

    def _sync_buffers(self):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0, group=self.process_group)  # fault

    @torch.no_grad()
    def forward(self, *inputs):
        if self.broadcast_buffers:
            self._sync_buffers()  # near
        return self.module.validation_step(*inputs)


class Trainer:
    def __init__(self, process_group=None):
        self.process_group = process_group

    @torch.no_grad()
    def validate(self, model, batches):
        step = model.validation_step
        if self.process_group is not None:
            step = LightningDistributedDataParallel(model, self.process_group)
        for batch in batches:
            step(batch)
        return model.validation_epoch_end()


def validate(model, process_group=None):
    trainer = Trainer(process_group)

    def run(x, y):
        return trainer.validate(model, list(zip(x, y, strict=True)))

    return run


@gg.check(mesh={"ddp": 3})
def check(mesh):
    group = mesh.get_group("ddp")
    model = LitRegressor(torch.linspace(-0.1, 0.1, FEATURES))
    local = copy.deepcopy(model)
    for metric in local.val_metrics.values():
        metric.process_group = group
    return gg.Refinement(
        validate(model),
        validate(local, group),
        (gg.tensor(STEPS, SAMPLES, FEATURES), gg.tensor(STEPS, SAMPLES, TARGETS)),
        in_relations={"ddp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
