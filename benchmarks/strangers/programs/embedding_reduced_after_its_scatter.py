"""The embedding that the first and the last stage share is added up over them when the data-parallel ranks have each kept the reduced gradients of their part of the buffer, and these parts are not the same in both stages. Megatron-LM's distributed optimizer.

Source: https://github.com/NVIDIA/Megatron-LM/issues/844
Rule: wrong-relation, gradient-not-reduced, wrong-scale, extra-reduction, wrong-shard
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, VOCAB, HIDDEN, LR = 6, 5, 4, 0.3
FIRST, LAST = 0, 1


@dataclass(frozen=True)
class ModelParallelConfig:
    dp_group: Any
    pp_group: Any

    @property
    def stage(self):
        return dist.get_rank(self.pp_group)

    @property
    def peer(self):
        """The other stage, as a global rank."""
        return dist.get_global_rank(self.pp_group, 1 - self.stage)


class ParamAndGradBuffer:
    """A stage's parameters, and their gradients, one after the other; each data-parallel rank has a part of the elements."""

    def __init__(self, params, config):
        self.config = config
        self.size, self.rank = dist.get_world_size(config.dp_group), dist.get_rank(config.dp_group)
        self.param_data = torch.cat([param.detach().reshape(-1) for param in params.values()])
        self.grad_data = torch.zeros_like(self.param_data)
        self.shapes, self.offsets = {}, {}
        offset = 0
        for name, param in params.items():
            self.shapes[name], self.offsets[name] = param.shape, offset
            offset += param.numel()
        self.params = {name: self.view(self.param_data, name).requires_grad_() for name in params}

    def view(self, data, name):
        shape, start = self.shapes[name], self.offsets[name]
        return data[start : start + shape.numel()].view(shape).detach()

    def main_grad(self, name):
        return self.view(self.grad_data, name)

    @property
    def shard(self):
        length = self.grad_data.numel() // self.size
        return slice(self.rank * length, (self.rank + 1) * length)

    def accumulate(self):
        for name, param in self.params.items():
            self.main_grad(name).add_(param.grad)

    def reduce_scatter_grads(self):
        """The mean over the data-parallel ranks, in this rank's part; the rest of the buffer is left as it is."""
        reduced = torch.empty(self.grad_data.numel() // self.size)
        dist.reduce_scatter_tensor(reduced, self.grad_data / self.size, group=self.config.dp_group)
        self.grad_data[self.shard] = reduced


class PipelineStage:
    """The embedding and a layer, or a layer and the output with the same embedding."""

    def __init__(self, config, word_embeddings, first_layer, last_layer):
        self.config = config
        if config.stage == FIRST:
            params = {"word_embeddings": word_embeddings, "layer": first_layer}
        else:
            params = {"layer": last_layer, "word_embeddings": word_embeddings}
        self.buffer = ParamAndGradBuffer(params, config)

    def forward_backward(self, tokens, labels):
        params, peer = self.buffer.params, self.config.peer
        if self.config.stage == FIRST:
            hidden = torch.tanh(F.embedding(tokens, params["word_embeddings"]) @ params["layer"])
            dist.send(hidden.detach(), peer, group=self.config.pp_group)
            grad = torch.empty_like(hidden)
            dist.recv(grad, peer, group=self.config.pp_group)
            hidden.backward(grad)
        else:
            hidden = torch.empty(tokens.shape[0], HIDDEN)
            dist.recv(hidden, peer, group=self.config.pp_group)
            hidden.requires_grad_()
            logits = torch.tanh(hidden @ params["layer"]) @ params["word_embeddings"].t()
            F.cross_entropy(logits, labels).backward()
            dist.send(hidden.grad, peer, group=self.config.pp_group)
        self.buffer.accumulate()


class DistributedOptimizer:
    """Updates this rank's part of the buffer, and gathers the others'."""

    def __init__(self, buffer, lr):
        self.buffer, self.lr = buffer, lr

    def step(self):
        buffer = self.buffer
        updated = buffer.param_data[buffer.shard] - self.lr * buffer.grad_data[buffer.shard]
        gathered = torch.empty_like(buffer.param_data)
        dist.all_gather_into_tensor(gathered, updated, group=buffer.config.dp_group)  # near
        return {name: buffer.view(gathered, name) for name in buffer.params}


def allreduce_word_embedding_grads(stage):
    """Both stages have a gradient of the same parameter."""
    grad = stage.buffer.main_grad("word_embeddings")
    dist.all_reduce(grad, group=stage.config.pp_group)  # fault


def finalize_model_grads(stage):
    stage.buffer.reduce_scatter_grads()  # fixed: allreduce_word_embedding_grads(stage)
    allreduce_word_embedding_grads(stage)  # fixed: stage.buffer.reduce_scatter_grads()


def layer_of(stage, params, config):
    """One stage's layer, on the ranks of both stages."""
    layer = params["layer"].clone() if config.stage == stage else torch.empty(HIDDEN, HIDDEN)
    dist.broadcast(layer, dist.get_global_rank(config.pp_group, stage), group=config.pp_group)
    return layer


def train_step(config):
    def step(word_embeddings, first_layer, last_layer, tokens, labels):
        stage = PipelineStage(config, word_embeddings, first_layer, last_layer)
        stage.forward_backward(tokens, labels)
        finalize_model_grads(stage)
        params = DistributedOptimizer(stage.buffer, LR).step()
        return params["word_embeddings"], layer_of(FIRST, params, config), layer_of(LAST, params, config)

    return step


def spec_step(word_embeddings, first_layer, last_layer, tokens, labels):
    params = [each.detach().clone().requires_grad_() for each in (word_embeddings, first_layer, last_layer)]
    hidden = torch.tanh(F.embedding(tokens, params[0]) @ params[1])
    logits = torch.tanh(hidden @ params[2]) @ params[0].t()
    F.cross_entropy(logits, labels).backward()
    return tuple(param.detach() - LR * param.grad for param in params)


@gg.check(mesh={"pp": 2, "dp": 2})
def check(mesh):
    ids = gg.tensor(SAMPLES, dtype=torch.int64, high=VOCAB)
    weights = (gg.tensor(VOCAB, HIDDEN), gg.tensor(HIDDEN, HIDDEN), gg.tensor(HIDDEN, HIDDEN))
    samples = {"dp": Shard(0)}
    config = ModelParallelConfig(mesh.get_group("dp"), mesh.get_group("pp"))
    return gg.Refinement(
        spec_step,
        train_step(config),
        (*weights, ids, ids),
        in_relations=({}, {}, {}, samples, samples),
        out_relations="replicate",
        grads=False,
    )
