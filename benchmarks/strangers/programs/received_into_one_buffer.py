"""A stage keeps what it received for the backward pass; every micro-batch is received into the same memory. Megatron-LM's light schedule.

Source: https://github.com/NVIDIA/Megatron-LM/pull/5876
Rule: wrong-relation
"""

from itertools import pairwise

import torch
import torch.distributed as dist

import graphguard as gg

WIDTHS, SAMPLES, MICRO_BATCHES = (3, 5, 4), 6, 3
STAGES = len(WIDTHS) - 1


class Stage:
    """A layer whose backward pass is written by hand."""

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias
        self.weight_grad, self.bias_grad = torch.zeros_like(weight), torch.zeros_like(bias)

    def forward(self, x):
        return torch.tanh(x @ self.weight + self.bias)

    def backward(self, x, output, grad):
        """Adds to the gradients; gives that of the input."""
        grad = grad * (1 - output * output)
        self.weight_grad += x.t() @ grad
        self.bias_grad += grad.sum(0)
        return grad @ self.weight.t()


def loss_fn(output, target):
    """The loss and its gradient, of all samples."""
    difference = output - target
    return difference.square().sum() / SAMPLES, 2 * difference / SAMPLES


def spec_step(x, target, *tensors):
    stages = [Stage(weight, bias) for weight, bias in zip(tensors[::2], tensors[1::2], strict=True)]
    saved = []
    for stage in stages:
        output = stage.forward(x)
        saved.append((x, output))
        x = output
    loss, grad = loss_fn(x, target)
    for stage, (received, output) in zip(reversed(stages), reversed(saved), strict=True):
        grad = stage.backward(received, output, grad)
    grads = {f"{i}.{name}": getattr(s, f"{name}_grad") for i, s in enumerate(stages) for name in ("weight", "bias")}
    return {"loss": loss, **grads}


class P2PCommunicator:
    """Receives into memory that is made once for each shape; ``clone`` gives copies of it."""

    def __init__(self, group, clone=False):
        self.group, self.clone = group, clone
        self.rank = dist.get_rank(group)
        self.buffers = {}

    def _recv(self, shape, source):
        buffer = self.buffers.setdefault((shape, source), torch.empty(shape))
        dist.recv(buffer, source, group=self.group)
        return buffer.clone() if self.clone else buffer  # near

    def recv_forward(self, rows, width):
        return self._recv((rows, width), self.rank - 1)

    def recv_backward(self, rows, width):
        return self._recv((rows, width), self.rank + 1)

    def send_forward(self, output):
        dist.send(output, self.rank + 1, group=self.group)

    def send_backward(self, grad):
        dist.send(grad, self.rank - 1, group=self.group)


class Schedule:
    """All forward passes of a stage, then all its backward passes."""

    def __init__(self, stage, widths, group):
        self.stage = stage
        self.width_in, self.width_out = widths
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.p2p = P2PCommunicator(group)  # fixed: self.p2p = P2PCommunicator(group, clone=True)
        self.saved = []
        self.loss = torch.zeros(())

    @property
    def is_first(self):
        return self.rank == 0

    @property
    def is_last(self):
        return self.rank == self.size - 1

    def forward_step(self, x):
        received = x if self.is_first else self.p2p.recv_forward(x.shape[0], self.width_in)
        output = self.stage.forward(received)
        if not self.is_last:
            self.p2p.send_forward(output)
        self.saved.append((received, output))  # fault

    def backward_step(self, target):
        received, output = self.saved.pop(0)
        if self.is_last:
            loss, grad = loss_fn(output, target)
            self.loss = self.loss + loss
        else:
            grad = self.p2p.recv_backward(output.shape[0], self.width_out)
        grad = self.stage.backward(received, output, grad)
        if not self.is_first:
            self.p2p.send_backward(grad)

    def run(self, x, target):
        for micro_batch in x.chunk(MICRO_BATCHES):
            self.forward_step(micro_batch)
        for micro_batch in target.chunk(MICRO_BATCHES):
            self.backward_step(micro_batch)


def whole(tensor, source, shape, group):
    """What one stage has, on all ranks."""
    tensor = torch.empty(shape) if tensor is None else tensor.clone()
    dist.broadcast(tensor, source, group=group)
    return tensor


def train_step(group):
    def step(x, target, *tensors):
        rank = dist.get_rank(group)
        stage = Stage(*tensors[2 * rank : 2 * rank + 2])
        schedule = Schedule(stage, WIDTHS[rank : rank + 2], group)
        schedule.run(x, target)
        result = {"loss": whole(schedule.loss, STAGES - 1, (), group)}
        for i in range(STAGES):
            for name, tensor in (("weight", tensors[2 * i]), ("bias", tensors[2 * i + 1])):
                own = getattr(stage, f"{name}_grad") if i == rank else None
                result[f"{i}.{name}"] = whole(own, i, tensor.shape, group)
        return result

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    tensors = []
    for width_in, width_out in pairwise(WIDTHS):
        tensors += [gg.tensor(width_in, width_out), gg.tensor(width_out)]
    batch = (gg.tensor(SAMPLES, WIDTHS[0]), gg.tensor(SAMPLES, WIDTHS[-1]))
    impl = train_step(mesh.get_group("pp"))
    return gg.Refinement(spec_step, impl, (*batch, *tensors), out_relations="replicate", grads=False)
