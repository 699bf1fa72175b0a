import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def captures(tmp_path_factory) -> Path:
    """A folder with the captures of all programs, recorded once."""
    folder = tmp_path_factory.mktemp("captures")
    subprocess.run(
        [sys.executable, HERE / "recording.py", folder], check=True, timeout=280, capture_output=True, text=True
    )
    return folder
