"""A cyclic sampler deals all samples to the ranks, then each drops what does not fill a batch: ranks begin their next epoch at different steps. Megatron Bridge.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5944
Rule: wrong-shard, wrong-relation
"""

import copy
import random

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

DATASET_SIZE, FEATURES, HIDDEN, OUTPUTS = 16, 3, 4, 2
GLOBAL_BATCH_SIZE, CONSUMED_SAMPLES, TRAIN_ITERS = 6, 6, 3
LR, SEED = 0.1, 1234


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(FEATURES, HIDDEN)
        self.down = nn.Linear(HIDDEN, OUTPUTS, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class MegatronPretrainingRandomSampler:
    """One epoch's batches of this rank, from where training stopped; the epoch's number is the seed of its order."""

    def __init__(self, total_samples, consumed_samples, micro_batch_size, data_parallel_rank, data_parallel_size):
        self.total_samples = total_samples
        self.consumed_samples = consumed_samples
        self.micro_batch_size = micro_batch_size
        self.data_parallel_rank = data_parallel_rank
        self.data_parallel_size = data_parallel_size
        self.micro_batch_times_data_parallel_size = micro_batch_size * data_parallel_size
        self.last_batch_size = total_samples % self.micro_batch_times_data_parallel_size

    def permutation(self, epoch):
        order = list(range(self.total_samples))
        random.Random(SEED + epoch).shuffle(order)
        return order

    def __iter__(self):
        """Whole batches only: what is left of the data at an epoch's end is not used in it."""
        active_total_samples = self.total_samples - self.last_batch_size
        epoch = self.consumed_samples // active_total_samples
        current_epoch_samples = self.consumed_samples % active_total_samples
        idx_range_total = self.permutation(epoch)
        idx_range_active = idx_range_total[current_epoch_samples:]  # fixed: idx_range_active = idx_range_total[current_epoch_samples:active_total_samples]
        idx_range = idx_range_active[self.data_parallel_rank :: self.data_parallel_size]  # near
        batch = []
        for idx in idx_range:
            batch.append(idx)
            if len(batch) == self.micro_batch_size:
                self.consumed_samples += self.micro_batch_times_data_parallel_size
                yield batch
                batch = []


def cyclic_iter(sampler):
    """Epoch after epoch."""
    while True:
        yield from sampler


class Trainer:
    """Plain SGD; every rank picks its rows of the same data set."""

    def __init__(self, model, group=None):
        self.model = model
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)

    def build_train_sampler(self):
        micro_batch_size = GLOBAL_BATCH_SIZE // self.size
        return MegatronPretrainingRandomSampler(DATASET_SIZE, CONSUMED_SAMPLES, micro_batch_size, self.rank, self.size)

    def train_step(self, x, target):
        self.model.zero_grad()
        (self.model(x) - target).square().mean().backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                if self.group is not None:
                    dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=self.group)  # near
                parameter -= LR * parameter.grad

    def train(self, x, target):
        batches = cyclic_iter(self.build_train_sampler())
        for _ in range(TRAIN_ITERS):
            rows = next(batches)
            self.train_step(x[rows], target[rows])  # fault
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Regressor()
    local = Trainer(copy.deepcopy(model), mesh.get_group("dp"))
    inputs = (gg.tensor(DATASET_SIZE, FEATURES), gg.tensor(DATASET_SIZE, OUTPUTS))
    return gg.Refinement(
        Trainer(model).train, local.train, inputs, in_relations="replicate", out_relations="replicate", grads=False
    )
