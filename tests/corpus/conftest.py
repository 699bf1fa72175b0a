import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphguard.ir import Capture, capture_from_json

from ..recorded import Recording

HERE = Path(__file__).parent
CASES = [json.loads(line)["id"] for line in (HERE / "cases.jsonl").read_text().splitlines()]
BLOCK = 16  # cases that are recorded by one process: starting it takes as long as recording five


@pytest.fixture
def recorded(request) -> Recording:
    """The verdicts and relations that were found before."""
    return Recording(HERE / "recorded" / "corpus.json", update=request.config.getoption("--record"))


@pytest.fixture(scope="session")
def capture(tmp_path_factory) -> Callable[[str, str], Capture]:
    """The capture of a variant of a case; recorded when it is first asked for, with the others of its block."""
    folder = tmp_path_factory.mktemp("captures")

    def read(case: str, variant: str) -> Capture:
        path = folder / f"{case}.{variant}.json"
        if not path.exists():
            first = CASES.index(case) // BLOCK * BLOCK
            command = [sys.executable, HERE / "recording.py", folder, *CASES[first : first + BLOCK]]
            subprocess.run(command, check=True, timeout=280, capture_output=True, text=True)
        return capture_from_json(path.read_bytes())

    return read


@pytest.fixture(scope="session")
def blocks() -> list[list[str]]:
    """The cases as they are recorded together."""
    return [CASES[first : first + BLOCK] for first in range(0, len(CASES), BLOCK)]
