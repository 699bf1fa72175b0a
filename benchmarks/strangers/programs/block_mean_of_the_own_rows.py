"""One learning rate for each block of parameters, by the mean of its squared gradients; sharded blocks are to be summed over the ranks if there are several, and the optimizer asks how many devices its process sees, which is one. Adam-mini with FSDP.

Source: https://github.com/zyushun/Adam-mini/issues/42
Rule: missing-reduction, nonlinear-on-partial, wrong-relation, wrong-scale
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, INPUTS, HIDDEN, OUTPUTS = 15, 5, 12, 9


@dataclass(frozen=True)
class Environment:
    """What a process was started with: the launcher shows each one its own device."""

    process_group: Any = None
    visible_devices: int = 1

    @property
    def ranks(self):
        return 1 if self.process_group is None else dist.get_world_size(self.process_group)

    @property
    def rank(self):
        return 0 if self.process_group is None else dist.get_rank(self.process_group)


class FullyShardedParameters:
    """Each rank has some rows of every parameter."""

    def __init__(self, model, env):
        self.model, self.env = model, env
        self.shards = {
            name: parameter.detach().chunk(env.ranks)[env.rank].clone() for name, parameter in model.named_parameters()
        }

    def summon(self, name):
        shard, env = self.shards[name], self.env
        if env.ranks == 1:
            return shard.clone()
        full = torch.empty(shard.shape[0] * env.ranks, *shard.shape[1:])
        dist.all_gather_into_tensor(full, shard.contiguous(), group=env.process_group)
        return full

    def unshard(self):
        for name, parameter in self.model.named_parameters():
            parameter.data = self.summon(name)
            parameter.grad = None

    def reduced_grads(self):
        """The mean gradient of the own rows."""
        grads = {}
        for name, parameter in self.model.named_parameters():
            grads[name] = parameter.grad
            if self.env.ranks > 1:
                grads[name] = torch.empty_like(self.shards[name])
                dist.reduce_scatter_tensor(grads[name], parameter.grad, group=self.env.process_group)
                grads[name].div_(self.env.ranks)
        return grads


class AdamMini:
    def __init__(self, shards, env, lr=0.05, betas=(0.9, 0.95), eps=1e-3, output_names=("output",)):
        self.shards, self.env = shards, env
        self.world_size = env.visible_devices  # fixed: self.world_size = env.ranks
        self.lr, self.betas, self.eps = lr, betas, eps
        self.output_names = output_names
        self.state = {}

    def block_of_rows(self, name):
        """Output layers have a rate for each row, all others one for the whole block."""
        return any(part in name for part in self.output_names)

    def init_state(self, name, shard):
        state = {"step": 0, "m": torch.zeros_like(shard)}
        if self.block_of_rows(name):
            state["vmean"] = torch.zeros(shard.shape[0], *(1 for _ in shard.shape[1:]))
        else:
            state["vmean"] = torch.zeros(())
            dimension = torch.tensor(float(shard.numel()))
            if self.world_size > 1:
                dist.all_reduce(dimension, group=self.env.process_group)
            state["dimension"] = dimension
        return state

    def block_mean(self, name, grad, state):
        if self.block_of_rows(name):
            dims = tuple(range(1, grad.dim()))
            return grad.square().mean(dims, keepdim=True) if dims else grad.square()
        tmp_lr = grad.square().sum()
        if self.world_size > 1:  # near
            dist.all_reduce(tmp_lr, group=self.env.process_group)
        return tmp_lr / state["dimension"]  # fault

    @torch.no_grad()
    def step(self, grads):
        beta1, beta2 = self.betas
        for name, shard in self.shards.items():
            state = self.state.setdefault(name, None) or self.init_state(name, shard)
            self.state[name] = state
            state["step"] += 1
            tmp_lr = self.block_mean(name, grads[name], state)
            state["vmean"] = state["vmean"] * beta2 + tmp_lr * (1 - beta2)
            state["m"].lerp_(grads[name], 1 - beta1)
            h = (state["vmean"] / (1 - beta2 ** state["step"])).sqrt() + self.eps
            shard.sub_(self.lr / (1 - beta1 ** state["step"]) * state["m"] / h)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(INPUTS, HIDDEN)
        self.output = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x):
        return self.output(torch.tanh(self.up(x)))


def train(model, env, steps=2):
    fsdp = FullyShardedParameters(model, env)
    optimizer = AdamMini(fsdp.shards, env)

    def run(x, target):
        for _ in range(steps):
            fsdp.unshard()
            (model(x) - target).square().mean().backward()
            optimizer.step(fsdp.reduced_grads())
        return {name.replace(".", "_"): fsdp.summon(name) for name in fsdp.shards}

    return run


@gg.check(mesh={"fsdp": 3})
def check(mesh):
    model = Network()
    return gg.Refinement(
        train(copy.deepcopy(model), Environment()),
        train(model, Environment(mesh.get_group("fsdp"))),
        (gg.tensor(SAMPLES, INPUTS), gg.tensor(SAMPLES, OUTPUTS)),
        in_relations={"fsdp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
