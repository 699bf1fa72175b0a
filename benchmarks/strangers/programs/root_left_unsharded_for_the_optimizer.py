"""A module that is sharded stays whole after a forward pass if it is the root, whatever was asked for; an optimizer made after an evaluation holds its whole parameters, which are not those that are trained. FSDP2.

Source: https://github.com/pytorch/pytorch/issues/149205
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, SAMPLES, WIDTH, INNER, OUT, LR = 2, 14, 5, 6, 4, 0.2


class FSDPParam:
    """A parameter's rows of this rank, and the memory of all of them."""

    def __init__(self, module, name, group):
        self.module, self.name, self.group = module, name, group
        self.size = dist.get_world_size(group)
        whole = getattr(module, name).detach()
        self.sharded = nn.Parameter(whole.chunk(self.size)[dist.get_rank(group)].clone())
        self.unsharded = nn.Parameter(torch.empty_like(whole))
        self.to_sharded()

    def to_sharded(self):
        setattr(self.module, self.name, self.sharded)

    @torch.no_grad()
    def to_unsharded(self):
        dist.all_gather_into_tensor(self.unsharded.data, self.sharded.data, group=self.group)
        setattr(self.module, self.name, self.unsharded)

    def reduce_grad(self):
        """The mean over the ranks, of which each keeps its rows."""
        grad, self.unsharded.grad = self.unsharded.grad, None
        self.sharded.grad = torch.empty_like(self.sharded)
        dist.reduce_scatter_tensor(self.sharded.grad, grad / self.size, group=self.group)


class FSDPState:
    """Of a module's own parameters: those of its children that have a state are theirs."""

    def __init__(self, module, group, reshard_after_forward):
        self.reshard_after_forward = reshard_after_forward
        self.children = [child.fsdp_state for child in module.children() if hasattr(child, "fsdp_state")]
        names = [name for name, _ in module.named_parameters(recurse=False)]
        self.params = [FSDPParam(module, name, group) for name in names]
        self.is_root = True
        self.is_unsharded = False
        for state in self.children:
            state.is_root = False
        module.register_forward_pre_hook(self.pre_forward)
        module.register_forward_hook(self.post_forward)

    def pre_forward(self, module, args):
        if not self.is_unsharded:
            for param in self.params:
                param.to_unsharded()
            self.is_unsharded = True

    def post_forward(self, module, args, output):
        if self.reshard_after_forward and not self.is_root:  # fixed: if self.reshard_after_forward:
            self.reshard()

    def reshard(self):
        for param in self.params:
            param.to_sharded()
        self.is_unsharded = False

    def post_backward(self):
        for state in self.children:
            state.post_backward()
        for param in self.params:
            param.reduce_grad()
        self.reshard()


def fully_shard(module, group, *, reshard_after_forward=True):
    module.fsdp_state = FSDPState(module, group, reshard_after_forward)
    return module


class Block(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.weight.t())


class Model(nn.Module):
    """A block, and what comes after it."""

    def __init__(self, block, head, scale):
        super().__init__()
        self.block = Block(block)
        self.head, self.scale = nn.Parameter(head.detach().clone()), nn.Parameter(scale.detach().clone())

    def forward(self, x):
        return (self.block(x) * self.scale) @ self.head.t()


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class SGD:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.sub_(self.lr * parameter.grad)
                parameter.grad = None


class Trainer:
    """Evaluates, then trains; ``group``: of the ranks that share the data."""

    def __init__(self, model, group=None):
        self.model, self.group = model, group
        if group is not None:
            fully_shard(model.block, group)
            fully_shard(model, group)

    @torch.no_grad()
    def evaluate(self, x, target):
        loss = loss_fn(self.model(x), target)
        if self.group is not None:
            dist.all_reduce(loss, group=self.group)
            loss /= dist.get_world_size(self.group)
        return loss

    def configure_optimizer(self):
        return SGD(self.model.parameters(), LR)  # near

    def fit(self, inputs, targets):
        first = self.evaluate(inputs[0], targets[0])
        optimizer = self.configure_optimizer()
        for x, target in zip(inputs, targets, strict=True):
            loss_fn(self.model(x), target).backward()
            if self.group is not None:
                self.model.fsdp_state.post_backward()
            optimizer.step()
        block = self.model.block.weight.detach()
        return {"loss": first, "block": block, "head": self.model.head.detach(), "scale": self.model.scale.detach()}


def trained(group=None):
    def run(inputs, targets, *tensors):
        return Trainer(Model(*tensors), group).fit(inputs, targets)

    return run


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(STEPS, SAMPLES, WIDTH), gg.tensor(STEPS, SAMPLES, OUT))
    tensors = (gg.tensor(INNER, WIDTH), gg.tensor(OUT, INNER), gg.tensor(INNER))
    samples, whole, rows = {"dp": Shard(1)}, {"dp": Replicate()}, {"dp": Shard(0)}
    return gg.Refinement(
        trained(),
        trained(mesh.get_group("dp")),
        batch + tensors,
        in_relations=(samples, samples, whole, whole, whole),
        out_relations=(whole, rows, rows, rows),
        grads=False,
    )
