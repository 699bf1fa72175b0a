"""The programs of docs/guide.md are right as they stand there."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import run_case
from .literate import read_cases

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
CASES = read_cases(GUIDE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "case", [case for case in CASES if "@gg.check" in case.files["check.py"]], ids=lambda case: case.title
)
def test_a_program_refines(case, tmp_path):
    run_case(case, tmp_path)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "def test_" in case.files["check.py"]], ids=lambda case: case.title
)
def test_a_test_passes(case, tmp_path):
    (tmp_path / "test_guide.py").write_text(case.files["check.py"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_guide.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_program_of_the_guide_is_run():
    assert all("@gg.check" in case.files["check.py"] or "def test_" in case.files["check.py"] for case in CASES)
    assert len(CASES) >= 7
