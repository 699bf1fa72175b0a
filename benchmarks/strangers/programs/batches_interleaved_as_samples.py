"""Samples are dealt to the ranks in turn, and results are put together in turn; a rank hands over its results batch by batch, so that whole batches are interleaved, and each prediction is compared with another image's label. MMClassification.

Source: https://github.com/open-mmlab/mmpretrain/issues/173
Rule: wrong-relation, wrong-shard
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

IMAGES, SAMPLES_PER_GPU, CHANNELS, SIZE, CLASSES = 23, 4, 5, 6, 7


@dataclass(frozen=True)
class DistributedSampler:
    """Indices in turn, filled up with the first ones so that all ranks have as many."""

    length: int
    num_replicas: int
    rank: int

    def __iter__(self):
        num_samples = math.ceil(self.length / self.num_replicas)
        total_size = num_samples * self.num_replicas
        indices = list(range(self.length))
        indices += indices[: total_size - self.length]
        return iter(indices[self.rank : total_size : self.num_replicas])


class ImageDataset:
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return self.images.shape[0]

    def load(self, indices):
        return torch.stack([self.images[index] for index in indices])

    def evaluate(self, results):
        """Of all predictions, those that agree with the images' labels, softly counted."""
        scores = torch.cat([result.reshape(-1, CLASSES) for result in results])
        right = scores.gather(1, self.labels.unsqueeze(1))
        return {"scores": scores, "soft_accuracy": right.mean(), "nll": -right.log().mean()}


class DataLoader:
    def __init__(self, dataset, sampler, batch_size):
        self.dataset, self.sampler, self.batch_size = dataset, sampler, batch_size

    def __iter__(self):
        indices = list(self.sampler)
        for start in range(0, len(indices), self.batch_size):
            yield self.dataset.load(indices[start : start + self.batch_size])


class ImageClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(CHANNELS, 8, 3)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images):
        features = torch.relu(self.backbone(images)).mean((2, 3))
        return F.softmax(self.head(features), dim=-1)


def single_gpu_test(model, data_loader):
    model.eval()
    results = []
    for images in data_loader:
        results.extend(model(images))
    return results


def multi_gpu_test(model, data_loader, group):
    model.eval()
    results = []
    for images in data_loader:
        result = model(images)
        results.append(result)  # fixed: results.extend(result)
    return collect_results_gpu(results, len(data_loader.dataset), group)


def collect_results_gpu(result_part, size, group):
    """All ranks' results, one of each rank in turn, without those that the sampler has added."""
    part_send = torch.stack(list(result_part))
    part_list = [torch.empty_like(part_send) for _ in range(dist.get_world_size(group))]
    dist.all_gather(part_list, part_send, group=group)
    ordered_results = []
    for res in zip(*part_list, strict=True):  # near
        ordered_results.extend(list(res))  # near
    rows = torch.cat([result.reshape(-1, CLASSES) for result in ordered_results])
    return list(rows[:size])


def run_test(model, group: Any = None):
    """As the test script does it, with and without a launcher."""

    @torch.no_grad()
    def run(images, labels):
        dataset = ImageDataset(images, labels)
        if group is None:
            sampler = DistributedSampler(len(dataset), 1, 0)
            results = single_gpu_test(model, DataLoader(dataset, sampler, SAMPLES_PER_GPU))
        else:
            sampler = DistributedSampler(len(dataset), dist.get_world_size(group), dist.get_rank(group))
            results = multi_gpu_test(model, DataLoader(dataset, sampler, SAMPLES_PER_GPU), group)
        return dataset.evaluate(results)

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = ImageClassifier()
    return gg.Refinement(
        run_test(model),
        run_test(copy.deepcopy(model), mesh.get_group("dp")),
        (gg.tensor(IMAGES, CHANNELS, SIZE, SIZE), gg.tensor(IMAGES, dtype=torch.int64, high=CLASSES)),
        out_relations="replicate",
        grads=False,
    )
