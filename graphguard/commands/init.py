"""``graphguard init``: configures a project and writes a first check."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from graphguard.commands.failure import CommandError

FOLDER = "checks"
FIRST = "first_check.py"
SECTION = f'[tool.graphguard]\nchecks = ["{FOLDER}/*.py"]\n'
CHECK = '''"""The first check: a linear layer whose columns are split over the ranks of 'tp'. Replace it by your own model."""

import torch
from torch import nn

import graphguard as gg


class ColumnLinear(nn.Module):
    """Holds the rows of the weight that belong to this rank; its output is a slice of the whole output."""

    def __init__(self, inputs: int, outputs: int, ranks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs // ranks, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


@gg.check(mesh={"tp": 2})
def column_linear(mesh):
    return gg.Refinement(
        spec=nn.Linear(6, 8, bias=False),
        impl=ColumnLinear(6, 8, mesh["tp"].size()),
        inputs=(gg.tensor(3, 6),),
        grads=False,
    )
'''


def run(arguments: argparse.Namespace) -> int:
    """Write what is not there yet; what is there is left alone."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    _configure(folder / "pyproject.toml")
    _first_check(folder / FOLDER / FIRST)
    sys.stdout.write("now run: graphguard check\n")
    return 0


def _configure(project: Path) -> None:
    text = project.read_text(encoding="utf-8") if project.exists() else ""
    try:
        configured = "graphguard" in tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{project}: not TOML: {error}") from error
    if configured:
        sys.stdout.write(f"{project} has a [tool.graphguard] section\n")
        return
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    project.write_text(text + separator + SECTION, encoding="utf-8")
    sys.stdout.write(f"wrote [tool.graphguard] to {project}\n")


def _first_check(path: Path) -> None:
    if path.exists():
        sys.stdout.write(f"{path} is there\n")
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(CHECK, encoding="utf-8")
    sys.stdout.write(f"wrote {path}\n")
