"""A program of the world: the text that a person could have written, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = """\
import collections
import dataclasses
import os
import random
import time
import types

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch.distributed import _functional_collectives as funcol
from torch.distributed.tensor import Partial, Replicate, Shard

D = torch.float64
"""


@dataclass(frozen=True, slots=True)
class Program:
    """``spec`` and ``impl`` are the lines of two functions; the rest is the claim, in Python.

    ``kinds`` are the sorts of steps it was made of; ``module`` are lines before the functions.  A program on two mesh axes takes its mesh as the first argument of ``impl``.
    """

    name: str
    mesh: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    spec: tuple[str, ...]
    impl: tuple[str, ...]
    promised: str
    kinds: tuple[str, ...] = ()
    module: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        size = 1
        for _, count in self.mesh:
            size *= count
        return size

    @property
    def text(self) -> str:
        """The file."""
        names = ", ".join(name for name, _, _ in self.inputs)
        first = "mesh, " if len(self.mesh) > 1 else ""
        relations = ", ".join(relation for _, _, relation in self.inputs)
        return "\n".join(
            (
                HEADER.rstrip(),
                f"MESH = {dict(self.mesh)!r}",
                f"SHAPES = {[shape for _, shape, _ in self.inputs]!r}",
                f"IN = ({relations},)",
                f"OUT = {self.promised}",
                *self.module,
                "\n",
                f"def spec({names}):",
                *(f"    {line}" for line in self.spec),
                "\n",
                f"def impl({first}{names}):",
                *(f"    {line}" for line in self.impl),
                "",
            )
        )


def loaded(path: Path) -> dict[str, Any]:
    """The names that a program's file defines."""
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names
