"""`graphguard reproduce`: the written test fails while the code is broken, on real processes, and passes once it is mended."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphguard.checks.running.reproduction import CannotRunHereError, RealRun, _collected, _Job, _run_rank
from graphguard.cli import main
from graphguard.trace.process.children import Ending

BROKEN = """
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg


class Linear(nn.Module):
    def __init__(self, width, group=None):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(4, width))

    def forward(self, x):
        if self.group is not None:
            x = x.chunk(2, -1)[dist.get_rank(self.group)]
        y = x @ self.weight.t()
        return y


@gg.check(mesh={"tp": 2})
def linear(mesh):
    return gg.Refinement(Linear(8), Linear(4, mesh.get_group("tp")), (gg.tensor(3, 8),), out_relations="replicate", grads=False)
"""


def _summed(program: str) -> str:
    return program.replace(
        "        return y\n",
        "        if self.group is not None:\n            dist.all_reduce(y, group=self.group)\n        return y\n",
    )


MENDED = _summed(BROKEN)
ONE_PROGRAM = BROKEN.replace(
    'gg.Refinement(Linear(8), Linear(4, mesh.get_group("tp")), ',
    'gg.Same(Linear(8 // mesh.size(), mesh.get_group("tp")), ',
).replace("chunk(2, -1)", "chunk(dist.get_world_size(self.group), -1)")


# Only one of the inputs that are tried shows it: the last row alone counts, and one rank's mean is of nothing.
LOST = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg


def masked(x, mask):
    return (x * mask).sum() / mask.sum()


@gg.check(mesh={"tp": 2})
def linear(mesh):
    def impl(x, mask):
        count = mask.sum()
        total = (x * mask).sum() / count * count
        dist.all_reduce(total)
        dist.all_reduce(count)
        return total / count

    inputs = (gg.tensor(96), gg.tensor(96, dtype=torch.bool))
    return gg.Refinement(masked, impl, inputs, in_relations={"tp": Shard(0)}, out_relations="replicate")
"""
KEPT = LOST.replace(" / count * count", "")

# A mask is told apart, not subtracted.
FLIPPED = """
import torch

import graphguard as gg


@gg.check(mesh={"tp": 2})
def linear(mesh):
    return gg.Refinement(lambda x: x > 0, lambda x: x >= 0, (gg.tensor(6),), out_relations="replicate")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "said", "mended"),
    [
        (BROKEN, "out[0, 0] on rank 0 is 4, the specification's 8", MENDED),
        (ONE_PROGRAM, "out[0, 0] on rank 0 is 4, the specification's 8", _summed(ONE_PROGRAM)),
        (LOST, "out[] on rank 0 is nan, the specification's ", KEPT),
        (FLIPPED, "out[0] on rank 0 is 1, the specification's 0", FLIPPED.replace(">=", ">")),
    ],
)
def test_written_test_fails_until_the_code_is_mended(tmp_path, monkeypatch, broken, said, mended):
    monkeypatch.chdir(tmp_path)
    Path("linear.py").write_text(broken)
    assert main(["reproduce", "linear.py::linear"]) == 0
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_linear_reproduced.py"]
    broken = subprocess.run(pytest_run, capture_output=True, text=True, check=False, timeout=120)
    assert broken.returncode == 1, broken.stdout
    assert said in broken.stdout
    Path("linear.py").write_text(mended)
    mended = subprocess.run(pytest_run, capture_output=True, text=True, check=False, timeout=120)
    assert mended.returncode == 0, mended.stdout


def test_nothing_to_reproduce(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("linear.py").write_text(MENDED)
    assert main(["reproduce", "linear.py::linear"]) == 2
    assert "has no counterexample" in capsys.readouterr().err


def test_parameters_that_cannot_be_bound_on_real_processes_are_said_so(monkeypatch):
    def moved(*_):
        RealRun({}, {}).bind(torch.zeros(3), torch.zeros(2, 6))

    monkeypatch.setattr("graphguard.checks.running.reproduction._run_programs", moved)
    monkeypatch.setattr("os.environ", {})
    capture = type("Capture", (), {"world_size": 2})()
    answer = _run_rank(_Job("c.py", "c", "/", capture, {}, [{}, {}]), 0, "/")
    with pytest.raises(CannotRunHereError, match=r"once the program is built: a parameter has shape \[3\]"):
        _collected({0: Ending("answered", pickle.dumps(answer))})
    with pytest.raises(AssertionError, match="rank 0 failed: ValueError"):
        _collected({0: Ending("answered", pickle.dumps("ValueError: no"))})
