"""ZeRO-2: gradients are accumulated by hand, and the engine takes each backward pass for the last one of a step, so that it forgets those before. open-instruct.

Source: https://github.com/allenai/open-instruct/pull/1498
Rule: wrong-relation
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, INNER, ACCUMULATION, LR = 3, 4, 3, 0.2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, INNER, bias=False)
        self.second = nn.Linear(INNER, 2, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def policy_loss(model, x, advantages):
    return (model(x).log_softmax(-1) * advantages).sum(-1).mean()


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def spec_step(model):
    def step(x, advantages):
        policy_loss(model, x, advantages).backward()
        return flat(model.parameters()).detach() - LR * flat(parameter.grad for parameter in model.parameters())

    return step


class DeepSpeedZeroOptimizer:
    """Gradients are averaged and cut as soon as they are there; what has been cut is added up until the step."""

    def __init__(self, module, dp_process_group):
        self.bit16_params = list(module.parameters())
        self.dp_process_group = dp_process_group
        self.rank, self.size = dist.get_rank(dp_process_group), dist.get_world_size(dp_process_group)
        self.is_gradient_accumulation_boundary = True
        self.all_grad_tensors = None
        self.averaged_gradients = None

    def get_flat_partition(self, tensor):
        return tensor.chunk(self.size)[self.rank]

    def reduce_ipg_grads(self):
        bucket = flat(parameter.grad for parameter in self.bit16_params)
        partition = torch.empty(bucket.numel() // self.size)
        dist.reduce_scatter_tensor(partition, bucket, op=dist.ReduceOp.AVG, group=self.dp_process_group)
        for parameter in self.bit16_params:
            parameter.grad = None
        return partition

    def independent_gradient_partition_epilogue(self):
        partition = self.reduce_ipg_grads()
        if self.all_grad_tensors is None:
            self.all_grad_tensors = partition
        else:
            self.all_grad_tensors = self.all_grad_tensors + partition
        if self.is_gradient_accumulation_boundary:
            self.averaged_gradients = self.all_grad_tensors  # fault
            self.all_grad_tensors = None  # fault

    def backward(self, loss):
        loss.backward()
        self.independent_gradient_partition_epilogue()

    def step(self):
        partition = self.get_flat_partition(flat(self.bit16_params).detach())
        return partition - LR * self.averaged_gradients


class DeepSpeedEngine:
    """An engine whose configuration has ``gradient_accumulation_steps`` of 1."""

    def __init__(self, module, group):
        self.module = module
        self.optimizer = DeepSpeedZeroOptimizer(module, group)

    def set_gradient_accumulation_boundary(self, is_boundary):
        self.optimizer.is_gradient_accumulation_boundary = is_boundary

    def backward(self, loss):
        self.optimizer.backward(loss)

    def step(self):
        return self.optimizer.step()


class PolicyTrainer:
    def __init__(self, model, group):
        self.engine = DeepSpeedEngine(model, group)

    def step(self, x, advantages):
        batches = list(zip(x.chunk(ACCUMULATION), advantages.chunk(ACCUMULATION), strict=True))
        for states, own_advantages in batches:
            loss = policy_loss(self.engine.module, states, own_advantages) / len(batches)
            # fixed, insert: self.engine.set_gradient_accumulation_boundary(states is batches[-1][0])
            self.engine.backward(loss)  # fault
        return self.engine.step()


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Policy()
    trainer = PolicyTrainer(copy.deepcopy(model), mesh.get_group("dp"))
    rows = {"dp": Shard(0)}
    inputs = (gg.tensor(12, FEATURES), gg.tensor(12, 2))
    return gg.Refinement(
        spec_step(model), trainer.step, inputs, in_relations=rows, out_relations=rows, grads=False
    )
