"""``graphguard init``: configures a project and writes a first check, of the project's own code where it has something to check."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from graphguard.commands.failure import CommandError
from graphguard.commands.survey import Parallel, Survey, survey

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
OWN = '''"""The first check: {name}, whose specification is what it is on one rank.

The sizes are guesses from the names of its arguments: small ones of your own are better.  `in_relations={{"tp": Shard(0)}}` says
that a rank gets a part of an input, `out_relations` how the ranks' results must stand.
"""

{torch}import graphguard as gg
{megatron}from {module} import {name}


@gg.check(mesh={{"tp": 2}})
def first(mesh):
{world}    return gg.Same({build}, inputs={inputs})
'''


def run(arguments: argparse.Namespace) -> int:
    """Write what is not there yet; what is there is left alone."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    found = survey(folder)
    _configure(folder / "pyproject.toml")
    writes = _first_check(folder / FOLDER / FIRST, found)
    _tell_scripts(found)
    if writes:
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


def _first_check(path: Path, found: Survey) -> bool:
    """Whether there is a check to run, after it was written."""
    if path.exists():
        sys.stdout.write(f"{path} is there\n")
        return True
    known = next((one for one in found.modules if not one.open), None)
    for one in () if known is not None else found.modules:
        sys.stdout.write(
            f"{one.file}:{one.line}: {one.name} looks parallel; what to give for {', '.join(one.open)} is not clear from its names\n"
        )
    if known is None and (found.modules or found.scripts):
        if not found.scripts:
            sys.stdout.write(
                f"write a check of it with gg.Same({found.modules[0].name}(...), inputs=(gg.tensor(...),)) into {path}\n"
            )
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_text(CHECK if known is None else _own(known), encoding="utf-8")
    of = "" if known is None else f", a check of {known.name} ({known.file}:{known.line})"
    sys.stdout.write(f"wrote {path}{of}\n")
    return True


def _own(known: Parallel) -> str:
    torch = "import torch\n\n" if "torch." in known.inputs else ""
    megatron, world = (
        ("from graphguard.frameworks import megatron\n", "    megatron.world(mesh)\n") if known.megatron else ("", "")
    )
    return OWN.format(
        name=known.name,
        module=known.module,
        build=known.build,
        inputs=known.inputs,
        torch=torch,
        megatron=megatron,
        world=world,
    )


def _tell_scripts(found: Survey) -> None:
    """The command that checks a training script as it is."""
    if not found.scripts:
        return
    uses = f" (it uses {', '.join(found.frameworks)})" if found.frameworks else ""
    sys.stdout.write(f"a training script needs no check{uses}; with the arguments of a small run:\n")
    for script in found.scripts[:3]:
        sys.stdout.write(f"    graphguard torchrun --nproc-per-node 2 {script}\n")
