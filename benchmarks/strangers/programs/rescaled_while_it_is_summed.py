"""Gradients are packed into a buffer, summed over the ranks, rescaled and unpacked; the sum is asked for without blocking and nobody waits for it, so that what is unpacked is what happened to lie there. OpenNMT-py.

Source: https://github.com/OpenNMT/OpenNMT-py/issues/2295
Rule: missing-wait, missing-reduction, gradient-not-reduced, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SOURCE_VOCABULARY, TARGET_VOCABULARY, EMBEDDING, HIDDEN = 11, 8, 5, 7
SENTENCES, LENGTH = 9, 4


@dataclass(frozen=True)
class Options:
    group: Any = None
    learning_rate: float = 0.6
    train_steps: int = 2
    bucket_elements: int = 70

    @property
    def n_gpu(self):
        return 1 if self.group is None else dist.get_world_size(self.group)


def all_reduce_and_rescale_tensors(tensors, rescale_denom, options):
    """Sums over the ranks, divided, in chunks that fit into a buffer; larger tensors go by themselves."""
    buffer_t = torch.zeros(options.bucket_elements)
    buffer, filled = [], 0

    def pack():
        offset = 0
        for tensor in buffer:
            buffer_t[offset : offset + tensor.numel()].copy_(tensor.reshape(-1))
            offset += tensor.numel()
        return offset

    def unpack():
        offset = 0
        for tensor in buffer:
            tensor.copy_(buffer_t[offset : offset + tensor.numel()].view_as(tensor))
            offset += tensor.numel()

    def all_reduce_buffer():
        offset = pack()
        dist.all_reduce(buffer_t[:offset], group=options.group, async_op=True)  # fixed: dist.all_reduce(buffer_t[:offset], group=options.group)
        buffer_t.div_(rescale_denom)  # near
        unpack()  # near

    for tensor in tensors:
        size = tensor.numel()
        if size > options.bucket_elements:
            dist.all_reduce(tensor, group=options.group)
            tensor.div_(rescale_denom)
        elif filled + size > options.bucket_elements:
            all_reduce_buffer()
            buffer, filled = [tensor], size
        else:
            buffer.append(tensor)
            filled += size
    if buffer:
        all_reduce_buffer()


class NMTModel(nn.Module):
    """Each target word of the source word at its place and of the sentence."""

    def __init__(self):
        super().__init__()
        self.src_embeddings = nn.Embedding(SOURCE_VOCABULARY, EMBEDDING)
        self.encoder = nn.Linear(EMBEDDING, HIDDEN)
        self.attention = nn.Linear(HIDDEN, HIDDEN)
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)
        self.generator = nn.Linear(HIDDEN, TARGET_VOCABULARY)

    def forward(self, src):
        memory = torch.tanh(self.encoder(self.src_embeddings(src)))
        weights = (self.attention(memory) @ memory.transpose(1, 2)).softmax(dim=-1)
        return self.generator(torch.tanh(self.bridge(torch.cat([memory, weights @ memory], dim=-1))))


class MultiGPUOptimizer:
    def __init__(self, model, options):
        self.model, self.options = model, options
        self.training_step = 1

    def rate(self):
        return self.options.learning_rate * self.training_step**-0.5

    def zero_grad(self):
        for parameter in self.model.parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter in self.model.parameters():
            parameter.sub_(self.rate() * parameter.grad)
        self.training_step += 1


class Trainer:
    def __init__(self, model, options):
        self.model, self.options = model, options
        self.optim = MultiGPUOptimizer(model, options)

    def gradient_step(self, src, tgt):
        """The loss is divided by the rank's words, of which all ranks have the same number."""
        self.optim.zero_grad()
        scores = self.model(src)
        loss = F.cross_entropy(scores.flatten(0, 1), tgt.flatten(), reduction="sum") / tgt.numel()
        loss.backward()
        if self.options.n_gpu > 1:
            grads = [parameter.grad for parameter in self.model.parameters()]
            all_reduce_and_rescale_tensors(grads, float(self.options.n_gpu), self.options)
        self.optim.step()

    def train(self, src, tgt):
        for _ in range(self.options.train_steps):
            self.gradient_step(src, tgt)
        return {name.replace(".", "_"): weight.detach() for name, weight in self.model.named_parameters()}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = NMTModel()
    return gg.Refinement(
        Trainer(copy.deepcopy(model), Options()).train,
        Trainer(model, Options(mesh.get_group("dp"))).train,
        (
            gg.tensor(SENTENCES, LENGTH, dtype=torch.int64, high=SOURCE_VOCABULARY),
            gg.tensor(SENTENCES, LENGTH, dtype=torch.int64, high=TARGET_VOCABULARY),
        ),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
