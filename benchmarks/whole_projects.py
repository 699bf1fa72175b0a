"""Projects on disk for :mod:`benchmarks.whole`: the check files that its commands are given."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent

_MLP = '''\
"""An MLP of {width} features and {hidden} hidden ones on two ranks, as it should be and with a sum forgotten."""

import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg
from llama_tp import Copy, Reduce


class MLP(nn.Module):
    def __init__(self, hidden={hidden}):
        super().__init__()
        self.up = nn.Linear({width}, hidden, bias=False)
        self.down = nn.Linear(hidden, {width}, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Parallel(MLP):
    def __init__(self, group):
        super().__init__({hidden} // dist.get_world_size(group))
        self.group = group

    def forward(self, x):
        return Reduce.apply(super().forward(Copy.apply(x, self.group)), self.group)


class Forgotten(Parallel):
    def forward(self, x):
        return MLP.forward(self, Copy.apply(x, self.group))


@gg.check(mesh={{"tp": 2}})
def right(mesh):
    return gg.Refinement(MLP(), Parallel(mesh.get_group("tp")), (gg.tensor(2, 3, {width}),), out_relations="replicate")


@gg.check(mesh={{"tp": 2}})
def wrong(mesh):
    return gg.Refinement(MLP(), Forgotten(mesh.get_group("tp")), (gg.tensor(2, 3, {width}),), out_relations="replicate")
'''

_STACK = '''\
"""Llama layers, forward and backward with all gradients."""

import torch
from torch import nn

import graphguard as gg
from llama_tp import Block, Config

CONFIG = Config({shape})


class Stack(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.layers = nn.ModuleList(Block(CONFIG, group) for _ in range({layers}))

    def forward(self, x):
        exponents = torch.arange(0, CONFIG.head_dim, 2).float() / CONFIG.head_dim
        angles = torch.outer(torch.arange(x.shape[1]).float(), CONFIG.theta**-exponents)
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


@gg.check(mesh={{"tp": {ranks}}})
def stack(mesh):
    return gg.Refinement(Stack(), Stack(mesh.get_group("tp")), (gg.tensor(1, 16, CONFIG.dim),))
'''


_SIZES: Final = re.compile(r"^DP, PP, TP, LAYERS, MICRO = .*$", re.MULTILINE)
_SHAPES: Final = {  # with as many heads of keys as there are ranks
    "8B": "heads=64, kv_heads=64",
    "70B": "dim=8192, heads=64, kv_heads=8, hidden=28672",
    "405B": "dim=16384, heads=128, kv_heads=16, hidden=53248",
}


def project(folder: Path) -> Path:
    """An empty project that has the layers to build checks of."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\ntimeout = 3600\n')
    shutil.copy(HERE / "llama_tp.py", folder)
    return folder


def small(folder: Path, files: int) -> list[str]:
    """Files of two small checks each, all different; their names."""
    names = [f"mlp_{number:02}.py" for number in range(files)]
    for number, name in enumerate(names):
        (folder / name).write_text(_MLP.format(width=4 + number, hidden=8 + 4 * number))
    return names


def stack(folder: Path, layers: int, ranks: int, model: str = "8B") -> list[str]:
    """A file with a stack of layers as wide as those of Llama-3 of some size; its name."""
    name = f"stack_{layers}_{ranks}.py"
    (folder / name).write_text(_STACK.format(layers=layers, ranks=ranks, shape=_SHAPES[model]))
    return [name]


def many(folder: Path, ranks: int) -> list[str]:
    """A file with an MLP on so many ranks, forward and backward; its check, by name."""
    name = f"mlp_on_{ranks}.py"
    text = _MLP.format(width=16, hidden=4 * ranks).replace('mesh={"tp": 2}', f'mesh={{"tp": {ranks}}}')
    (folder / name).write_text(text)
    return [f"{name}::right"]


def step(folder: Path, dp: int, pp: int, tp: int, layers: int, micro: int) -> list[str]:
    """A file with a training step of so many layers and micro-batches on so many ranks; its name."""
    text = (HERE / "training_step.py").read_text(encoding="utf-8")
    name = f"step_{dp}_{pp}_{tp}.py"
    (folder / name).write_text(_SIZES.sub(f"DP, PP, TP, LAYERS, MICRO = {dp}, {pp}, {tp}, {layers}, {micro}", text))
    return [name]


def examples(folder: Path) -> list[str]:
    """The examples of the repository."""
    files = sorted((HERE.parent / "examples").glob("*.py"))
    for file in files:
        shutil.copy(file, folder)
    return [file.name for file in files]
