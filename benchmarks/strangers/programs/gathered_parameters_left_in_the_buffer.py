"""Parameters are gathered into the gradients' buffer, and the backward pass adds to what lies there. Megatron-LM's layer-wise optimizer.

Source: https://github.com/NVIDIA/Megatron-LM/pull/4609
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SAMPLES, WIDTH, INNER, OUT, LR, STEPS = 6, 4, 5, 3, 0.25, 2
NAMES = ("up", "up_bias", "down", "down_bias")
SHAPES = ((INNER, WIDTH), (INNER,), (OUT, INNER), (OUT,))


class Model(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        for name, tensor in zip(NAMES, tensors, strict=True):
            setattr(self, name, nn.Parameter(tensor.detach().clone()))

    def forward(self, x):
        return torch.tanh(x @ self.up.t() + self.up_bias) @ self.down.t() + self.down_bias


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class Bucket:
    """One row of the buffer for each rank, with the parameters that this rank's optimizer has."""

    def __init__(self, parameters, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.parameters = parameters
        self.owners = [index % self.size for index in range(len(parameters))]
        self.offsets, filled = [], [0] * self.size
        for parameter, owner in zip(parameters, self.owners, strict=True):
            self.offsets.append(filled[owner])
            filled[owner] += parameter.numel()
        self.grad_data = torch.zeros(self.size, max(filled))

    def view(self, index):
        """A parameter's place in the buffer, which is its ``main_grad``."""
        parameter, offset = self.parameters[index], self.offsets[index]
        row = self.grad_data[self.owners[index]]
        return row[offset : offset + parameter.numel()].view(parameter.shape)

    def owned(self):
        return [index for index, owner in enumerate(self.owners) if owner == self.rank]

    def start_param_sync(self):
        """No memory of its own: the gradients of this step are not there yet."""
        own = torch.cat([self.parameters[index].detach().reshape(-1) for index in self.owned()])
        padded = torch.zeros(self.grad_data.shape[1])
        padded[: own.numel()] = own
        dist.all_gather_into_tensor(self.grad_data.view(-1), padded, group=self.group)

    def finish_param_sync(self):
        with torch.no_grad():
            for index, parameter in enumerate(self.parameters):
                if self.owners[index] != self.rank:
                    parameter.copy_(self.view(index))
        # fixed, insert: self.grad_data.zero_()

    def accumulate(self):
        for index, parameter in enumerate(self.parameters):
            self.view(index).add_(parameter.grad)  # near
            parameter.grad = None

    def finish_grad_sync(self):
        dist.all_reduce(self.grad_data, group=self.group)
        self.grad_data.div_(self.size)


class LayerWiseDistributedOptimizer:
    """Every rank updates whole parameters, but not all of them."""

    def __init__(self, bucket):
        self.bucket = bucket

    def zero_grad(self):
        self.bucket.grad_data.zero_()

    @torch.no_grad()
    def step(self):
        for index in self.bucket.owned():
            self.bucket.parameters[index].sub_(LR * self.bucket.view(index))


def train(group):
    def impl(inputs, targets, *tensors):
        model = Model(tensors)
        bucket = Bucket(list(model.parameters()), group)
        optimizer = LayerWiseDistributedOptimizer(bucket)
        for step in range(STEPS):
            optimizer.zero_grad()
            bucket.start_param_sync()
            bucket.finish_param_sync()
            loss_fn(model(inputs[step]), targets[step]).backward()
            bucket.accumulate()
            bucket.finish_grad_sync()
            optimizer.step()
        bucket.start_param_sync()
        bucket.finish_param_sync()
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    return impl


def spec(inputs, targets, *tensors):
    model = Model(tensors)
    for step in range(STEPS):
        grads = torch.autograd.grad(loss_fn(model(inputs[step]), targets[step]), list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.sub_(LR * grad)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(STEPS, SAMPLES, WIDTH), gg.tensor(STEPS, SAMPLES, OUT))
    tensors = [gg.tensor(*shape) for shape in SHAPES]
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        spec,
        train(mesh.get_group("dp")),
        (*batch, *tensors),
        in_relations=(samples, samples, *[whole] * len(tensors)),
        out_relations="replicate",
        grads=False,
    )
