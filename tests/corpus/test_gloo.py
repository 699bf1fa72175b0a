"""The ground truth: every program on real gloo processes rebuilds the specification, or does not, as its record says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WORLDS = sorted({json.loads(line)["world"] for line in (HERE / "cases.jsonl").read_text().splitlines()})


@pytest.mark.parametrize("world", WORLDS)
def test_records_are_true(world, tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "gloo_rank.py", str(rank), str(world), tmp_path / "store"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    said = [process.communicate(timeout=600)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * world
    assert json.loads(said[0]) == []
