"""Micro-batches are accumulated and reduced with the last one; the flag that says so is set before the backward pass, but the wrapper has read it in the forward pass. build-nanogpt with DDP.

Source: https://github.com/karpathy/build-nanogpt/pull/30
Rule: gradient-not-reduced, missing-reduction
"""

import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

B, GRAD_ACCUM_STEPS, LR = 8, 3, 0.3


@dataclass
class GPTConfig:
    block_size: int = 5
    vocab_size: int = 11
    n_embd: int = 6
    head_size: int = 7


class CausalSelfAttention(nn.Module):
    """One head."""

    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.head_size)
        self.c_proj = nn.Linear(config.head_size, config.n_embd)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self.c_attn(x).chunk(3, dim=2)
        att = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        att = att.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
        return self.c_proj(F.softmax(att, dim=-1) @ v)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn, self.mlp = CausalSelfAttention(config), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = Block(config)
        self.ln_f = nn.LayerNorm(config.n_embd)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.ln_f(self.h(x)) @ self.wte.weight.t()
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Reducer:
    """Counts the gradients that have come; with the last one all are averaged."""

    def __init__(self, parameters, process_group):
        self.parameters = list(parameters)
        self.process_group = process_group
        self.expect_autograd_hooks = False
        self.pending = 0
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.autograd_hook)

    def prepare_for_backward(self):
        self.expect_autograd_hooks = True
        self.pending = len(self.parameters)

    def autograd_hook(self, parameter):
        if not self.expect_autograd_hooks:
            return
        self.pending -= 1
        if self.pending == 0:
            self.finalize_backward()

    def finalize_backward(self):
        bucket = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
        dist.all_reduce(bucket, group=self.process_group)
        bucket /= dist.get_world_size(self.process_group)
        views = bucket.split([parameter.numel() for parameter in self.parameters])
        for parameter, view in zip(self.parameters, views, strict=True):
            parameter.grad.copy_(view.view_as(parameter))
        self.expect_autograd_hooks = False


class DistributedDataParallel(nn.Module):
    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True
        self.reducer = Reducer(module.parameters(), process_group)

    def forward(self, *inputs):
        if torch.is_grad_enabled() and self.require_backward_grad_sync:
            self.reducer.prepare_for_backward()  # near
        return self.module(*inputs)


def train(raw_model, group=None):
    """One step of the loop."""
    ddp = group is not None
    model = DistributedDataParallel(raw_model, group) if ddp else raw_model
    optimizer = torch.optim.SGD(raw_model.parameters(), lr=LR)

    def step(xs, ys):
        loss_accum = torch.zeros(())
        optimizer.zero_grad()
        for micro_step in range(GRAD_ACCUM_STEPS):
            x, y = xs[micro_step], ys[micro_step]
            logits, loss = model(x, y)  # fixed: model.require_backward_grad_sync = micro_step == GRAD_ACCUM_STEPS - 1
            model.require_backward_grad_sync = micro_step == GRAD_ACCUM_STEPS - 1  # fixed: logits, loss = model(x, y)
            loss = loss / GRAD_ACCUM_STEPS
            loss_accum += loss.detach()
            loss.backward()
        if ddp:
            dist.all_reduce(loss_accum, group=group)
            loss_accum = loss_accum / dist.get_world_size(group)
        optimizer.step()
        return {"loss": loss_accum, **{name: p.detach() for name, p in raw_model.named_parameters()}}

    return step


@gg.check(mesh={"ddp": 2})
def check(mesh):
    config = GPTConfig()
    model = GPT(config)
    tokens = gg.tensor(GRAD_ACCUM_STEPS, B, config.block_size, dtype=torch.int64, high=config.vocab_size)
    return gg.Refinement(
        train(model),
        train(copy.deepcopy(model), mesh.get_group("ddp")),
        (tokens, tokens),
        in_relations={"ddp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
