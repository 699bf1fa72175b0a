"""``[tool.graphguard] sources``: installed packages that count as the user's own; without it, a cause in a library is shown there as well."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphguard.cli import main

LIBRARY = """import torch
import torch.distributed as dist
from torch import nn


class RowLinear(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(outputs, inputs // dist.get_world_size(group)))

    def forward(self, x):
        y = nn.functional.linear(x, self.weight)
        return y


class Wrapped(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)
"""
CHECK = """import torch
from split.layers import RowLinear
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


KEYWORDS = {"in_relations": {"tp": Shard(1)}, "out_relations": "replicate", "grads": False}


@gg.check(mesh={"tp": 2})
def row(mesh):
    impl = Block(RowLinear(6, 4, mesh.get_group("tp")))
    return gg.Refinement(Block(nn.Linear(6, 4, bias=False)), impl, (gg.tensor(3, 6),), **KEYWORDS)
"""
CALL = """

if __name__ == "__main__":
    spec, inputs = Block(nn.Linear(6, 4, bias=False)), (gg.tensor(3, 6),)
    impl = lambda mesh: Block(RowLinear(6, 4, mesh.get_group("tp")))
    print(gg.verify(spec, impl, inputs, mesh={"tp": 2}, **KEYWORDS).diagnostics[0].span.file)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A check of a layer of an installed package; called with the settings of the project."""
    package = tmp_path / "site-packages" / "split"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text(LIBRARY)
    folder = tmp_path / "project"
    (folder / "checks").mkdir(parents=True)
    (folder / "checks" / "row.py").write_text(CHECK + CALL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(package.parent), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.chdir(folder)

    def write(settings=""):
        (folder / "pyproject.toml").write_text(f'[tool.graphguard]\nchecks = ["checks/*.py"]\n{settings}\n')
        return str(package / "layers.py")

    return write


@pytest.mark.slow
def test_the_way_into_a_package_is_told(project, capsys):
    library = project()
    check = Path("checks/row.py")
    text = check.read_text().replace("import RowLinear", "import RowLinear, Wrapped")
    for layer in ('RowLinear(6, 4, mesh.get_group("tp"))', "nn.Linear(6, 4, bias=False)"):
        text = text.replace(f"Block({layer})", f"Block(Wrapped({layer}))")
    check.write_text(text)
    assert main(["check", "--no-fix", "--output-format", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["checks"][0]["diagnostics"]
    told = {
        (one["range"]["start"]["line"], one["message"].partition(",")[0])
        for one in finding["related"]
        if one["file"] == library
    }
    assert told == {(13, "it is computed here"), (23, "called in Wrapped.forward")}


@pytest.mark.slow
def test_packages_count_as_own_where_the_project_says_so(project, capsys, monkeypatch):
    library = project()
    assert main(["check"]) == 1
    told = capsys.readouterr().out
    assert "--> checks/row.py:15:16" in told
    assert f"::: {library}:13:13" in told
    assert 'it is computed here, in split; sources = ["split"] counts that as your own' in told
    assert "fix:" not in told

    project('sources = ["split"]')
    assert main(["check"]) == 1
    told = capsys.readouterr().out
    assert f"--> {library}:13:13" in told
    assert "14 +         dist.all_reduce(y, group=self.group)" in told

    writable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != library and writable(path, mode))
    assert main(["check", "--no-cache"]) == 1
    told = capsys.readouterr().out
    assert f"(proved), in {library}, which cannot be written from here" in " ".join(
        told.replace("=", "").replace("|", "").split()
    )
    assert "dist.all_reduce(y, group=self.group)" in told
    assert "14 +" not in told


def test_a_call_of_verify_reads_them_as_well(project):
    library = project('sources = ["split"]')
    done = subprocess.run([sys.executable, "checks/row.py"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [library]


@pytest.mark.parametrize("names", ['["megatron-core"]', "[3]", '"a b"'])
def test_a_name_that_is_no_package(project, capsys, names):
    project(f"sources = {names}")
    assert main(["check"]) == 2
    assert "pyproject.toml:3: sources must be" in capsys.readouterr().err
