"""The programs that benchmarks spoil refine their specifications before they are spoiled: what is not proved itself is left out there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks/mutants/programs", "benchmarks/trust/checks")


def test_all_refine() -> None:
    command = [sys.executable, "-m", "graphguard", "check", *FOLDERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"^(\d+) checks: (\d+) refine$", done.stdout, re.MULTILINE)
    assert counts is not None, done.stdout
    assert counts[1] == counts[2]
    assert int(counts[1]) > 40
