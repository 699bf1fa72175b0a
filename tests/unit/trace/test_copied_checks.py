"""Copied layers change nothing in the captures of checks, and where they would, all programs are recorded again without."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # a process of its own records every case


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, object]]:
    """What recording each case in a process of its own gave."""
    command = [sys.executable, "-m", "tests.unit.trace.copied_checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("parallel", [[4, 4, 4]]),
        ("changed in place", [[0, 0, 0], [0, 0, 0]]),  # which nobody knows before the backward pass
        ("catching", [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_captures(name: str, copied: list[list[int]], told: dict[str, dict[str, object]]) -> None:
    assert told[name] == {"copied": copied, "same": True}
