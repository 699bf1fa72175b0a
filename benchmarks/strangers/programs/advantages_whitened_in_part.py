"""Advantages are whitened by sums over the data-parallel ranks that have the same part of each sequence, not over all parts: slime under context parallelism.

Source: https://github.com/THUDM/slime/pull/2235
Rule: wrong-group, missing-reduction
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, LENGTH, EPSILON, GAMMA = 4, 9, 1e-8, 0.9


def masked_whiten(values, mask):
    """Zero mean and unit variance over what the mask keeps."""
    total = mask.sum()
    mean = (values * mask).sum() / total
    variance = (values.square() * mask).sum() / total - mean.square()
    variance = variance * total / (total - 1)
    return (values - mean) * torch.rsqrt(variance + EPSILON)


def policy_loss(ratio, advantages, mask, total):
    return -(ratio * advantages * mask).sum() / total


def spec_step(rewards, values, ratio, mask):
    mask = mask.float()
    advantages = masked_whiten(rewards - GAMMA * values, mask)
    return {"advantages": advantages, "loss": policy_loss(ratio, advantages, mask, mask.sum())}


class ParallelState:
    """Megatron's groups; data parallelism excludes context parallelism unless it is asked for."""

    def __init__(self, mesh):
        self.mesh = mesh

    def get_data_parallel_group(self, with_context_parallel=False):
        return dist.group.WORLD if with_context_parallel else self.mesh.get_group("dp")


def distributed_masked_whiten(values, mask, process_group):
    """The same over all ranks of a group, from three sums."""
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=process_group)  # near
    total_sum, total_square, total = stats
    mean = total_sum / total
    variance = total_square / total - mean.square()
    variance = variance * total / (total - 1)
    return (values - mean) * torch.rsqrt(variance + EPSILON)


class MegatronTrainRayActor:
    def __init__(self, mpu, normalize_advantages=True):
        self.mpu = mpu
        self.normalize_advantages = normalize_advantages

    def compute_advantages_and_returns(self, rewards, values, mask):
        advantages = rewards - GAMMA * values
        if self.normalize_advantages:
            dp_group = self.mpu.get_data_parallel_group()  # fixed: dp_group = self.mpu.get_data_parallel_group(with_context_parallel=True)
            advantages = distributed_masked_whiten(advantages, mask, process_group=dp_group)  # near
        return advantages

    def reduced(self, x):
        dist.all_reduce(x, group=self.mpu.get_data_parallel_group(with_context_parallel=True))
        return x

    def train(self, rewards, values, ratio, mask):
        mask = mask.float()
        advantages = self.compute_advantages_and_returns(rewards, values, mask)
        total = self.reduced(mask.sum())
        loss = policy_loss(ratio, advantages, mask, total)
        return {"advantages": advantages, "loss": self.reduced(loss)}


@gg.check(mesh={"dp": 2, "cp": 3})
def check(mesh):
    actor = MegatronTrainRayActor(ParallelState(mesh))
    batch, mask = gg.tensor(SAMPLES, LENGTH), gg.tensor(SAMPLES, LENGTH, dtype=torch.int64, high=2)
    parts = {"dp": Shard(0), "cp": Shard(1)}
    return gg.Refinement(
        spec_step, actor.train, (batch, batch, batch, mask), in_relations=parts, out_relations=(parts, {}), grads=False
    )
