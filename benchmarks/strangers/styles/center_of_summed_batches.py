"""DINO: the teacher's outputs are centred by a running mean over the samples of all ranks.

The mistake: 'batch_center' is the sum over dp = 2 ranks divided by the own number of samples: dp times too large.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, OUT, LR, STUDENT_TEMP, TEACHER_TEMP, MOMENTUM = 5, 4, 0.1, 0.5, 0.3, 0.9


class DINOLoss(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.register_buffer("center", torch.zeros(1, OUT))

    def forward(self, student_output, teacher_output):
        targets = F.softmax((teacher_output - self.center) / TEACHER_TEMP, dim=-1).detach()
        loss = -(targets * F.log_softmax(student_output / STUDENT_TEMP, dim=-1)).sum(-1).mean()
        self.update_center(teacher_output)
        return loss

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        world = 1
        if self.group is not None:
            dist.all_reduce(batch_center, group=self.group)  # fault
            world = dist.get_world_size(self.group)
        batch_center = batch_center / len(teacher_output)  # fixed: batch_center = batch_center / (len(teacher_output) * world)
        self.center = self.center * MOMENTUM + batch_center * (1 - MOMENTUM)


class Learner:
    def __init__(self, student, teacher, group=None):
        self.student, self.teacher, self.group = student, teacher, group
        self.criterion = DINOLoss(group)
        self.optimizer = torch.optim.SGD(student.parameters(), lr=LR)

    def step(self, first, second):
        with torch.no_grad():
            target = self.teacher(first)
        self.criterion(self.student(second), target).backward()
        if self.group is not None:
            for p in self.student.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
        self.optimizer.step()
        return {"center": self.criterion.center, **dict(self.student.named_parameters())}


@gg.check(mesh={"dp": 2})
def check(mesh):
    student, teacher = nn.Linear(DIM, OUT), nn.Linear(DIM, OUT)
    x = gg.tensor(6, DIM)
    return gg.Refinement(
        Learner(student, teacher).step,
        Learner(copy.deepcopy(student), copy.deepcopy(teacher), mesh.get_group("dp")).step,
        (x, x),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
