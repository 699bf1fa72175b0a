"""The checks in `checks/`, run as a user runs them: frameworks unmodified, forward and backward, proved; their mistakes found at the line that makes them.

Where a check is not proved, the ranks' results on numbers must equal the specification's.
"""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.confirm.check import confirm
from graphguard.ir import capture_from_json
from graphguard.ir.fuel import SECOND

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(900)]
CHECKS = Path(__file__).parent / "checks"
# The package that checks need beside PyTorch, by the first word of their file.
NEEDS = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "diffusers": "diffusers",
    "fabric": "lightning",
    "fairscale": "fairscale",
    "megatron": "megatron",
    "titan": "torchtitan",
    "transformers": "transformers",
}
#: Not proved yet: equal on numbers.
OPEN = {
    "titan_deepseek::experts",
    "transformers_meshes::experts_that_add_up",
    "transformers_meshes::experts_that_get_tokens",
}
FILES = sorted(path.stem for path in CHECKS.glob("*.py"))


@cache
def reports(file: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "graphguard.cli", "check", "--output-format", "json", f"{file}.py"]
    done = subprocess.run(command, cwd=CHECKS, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["checks"]


def present(file: str) -> list[dict[str, Any]]:
    package = NEEDS.get(file.partition("_")[0])
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make frameworks")
    return reports(file)


@pytest.mark.parametrize("file", [file for file in FILES if not file.endswith("_bugs")])
def test_as_they_are(file: str) -> None:
    for report in present(file):
        name = report["id"].rpartition("::")[2]
        if name == "mixed_precision":
            assert {one["code"] for one in report["diagnostics"]} == {"lower-precision"}, report
        elif f"{file}::{name}" in OPEN:
            assert report["verdict"] == "unknown", report["diagnostics"]
            assert equal_on_numbers(file, name)
        else:
            assert report["verdict"] == "refines", (report["id"], report["mesh"], report["diagnostics"])


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=pytest.mark.long) if file.startswith("vllm_style") else file
        for file in FILES
        if file.endswith("_bugs")
    ],
)
def test_mistakes_are_found_where_they_are_made(file: str) -> None:
    marked = {
        number
        for number, line in enumerate((CHECKS / f"{file}.py").read_text().splitlines(), start=1)
        if line.endswith("the mistake")
    }
    found = set()
    for report in present(file):
        assert report["verdict"] == "broken", (report["id"], report["diagnostics"])
        found |= {one["range"]["start"]["line"] for one in report["diagnostics"]}
    assert found == marked


def equal_on_numbers(file: str, name: str) -> bool:
    path = CHECKS / f"{file}.py"
    with WorkerClient(Configuration(CHECKS, timeout=300)) as client:
        params = {"file": str(path), "root": str(CHECKS), "name": name, "mesh": None}
        capture = capture_from_json(client.call("capture", params)["capture"])
    return confirm(capture, steps=60 * SECOND).status == "equal"
