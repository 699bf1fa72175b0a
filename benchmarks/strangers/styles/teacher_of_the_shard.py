"""Distillation with vocabulary-parallel logits of teacher and student.

The mistake: the teacher's denominators are sums over the own part of the vocabulary: partial over 'tp'.

Rule: missing-reduction, nonlinear-on-partial, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

DIM, VOCAB, LR = 5, 8, 0.2


class ReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SumOfParts(torch.autograd.Function):
    """The sum, used by each rank for its own part: what comes back is summed as well."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def kl_loss(student, teacher):
    log_p, log_q = teacher.log_softmax(-1), student.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


class LogitsKLLoss:
    def __init__(self, group):
        self.group = group

    def __call__(self, student, teacher):
        student_denominator = SumOfParts.apply(student.exp().sum(-1, keepdim=True), self.group)
        teacher_denominator = teacher.exp().sum(-1, keepdim=True)  # fixed: teacher_denominator = ReduceSum.apply(teacher.exp().sum(-1, keepdim=True), self.group)
        log_q = student - student_denominator.log()
        log_p = teacher - teacher_denominator.log()
        per_token = (log_p.exp() * (log_p - log_q)).sum(-1)
        return ReduceSum.apply(per_token, self.group).mean()


class Student(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        world = 1 if group is None else dist.get_world_size(group)
        self.proj = nn.Linear(DIM, DIM)
        self.output_layer = nn.Linear(DIM, VOCAB // world, bias=False)

    def forward(self, x):
        h = torch.tanh(self.proj(x))
        return self.output_layer(h if self.group is None else CopyIn.apply(h, self.group))


def step_of(model, loss):
    def step(x, teacher):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        loss(model(x), teacher).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    group = mesh.get_group("tp")
    return gg.Refinement(
        step_of(Student(), kl_loss),
        step_of(Student(group), LogitsKLLoss(group)),
        (gg.tensor(3, 4, DIM), gg.tensor(3, 4, VOCAB)),
        in_relations=({"tp": Replicate()}, {"tp": Shard(2)}),
        out_relations={"proj.*": {"tp": Replicate()}, "output_layer.weight": {"tp": Shard(0)}},
        grads=False,
    )
