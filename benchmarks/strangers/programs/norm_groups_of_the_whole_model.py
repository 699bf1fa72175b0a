"""Mamba-2's gated norm under tensor parallelism: the rank's channels are divided by the whole model's groups. Mamba.

Source: https://github.com/state-spaces/mamba/pull/908
Rule: wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, EPS = 3, 1e-5


@dataclass
class MambaConfig:
    d_model: int = 6
    d_state: int = 7
    d_conv: int = 2
    headdim: int = 5
    nheads: int = 4
    ngroups: int = 2


class RMSNormGated(nn.Module):
    """Gates first; then every group of channels is divided by its own root mean square."""

    def __init__(self, hidden_size, group_size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden_size) + 0.5)
        self.group_size = group_size

    def forward(self, x, z):
        x = x * F.silu(z)
        groups = x.unflatten(-1, (-1, self.group_size))
        groups = groups * (groups.square().mean(-1, keepdim=True) + EPS).rsqrt()
        return groups.flatten(-2) * self.weight


class CausalConv1d(nn.Module):
    """Every channel by itself, over the last tokens."""

    def __init__(self, channels, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, width))
        self.width = width

    def forward(self, x):
        padded = F.pad(x, (0, 0, self.width - 1, 0))
        taps = [padded[t : t + x.shape[0]] * self.weight[:, t] for t in range(self.width)]
        return F.silu(sum(taps))


def mamba_chunk_scan(x, dt, decay_log, b, c, ngroups):
    """x: (tokens, heads, headdim); b and c: (tokens, groups, state); each group serves some heads."""
    heads_per_group = x.shape[1] // ngroups
    b, c = (part.repeat_interleave(heads_per_group, dim=1) for part in (b, c))
    state = torch.zeros(x.shape[1], x.shape[2], b.shape[2])
    outs = []
    for t in range(x.shape[0]):
        decay = torch.exp(-dt[t] * torch.exp(decay_log))
        state = decay[:, None, None] * state + torch.einsum("h,hp,hn->hpn", dt[t], x[t], b[t])
        outs.append(torch.einsum("hpn,hn->hp", state, c[t]))
    return torch.stack(outs)


class Mamba2(nn.Module):
    """With a process group, this rank's heads and groups."""

    def __init__(self, config, process_group=None):
        super().__init__()
        self.process_group = process_group
        self.world_size = 1 if process_group is None else dist.get_world_size(process_group)
        ngroups = config.ngroups
        self.headdim, self.d_state = config.headdim, config.d_state
        self.nheads = config.nheads // self.world_size
        self.d_ssm = self.nheads * config.headdim  # near
        self.ngroups = ngroups // self.world_size  # near
        self.bc_size = self.ngroups * config.d_state
        self.sizes = (self.d_ssm, self.d_ssm, self.bc_size, self.bc_size, self.nheads)
        self.in_proj = nn.Linear(config.d_model, sum(self.sizes), bias=False)
        self.conv1d = CausalConv1d(self.d_ssm + 2 * self.bc_size, config.d_conv)
        self.dt_bias = nn.Parameter(torch.randn(self.nheads))
        self.A_log = nn.Parameter(torch.randn(self.nheads))
        self.D = nn.Parameter(torch.randn(self.nheads))
        group_size = self.d_ssm // ngroups  # fixed: group_size = self.d_ssm // self.ngroups
        self.norm = RMSNormGated(self.d_ssm, group_size)  # fault
        self.out_proj = nn.Linear(self.d_ssm, config.d_model, bias=False)

    def forward(self, u):
        z, x, b, c, dt = self.in_proj(u).split(self.sizes, dim=-1)
        x, b, c = self.conv1d(torch.cat([x, b, c], dim=-1)).split(self.sizes[1:4], dim=-1)
        x = x.unflatten(-1, (self.nheads, self.headdim))
        b, c = (part.unflatten(-1, (self.ngroups, self.d_state)) for part in (b, c))
        y = mamba_chunk_scan(x, F.softplus(dt + self.dt_bias), self.A_log, b, c, self.ngroups)
        y = y + self.D[:, None] * x
        out = self.out_proj(self.norm(y.flatten(1), z))
        if self.process_group is not None:
            dist.all_reduce(out, group=self.process_group)
        return out


class Block(nn.Module):
    """Norm, mixer, residual."""

    def __init__(self, config, process_group=None):
        super().__init__()
        self.norm = nn.Parameter(torch.rand(config.d_model) + 0.5)
        self.mixer = Mamba2(config, process_group)

    def forward(self, hidden):
        normed = hidden * (hidden.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.norm
        return hidden + self.mixer(normed)


def shard(name, tensor, sizes, rank, ranks):
    """The rows of a merged projection are cut part by part; the output's projection by columns."""
    if name.endswith("out_proj.weight"):
        return tensor.chunk(ranks, dim=1)[rank]
    if name.endswith("in_proj.weight"):
        return torch.cat([part.chunk(ranks)[rank] for part in tensor.split(sizes)])
    if name.endswith("conv1d.weight"):
        return torch.cat([part.chunk(ranks)[rank] for part in tensor.split(sizes[1:4])])
    return tensor if name == "norm" else tensor.chunk(ranks)[rank]


def load_weights(state, block, mesh):
    rank, ranks = mesh.get_local_rank("tp"), mesh["tp"].size()
    sizes = [size * ranks for size in block.mixer.sizes]
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            parameter.copy_(shard(name, state[name], sizes, rank, ranks))


@gg.check(mesh={"tp": 2})
def check(mesh):
    config = MambaConfig()
    impl = Block(config, mesh.get_group("tp"))
    inputs = (gg.tensor(TOKENS, config.d_model),)
    return gg.Refinement(Block(config), impl, inputs, load=load_weights, out_relations="replicate", grads=False)
