"""Batch statistics are put together of the ranks' means and variances; each rank weighs them by how many pixels it has itself, though the images of the others are larger or smaller. PyTorch's SyncBatchNorm.

Source: https://github.com/pytorch/pytorch/issues/22192
Rule: wrong-scale, wrong-relation, missing-reduction
"""

import copy
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

CHANNELS, FEATURES, CLASSES = 3, 4, 2
IMAGES = (((2, 3), (2, 2), (1, 5)), ((1, 2), (3, 2), (2, 2)))  # of each iteration, those of the ranks
PIXELS = sum(prod(size) for iteration in IMAGES for size in iteration)


@dataclass(frozen=True)
class ProcessGroup:
    group: Any = None

    @property
    def world_size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)

    def all_gather(self, tensor):
        gathered = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(gathered, tensor.contiguous(), group=self.group)
        return torch.stack(gathered)


def batch_norm_stats(input_, eps):
    mean = input_.mean((0, 2, 3))
    var = input_.var((0, 2, 3), unbiased=False)
    return mean, (var + eps).rsqrt()


def batch_norm_gather_stats(mean_all, invstd_all, running_mean, running_var, momentum, eps, counts):
    """Welford's sums over the ranks, one after the other."""
    n, avg, var_n = 0, torch.zeros_like(running_mean), torch.zeros_like(running_var)
    for mean, invstd, count in zip(mean_all, invstd_all, counts, strict=True):
        v = (invstd.pow(-2) - eps) * count  # near
        factor = 1.0 / (n + count)
        var_n = var_n + v + (avg - mean) ** 2 * n * count * factor
        avg = n * factor * avg + count * factor * mean  # near
        n = n + count
    running_mean.mul_(1 - momentum).add_(momentum * avg)
    running_var.mul_(1 - momentum).add_(momentum * var_n / (n - 1))
    return avg, (var_n / n + eps).rsqrt()


class SyncBatchNorm(nn.Module):
    def __init__(self, num_features, process_group, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum, self.process_group = eps, momentum, process_group
        self.weight = nn.Parameter(torch.rand(num_features) + 0.5)
        self.bias = nn.Parameter(torch.rand(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def synchronized_stats(self, input_):
        mean, invstd = batch_norm_stats(input_, self.eps)
        count = torch.tensor([input_.numel() // input_.shape[1]], dtype=input_.dtype)
        group = self.process_group
        if group.world_size == 1:
            mean_all, invstd_all, counts = mean[None], invstd[None], count
        else:
            mean_all, invstd_all = group.all_gather(mean), group.all_gather(invstd)
            counts = count.expand(group.world_size)  # fixed: counts = group.all_gather(count).flatten()
        return batch_norm_gather_stats(
            mean_all,
            invstd_all,
            self.running_mean,
            self.running_var,
            self.momentum,
            self.eps,
            counts,  # near
        )

    def forward(self, input_):
        if self.training:
            mean, invstd = self.synchronized_stats(input_)
        else:
            mean, invstd = self.running_mean, (self.running_var + self.eps).rsqrt()
        scale = (self.weight * invstd)[:, None, None]
        return (input_ - mean[:, None, None]) * scale + self.bias[:, None, None]


class SegmentationHead(nn.Module):
    """A class for each pixel."""

    def __init__(self, process_group):
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, FEATURES, 1)
        self.norm1 = SyncBatchNorm(FEATURES, process_group)
        self.conv2 = nn.Conv2d(FEATURES, FEATURES, 1)
        self.norm2 = SyncBatchNorm(FEATURES, process_group)
        self.classifier = nn.Conv2d(FEATURES, CLASSES, 1)

    def forward(self, image):
        hidden = torch.relu(self.norm1(self.conv1(image)))
        return self.classifier(torch.relu(self.norm2(self.conv2(hidden))))


class ImageLoader:
    """An image for each rank and iteration; one process has all pixels of an iteration in a row."""

    def __init__(self, pixels, process_group):
        self.pixels, self.process_group = pixels, process_group

    def __iter__(self):
        start = 0
        for sizes in IMAGES:
            total = sum(prod(size) for size in sizes)
            if self.process_group.world_size == 1:
                yield self.pixels[:, start : start + total].reshape(1, CHANNELS, 1, total)
            else:
                rank = self.process_group.rank
                first = start + sum(prod(size) for size in sizes[:rank])
                own = self.pixels[:, first : first + prod(sizes[rank])]
                yield own.reshape(1, CHANNELS, *sizes[rank])
            start += total


def adapt_and_predict(model, process_group):
    """Forward passes that train nothing but the statistics, then a prediction."""

    @torch.no_grad()
    def run(pixels, test_image):
        model.train()
        for image in ImageLoader(pixels, process_group):
            model(image)
        model.eval()
        statistics = {name.replace(".", "_"): buffer.clone() for name, buffer in model.named_buffers()}
        return {"logits": model(test_image), **statistics}

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    one, group = ProcessGroup(), ProcessGroup(mesh.get_group("dp"))
    model, replica = SegmentationHead(one), SegmentationHead(group)
    replica.load_state_dict(copy.deepcopy(model.state_dict()))
    return gg.Refinement(
        adapt_and_predict(model, one),
        adapt_and_predict(replica, group),
        (gg.tensor(CHANNELS, PIXELS), gg.tensor(1, CHANNELS, 3, 2)),
        out_relations="replicate",
        grads=False,
    )
