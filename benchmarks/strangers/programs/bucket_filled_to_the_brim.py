"""Gradients are copied into a bucket before they are reduced; one that fills the bucket exactly is counted as one that fits, and not copied, so that what lay there is reduced in its place. DeepSpeed's ZeRO-3.

Source: https://github.com/deepspeedai/DeepSpeed/pull/4321
Rule: wrong-relation, missing-reduction, gradient-not-reduced
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, SEQ, FEATURES, D_MODEL, CLASSES, STEPS = 6, 4, 5, 6, 4, 2
NAMES = ("shared", "wi", "wo", "lm_head")


@dataclass
class DeepSpeedZeroConfig:
    """``reduce_bucket_size`` is ``hidden_size * hidden_size`` where it is "auto"."""

    reduce_bucket_size: Any = "auto"
    contiguous_gradients: bool = True
    reduce_scatter: bool = False
    lr: float = 0.3
    momentum: float = 0.9

    def resolve(self, hidden_size):
        if self.reduce_bucket_size == "auto":
            self.reduce_bucket_size = hidden_size * hidden_size
        return self


class T5DenseActDense(nn.Module):
    """An embedding of features, one feed-forward block, a head."""

    def __init__(self, shared, wi, wo, lm_head):
        super().__init__()
        weights = zip(NAMES, (shared, wi, wo, lm_head), strict=True)
        self.weights = nn.ParameterDict({name: nn.Parameter(weight.detach().clone()) for name, weight in weights})

    def forward(self, x):
        hidden_states = F.linear(x, self.weights["shared"])
        hidden_states = hidden_states + F.linear(F.relu(F.linear(hidden_states, self.weights["wi"])), self.weights["wo"])
        return F.linear(hidden_states, self.weights["lm_head"])


class DeepSpeedZeroOptimizer_Stage3:
    def __init__(self, module, config, dp_process_group):
        self.module = module
        self.config = config
        self.dp_process_group = dp_process_group
        self.rank, self.world_size = dist.get_rank(dp_process_group), dist.get_world_size(dp_process_group)
        self.reduce_bucket_size = config.reduce_bucket_size
        self.ipg_bucket_flat_buffer = torch.zeros(self.reduce_bucket_size)
        self.params_in_ipg_bucket, self.elements_in_ipg_bucket = [], 0
        self.averaged_gradients = {}
        for param in module.parameters():
            param.ds_numel = param.numel()
            param.ds_tensor = self.partition(param.detach().flatten())
            param.momentum = torch.zeros_like(param.ds_tensor)
            param.register_post_accumulate_grad_hook(self.reduce_ready_partitions_and_remove_grads)

    def partition(self, flat):
        """This rank's part, with zeros at the end where there is less than for the others."""
        size = math.ceil(flat.numel() / self.world_size)
        return F.pad(flat, (0, size * self.world_size - flat.numel()))[self.rank * size : (self.rank + 1) * size].clone()

    @torch.no_grad()
    def all_gather_params(self):
        for param in self.module.parameters():
            parts = [torch.empty_like(param.ds_tensor) for _ in range(self.world_size)]
            dist.all_gather(parts, param.ds_tensor, group=self.dp_process_group)
            param.copy_(torch.cat(parts)[: param.ds_numel].view_as(param))

    def reduce_ready_partitions_and_remove_grads(self, param):
        if self.elements_in_ipg_bucket > 0 and self.elements_in_ipg_bucket + param.ds_numel > self.reduce_bucket_size:
            self.reduce_and_partition_ipg_grads()
        self.add_grad_to_ipg_bucket(param)

    @torch.no_grad()
    def add_grad_to_ipg_bucket(self, param):
        # a gradient that is larger than the bucket stays where it is
        if self.config.contiguous_gradients and self.elements_in_ipg_bucket + param.ds_numel < self.reduce_bucket_size:  # fixed: if self.config.contiguous_gradients and self.elements_in_ipg_bucket + param.ds_numel <= self.reduce_bucket_size:
            new_grad = self.ipg_bucket_flat_buffer.narrow(0, self.elements_in_ipg_bucket, param.ds_numel)
            new_grad.copy_(param.grad.flatten())
            param.grad = new_grad.view_as(param)
        self.params_in_ipg_bucket.append(param)
        self.elements_in_ipg_bucket += param.ds_numel

    @torch.no_grad()
    def reduce_and_partition_ipg_grads(self):
        fits = self.elements_in_ipg_bucket <= self.reduce_bucket_size  # fault
        if self.config.contiguous_gradients and fits and not self.config.reduce_scatter:
            grad_bucket = self.ipg_bucket_flat_buffer.narrow(0, 0, self.elements_in_ipg_bucket)
            partitions = self.avg_scatter_contiguous_grads(grad_bucket)
        else:
            partitions = self.avg_scatter_grads()
        for param, grad_partition in zip(self.params_in_ipg_bucket, partitions, strict=True):
            self.averaged_gradients[param] = grad_partition
            param.grad = None
        self.params_in_ipg_bucket, self.elements_in_ipg_bucket = [], 0

    def avg_scatter_contiguous_grads(self, buffer_to_reduce):
        buffer_to_reduce = buffer_to_reduce / self.world_size
        dist.all_reduce(buffer_to_reduce, group=self.dp_process_group)  # near
        grads = buffer_to_reduce.split([param.ds_numel for param in self.params_in_ipg_bucket])
        return [self.partition(grad) for grad in grads]

    def avg_scatter_grads(self):
        partitions = []
        for param in self.params_in_ipg_bucket:
            grad = F.pad(param.grad.flatten(), (0, param.ds_tensor.numel() * self.world_size - param.ds_numel))
            grad_partition = torch.empty_like(param.ds_tensor)
            dist.reduce_scatter_tensor(grad_partition, grad / self.world_size, group=self.dp_process_group)
            partitions.append(grad_partition)
        return partitions

    @torch.no_grad()
    def step(self):
        for param in self.module.parameters():
            param.momentum = self.config.momentum * param.momentum + self.averaged_gradients[param]
            param.ds_tensor = param.ds_tensor - self.config.lr * param.momentum
        self.averaged_gradients.clear()


class DeepSpeedEngine:
    def __init__(self, module, config, dp_process_group):
        self.module = module
        self.dp_process_group = dp_process_group
        self.optimizer = DeepSpeedZeroOptimizer_Stage3(module, config, dp_process_group)

    def train_batch(self, x, labels):
        self.optimizer.all_gather_params()
        loss = F.cross_entropy(self.module(x).flatten(0, 1), labels.flatten())
        loss.backward()
        self.optimizer.reduce_and_partition_ipg_grads()
        self.optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss, group=self.dp_process_group)
        return loss / dist.get_world_size(self.dp_process_group)


def reference(x, labels, *weights):
    config, module = DeepSpeedZeroConfig(), T5DenseActDense(*weights)
    optimizer = torch.optim.SGD(module.parameters(), lr=config.lr, momentum=config.momentum, foreach=False)
    losses = []
    for step in range(STEPS):
        loss = F.cross_entropy(module(x[step]).flatten(0, 1), labels[step].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **{name: p.detach() for name, p in module.weights.items()}}


def train(dp_process_group):
    def run(x, labels, *weights):
        module = T5DenseActDense(*weights)
        engine = DeepSpeedEngine(module, DeepSpeedZeroConfig().resolve(D_MODEL), dp_process_group)
        losses = [engine.train_batch(x[step], labels[step]) for step in range(STEPS)]
        engine.optimizer.all_gather_params()
        return {"losses": torch.stack(losses), **{name: p.detach() for name, p in module.weights.items()}}

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    weights = (gg.tensor(D_MODEL, FEATURES), gg.tensor(D_MODEL, D_MODEL), gg.tensor(D_MODEL, D_MODEL), gg.tensor(CLASSES, D_MODEL))
    batch = (gg.tensor(STEPS, BATCH, SEQ, FEATURES), gg.tensor(STEPS, BATCH, SEQ, dtype=torch.int64, high=CLASSES))
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    relations = (samples, samples, whole, whole, whole, whole)
    return gg.Refinement(reference, train(mesh.get_group("dp")), (*batch, *weights), in_relations=relations, out_relations="replicate", grads=False)
