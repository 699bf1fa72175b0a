"""A Llama as torchtitan writes it, sequential, and distributed by PyTorch's own means: DTensor plans, FSDP2, both, DDP, recomputation."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import graphguard as gg


@dataclass(frozen=True)
class Config:
    vocabulary: int = 48
    dim: int = 32
    layers: int = 1
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 56
    tokens: int = 8


def rotary(tokens: int, head_dim: int) -> torch.Tensor:
    """Complex rotations of shape (tokens, head_dim / 2)."""
    frequencies = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = torch.outer(torch.arange(tokens).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[: x.shape[1], None]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.dim // config.heads
        self.groups = config.heads // config.kv_heads
        self.wq = nn.Linear(config.dim, config.heads * self.head_dim, bias=False)
        self.wk = nn.Linear(config.dim, config.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(config.dim, config.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(config.heads * self.head_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (y.view(batch, tokens, -1, self.head_dim) for y in (self.wq(x), self.wk(x), self.wv(x)))
        q, k = rotate(q, table), rotate(k, table)
        k, v = k.repeat_interleave(self.groups, 2), v.repeat_interleave(self.groups, 2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=1e-5)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        h = x + self.attention(self.attention_norm(x), table)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocabulary, config.dim)
        self.register_buffer("table", rotary(config.tokens, config.dim // config.heads), persistent=False)
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.output = nn.Linear(config.dim, config.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.table)
        return self.output(self.norm(h))


class Loss(nn.Module):
    """The mean cross entropy of the next token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.model(tokens)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def tensor_parallel(model: Llama, mesh, *, shard_loss: bool) -> Llama:
    """The plan of torchtitan's Llama: sequence-parallel norms, column- and row-parallel layers."""
    output = Shard(-1) if shard_loss else Replicate()
    parallelize_module(
        model,
        mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=output, use_local_output=not shard_loss),
        },
    )
    for block in model.layers.values():
        parallelize_module(
            block,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
                ),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )
    return model


def shard_fully(model: Llama, mesh) -> Llama:
    for block in model.layers.values():
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


CONFIG = Config()


def tokens_and_labels(batch: int = 4):
    return tuple(gg.tensor(batch, CONFIG.tokens, dtype=torch.int64, low=0, high=CONFIG.vocabulary) for _ in range(2))


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def tensor_and_sequence_parallel(mesh):
    return gg.Refinement(
        Loss(Llama(CONFIG)), Loss(tensor_parallel(Llama(CONFIG), mesh["tp"], shard_loss=False)), tokens_and_labels()
    )


def train_step(loss: nn.Module, group=None):
    """Loss and gradients of one step; over ``group`` the loss is the mean of the ranks', as trainers log it."""

    def step(tokens: torch.Tensor, labels: torch.Tensor):
        value = loss(tokens, labels)
        value.backward()
        value = value.detach()
        if group is not None:
            dist.all_reduce(value, group=group)
            value /= dist.get_world_size(group)
        return {"loss": value, **{name: parameter.grad for name, parameter in loss.named_parameters()}}

    return step


def with_loss_parallel(step):
    def parallel_step(tokens: torch.Tensor, labels: torch.Tensor):
        with loss_parallel():
            return step(tokens, labels)

    return parallel_step


DATA = {"dp": Shard(0)}
SPLIT = {"in_relations": DATA}


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def loss_of_shards(mesh):
    model = tensor_parallel(Llama(CONFIG), mesh["tp"], shard_loss=True)
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), with_loss_parallel(train_step(Loss(model))), tokens_and_labels()
    )


@gg.check(mesh=[{"dp": 2}, {"dp": 4}])
def fully_sharded(mesh):
    model = Loss(shard_fully(Llama(CONFIG), mesh["dp"]))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), train_step(model, mesh.get_group("dp")), tokens_and_labels(), **SPLIT
    )


@gg.check(mesh={"dp": 2, "tp": 2})
def fully_sharded_and_tensor_parallel(mesh):
    model = Loss(shard_fully(tensor_parallel(Llama(CONFIG), mesh["tp"], shard_loss=False), mesh["dp"]))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), train_step(model, mesh.get_group("dp")), tokens_and_labels(), **SPLIT
    )


@gg.check(mesh={"replicas": 2, "dp": 2})
def hybrid_sharded(mesh):
    model = Loss(shard_fully(Llama(CONFIG), mesh))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))),
        train_step(model, dist.group.WORLD),
        tokens_and_labels(),
        in_relations={"replicas": Shard(0), "dp": Shard(0)},
    )


@gg.check(mesh={"dp": 2})
def data_parallel(mesh):
    model = Loss(DistributedDataParallel(Llama(CONFIG)))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), train_step(model, mesh.get_group("dp")), tokens_and_labels(), **SPLIT
    )


@gg.check(mesh={"dp": 2, "tp": 2})
def recomputed(mesh):
    model = tensor_parallel(Llama(CONFIG), mesh["tp"], shard_loss=False)
    for name, block in model.layers.items():
        model.layers[name] = checkpoint_wrapper(block)
    model = Loss(shard_fully(model, mesh["dp"]))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), train_step(model, mesh.get_group("dp")), tokens_and_labels(), **SPLIT
    )


@gg.check(mesh={"dp": 2})
def mixed_precision(mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Llama(CONFIG)
    for block in model.layers.values():
        fully_shard(block, mesh=mesh, mp_policy=policy)
    model = Loss(fully_shard(model, mesh=mesh, mp_policy=policy))
    return gg.Refinement(
        train_step(Loss(Llama(CONFIG))), train_step(model, mesh.get_group("dp")), tokens_and_labels(), **SPLIT
    )
