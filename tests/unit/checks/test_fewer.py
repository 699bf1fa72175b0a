"""Very many ranks that are wrong are explained on few: on a mesh where the same output is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphguard.checks.judging.fewer import instances
from graphguard.cli import main

CHECKS = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg


def spec(x, w):
    return (x @ w).relu() @ w.T


def reduced(x, w):
    out = (x @ w).relu() @ w.T
    dist.all_reduce(out)
    return out


def halved(x, w):
    out = (x @ w).relu() @ w.T
    out = out / (2 if dist.get_world_size() > 4 else 1)
    dist.all_reduce(out)
    return out


def forgotten(x, w):
    return (x @ w).relu() @ w.T


def made(impl):
    columns = {"tp": Shard(1)}
    return gg.Refinement(spec, impl, (gg.tensor(3, 5), gg.tensor(5, 160)), in_relations=({}, columns), out_relations="replicate")


@gg.check(mesh={"tp": 80})
def right(mesh):
    return made(reduced)


@gg.check(mesh={"tp": 80})
def without_its_sum(mesh):
    return made(forgotten)


@gg.check(mesh={"tp": 80})
def on_many_alone(mesh):
    return made(halved)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.graphguard]\n")
    (tmp_path / "many.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["check", "--ranks", "auto", "--no-fix", "--output-format", "json", f"many.py::{name}"])
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["mesh"] == {"tp": 80}
    return check


def line(check: dict[str, Any]) -> str:
    return CHECKS.splitlines()[check["diagnostics"][0]["range"]["start"]["line"] - 1].strip()


@pytest.mark.usefixtures("project")
def test_what_is_wrong_is_looked_for_on_few(capsys: pytest.CaptureFixture[str]) -> None:
    check = judged("without_its_sum", capsys)
    assert (check["verdict"], check["diagnostics"][0]["rule"]) == ("broken", "missing-reduction")
    assert line(check) == "return (x @ w).relu() @ w.T"
    assert check["cautions"][-1] == "what is wrong was looked for on tp=2, where the same output is wrong"


@pytest.mark.usefixtures("project")
def test_what_is_wrong_on_many_alone_is_looked_for_there(capsys: pytest.CaptureFixture[str]) -> None:
    check = judged("on_many_alone", capsys)
    assert (check["verdict"], check["diagnostics"][0]["rule"]) == ("broken", "wrong-scale")
    assert line(check).startswith("out = out / (2")
    assert not any("looked for on" in text for text in check["cautions"])


@pytest.mark.usefixtures("project")
def test_what_is_right_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged("right", capsys)["verdict"] == "refines"


def test_instances() -> None:
    mesh = {"dp": 64, "pp": 16, "tp": 3}
    assert list(instances(mesh, ("dp", "tp"))) == [
        {"dp": 2, "pp": 4, "tp": 2},
        {"dp": 2, "pp": 2, "tp": 2},
        {"dp": 4, "pp": 4, "tp": 3},
    ]
    assert list(instances({"tp": 2}, ("tp",))) == []
