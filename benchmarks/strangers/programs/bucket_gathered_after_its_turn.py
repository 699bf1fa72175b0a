"""Parameters are gathered bucket by bucket, each on its way while the one before is used; a module that runs earlier than it was registered uses the weights of the step before. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/issues/950
Rule: wrong-relation, wrong-shard
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, SAMPLES, WIDTH, HIDDEN, INNER, OUT, LR = 2, 14, 3, 6, 5, 4, 0.2
SHAPES = {"word_embeddings": (HIDDEN, WIDTH), "output_layer": (OUT, INNER), "decoder": (INNER, HIDDEN)}


class Linear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return x @ self.weight.t()


class Model(nn.Module):
    def __init__(self, word_embeddings, output_layer, decoder):
        super().__init__()
        self.word_embeddings = Linear(word_embeddings)
        self.output_layer = Linear(output_layer)
        self.decoder = Linear(decoder)

    def forward(self, x):
        hidden = torch.tanh(self.word_embeddings(x))
        return self.output_layer(torch.tanh(self.decoder(hidden)))


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class Bucket:
    """A module's parameters in one buffer, of which every rank updates its part."""

    def __init__(self, module, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.parameters = list(module.parameters())
        self.numels = [parameter.numel() for parameter in self.parameters]
        self.shard_numel = -(-sum(self.numels) // self.size)
        self.param_data = torch.zeros(self.shard_numel * self.size)
        for parameter, view in zip(self.parameters, self.views(self.param_data), strict=True):
            view.copy_(parameter.data)
            parameter.data = view
        self.next_bucket = None
        self.needs_sync = False
        self.param_gather_handle = None

    def views(self, buffer):
        parts = buffer[: sum(self.numels)].split(self.numels)
        return [part.view_as(parameter) for parameter, part in zip(self.parameters, parts, strict=True)]

    def shard(self, buffer):
        return buffer[self.rank * self.shard_numel : (self.rank + 1) * self.shard_numel]

    def start_param_sync(self):
        """Begin to gather what the ranks have updated; nothing to do where that was begun before."""
        if not self.needs_sync:
            return
        self.needs_sync = False
        self.gathered = torch.empty_like(self.param_data)
        own = self.shard(self.param_data).clone()
        self.param_gather_handle = dist.all_gather_into_tensor(self.gathered, own, group=self.group, async_op=True)

    def finish_param_sync(self):
        """Wait for the parameters, and have the next ones sent."""
        # fixed, insert: self.start_param_sync()
        if self.param_gather_handle is None:
            return  # fault
        self.param_gather_handle.wait()
        self.param_gather_handle = None
        self.param_data.copy_(self.gathered)
        if self.next_bucket is not None:
            self.next_bucket.start_param_sync()

    def reduced_grad(self):
        grad = torch.zeros_like(self.param_data)
        for parameter, view in zip(self.parameters, self.views(grad), strict=True):
            view.copy_(parameter.grad)
            parameter.grad = None
        own = torch.empty(self.shard_numel)
        dist.reduce_scatter_tensor(own, grad / self.size, group=self.group)
        return own


class DistributedDataParallel:
    def __init__(self, module, group):
        self.module = module
        self.buckets = []
        for child in module.children():
            bucket = Bucket(child, group)
            child.register_forward_pre_hook(self.forward_pre_hook(bucket))
            if self.buckets:
                self.buckets[-1].next_bucket = bucket  # near
            self.buckets.append(bucket)

    @staticmethod
    def forward_pre_hook(bucket):
        def hook(module, args):
            with torch.no_grad():
                bucket.finish_param_sync()

        return hook

    def force_param_sync(self):
        """All of them, at the end of training."""
        for bucket in self.buckets:
            if bucket.param_gather_handle is not None:
                bucket.param_gather_handle.wait()
            dist.all_gather_into_tensor(bucket.param_data, bucket.shard(bucket.param_data).clone(), group=bucket.group)


class DistributedOptimizer:
    """With ``overlap_param_gather``: a step ends when the first bucket is on its way."""

    def __init__(self, model):
        self.buckets = model.buckets

    @torch.no_grad()
    def step(self):
        for bucket in self.buckets:
            bucket.shard(bucket.param_data).sub_(LR * bucket.reduced_grad())
            bucket.needs_sync = True
        self.buckets[0].start_param_sync()


def train(group):
    def impl(inputs, targets, *tensors):
        model = DistributedDataParallel(Model(*tensors), group)
        optimizer = DistributedOptimizer(model)
        for x, target in zip(inputs, targets, strict=True):
            loss_fn(model.module(x), target).backward()
            optimizer.step()
        model.force_param_sync()
        return {name: parameter.detach() for name, parameter in model.module.named_parameters()}

    return impl


def spec(inputs, targets, *tensors):
    model = Model(*tensors)
    for x, target in zip(inputs, targets, strict=True):
        grads = torch.autograd.grad(loss_fn(model(x), target), list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.sub_(LR * grad)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(STEPS, SAMPLES, WIDTH), gg.tensor(STEPS, SAMPLES, OUT))
    tensors = [gg.tensor(*shape) for shape in SHAPES.values()]
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        spec,
        train(mesh.get_group("dp")),
        (*batch, *tensors),
        in_relations=(samples, samples, *[whole] * len(tensors)),
        out_relations="replicate",
        grads=False,
    )
