"""Tests of the capture core share one warm process."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    from graphguard.trace.worlds.world import warm

    warm()
