"""Several teachers are weighted by how well each does on the batch; every data-parallel rank takes its own part for the batch, and has weights of its own. NeMo RL.

Source: https://github.com/NVIDIA-NeMo/RL/pull/2797
Rule: missing-reduction, wrong-relation, wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, VOCABULARY, TEACHERS, TOKENS = 3, 5, 2, 12
CE_LOSS_SCALE, SOFTMAX_TEMPERATURE = 0.4, 0.5


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, hidden_states):
        return self.lm_head(torch.tanh(self.decoder(hidden_states)))


def dp_global_mean(values, group=None):
    """The mean over the tokens of all ranks of a group."""
    total, count = values.sum(), torch.tensor(float(values.numel()))
    if group is not None:
        dist.all_reduce(total, group=group)
        dist.all_reduce(count, group=group)
    return total / count


class DistillationLossFn:
    """One teacher: the student's cross entropy against the teacher's distribution, summed over the own tokens."""

    def __call__(self, student_logits, teacher_logits):
        teacher_probs = teacher_logits.softmax(-1)
        return -(teacher_probs * student_logits.log_softmax(-1)).sum()


class MultiTeacherLossAggregator:
    """The teachers' losses, weighted by a softmax of their scores; and the loss of the labels."""

    def __init__(self, loss_fn, sum_weights_metric, dp_group=None):
        self.loss_fn = loss_fn
        self.sum_weights_metric = sum_weights_metric
        self.dp_group = dp_group

    def teacher_weight_score(self, teacher_logits, labels):
        """The better a teacher, the higher."""
        if self.sum_weights_metric == "ce":
            ce = F.cross_entropy(teacher_logits, labels, reduction="none")
            return -dp_global_mean(ce, self.dp_group)  # near
        probs = teacher_logits.softmax(-1)
        return dp_global_mean((probs * teacher_logits.log_softmax(-1)).sum(-1), self.dp_group)

    def compute_dynamic_weights(self, teachers_logits, labels):
        scores = [self.teacher_weight_score(logits, labels) for logits in teachers_logits]
        return torch.softmax(torch.stack(scores) / SOFTMAX_TEMPERATURE, dim=0)  # fault

    def __call__(self, student_logits, teachers_logits, labels, global_valid_toks):
        weights = self.compute_dynamic_weights(teachers_logits, labels).detach()
        losses = [self.loss_fn(student_logits, logits) for logits in teachers_logits]
        total_kd = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        ce = F.cross_entropy(student_logits, labels, reduction="sum")
        return (total_kd + CE_LOSS_SCALE * ce) / global_valid_toks


class PolicyWorker:
    """Losses are divided by the tokens of all ranks, gradients are summed."""

    def __init__(self, model, sum_weights_metric, dp_group=None):
        self.model = model
        self.dp_group = dp_group
        self.loss_fn = self.build_loss_fn(sum_weights_metric)

    def build_loss_fn(self, sum_weights_metric):
        return MultiTeacherLossAggregator(DistillationLossFn(), sum_weights_metric)  # fixed: return MultiTeacherLossAggregator(DistillationLossFn(), sum_weights_metric, self.dp_group)

    def all_reduced(self, tensor):
        tensor = tensor.detach().clone()
        if self.dp_group is not None:
            dist.all_reduce(tensor, group=self.dp_group)
        return tensor

    def train(self, hidden_states, teachers_logits, labels):
        global_valid_toks = self.all_reduced(torch.tensor(float(labels.numel())))
        loss = self.loss_fn(self.model(hidden_states), teachers_logits.unbind(0), labels, global_valid_toks)
        loss.backward()
        grads = {name: self.all_reduced(parameter.grad) for name, parameter in self.model.named_parameters()}
        return self.all_reduced(loss), grads


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Student()
    local = PolicyWorker(copy.deepcopy(model), "ce", mesh.get_group("dp"))
    inputs = (
        gg.tensor(TOKENS, HIDDEN),
        gg.tensor(TEACHERS, TOKENS, VOCABULARY),
        gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY),
    )
    return gg.Refinement(
        PolicyWorker(model, "ce").train,
        local.train,
        inputs,
        in_relations=({"dp": Shard(0)}, {"dp": Shard(1)}, {"dp": Shard(0)}),
        out_relations="replicate",
        grads=False,
    )
