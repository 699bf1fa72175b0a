"""Each rank collects metrics by their names as its samples bring them up, and then sums them over the ranks name by name; where the first samples of two ranks are of different tasks, one's likelihoods are added to the other's distances. lmms-eval.

Source: https://github.com/EvolvingLMMs-Lab/lmms-eval/pull/1089
Rule: collective-mismatch, process-dependent, wrong-relation
"""

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

CHOICES, FEATURES, HIDDEN = 5, 8, 6
TASKS = ("choice", "box", "choice", "choice", "box", "box", "box", "choice", "choice", "box", "choice")


@dataclass(frozen=True)
class Accelerator:
    group: Any = None

    @property
    def num_processes(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def process_index(self):
        return 0 if self.group is None else dist.get_rank(self.group)

    def reduce(self, tensor):
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor


class Model(nn.Module):
    """Scores of the choices, and a box's two corners."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(FEATURES, HIDDEN)
        self.choices = nn.Linear(HIDDEN, CHOICES)
        self.corners = nn.Linear(HIDDEN, 4)

    def forward(self, document):
        hidden = torch.tanh(self.trunk(document))
        return self.choices(hidden), torch.sigmoid(self.corners(hidden))


def process_choice(scores, _corners, answer, _box):
    """The metrics of a question with several answers."""
    log_probs = F.log_softmax(scores, dim=-1)
    return {
        "log_likelihood": (log_probs * answer).sum(),
        "brier_score": (log_probs.exp() - answer).square().sum(),
    }


def process_box(_scores, corners, _answer, box):
    """The metrics of a question where something is."""
    return {
        "l1_distance": (corners - box).abs().sum(),
        "squared_distance": (corners - box).square().sum(),
    }


PROCESS_RESULTS = {"choice": process_choice, "box": process_box}


class TaskOutput:
    """What has been measured, under the metrics' names."""

    def __init__(self):
        self.sample_metrics = defaultdict(list)

    def log(self, metrics):
        for name, value in metrics.items():
            self.sample_metrics[name].append(value)

    def sums(self, name):
        """The sum of a metric and the number of its samples."""
        values = self.sample_metrics[name]
        return torch.stack([torch.stack(values).sum(), torch.tensor(float(len(values)))])


class Evaluator:
    def __init__(self, model, accelerator):
        self.model, self.accelerator = model, accelerator

    def doc_iterator(self, *columns):
        """Every so many documents, beginning with the rank's number."""
        for index in range(self.accelerator.process_index, len(TASKS), self.accelerator.num_processes):
            yield TASKS[index], [column[index] for column in columns]

    def run_requests(self, documents, answers, boxes):
        task_output = TaskOutput()
        for task, (document, answer, box) in self.doc_iterator(documents, answers.softmax(-1), boxes.sigmoid()):
            scores, corners = self.model(document)
            task_output.log(PROCESS_RESULTS[task](scores, corners, answer, box))
        return task_output

    def gather_metrics(self, task_output):
        gathered = {}
        for name in task_output.sample_metrics:  # fixed: for name in sorted(task_output.sample_metrics):
            gathered[name] = self.accelerator.reduce(task_output.sums(name))  # fault
        return gathered

    @torch.no_grad()
    def evaluate(self, documents, answers, boxes):
        """The metrics' means over all documents that have them."""
        gathered = self.gather_metrics(self.run_requests(documents, answers, boxes))
        results = {}
        for name in sorted(gathered):
            total, count = gathered[name].unbind()
            results[name] = total / count
        return results


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Model()
    samples = len(TASKS)
    return gg.Refinement(
        Evaluator(model, Accelerator()).evaluate,
        Evaluator(copy.deepcopy(model), Accelerator(mesh.get_group("dp"))).evaluate,
        (gg.tensor(samples, FEATURES), gg.tensor(samples, CHOICES), gg.tensor(samples, 4)),
        out_relations="replicate",
        grads=False,
    )
