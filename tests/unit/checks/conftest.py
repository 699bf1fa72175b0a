"""Checks recorded from a test, as gg.verify does it, and judged on numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.verify import _Forks
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.confirm.check import confirm
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, CheckRef, Span, capture_from_json
from tests.unit.checks.projects import CHECK, MODEL, Project

Record = Callable[..., Capture]
Judge = Callable[..., Confirmation]


@pytest.fixture
def record() -> Record:
    """``record(build, mesh)`` gives the capture of ``build(device mesh)``, a refinement."""

    def run(build: Callable[[Any], Any], mesh: dict[str, int]) -> Capture:
        reference = CheckRef("test::check", "check", Span(__file__, 1))
        configuration = Configuration(Path(__file__).parent, timeout=60)
        return capture_from_json(
            _Forks(build, mesh, reference, configuration, []).call("capture", {"mesh": mesh})["capture"]
        )

    return run


@pytest.fixture
def judge(record: Record) -> Judge:
    """``judge(build, mesh)`` gives what numbers say of a check that can be recorded."""

    def run(build: Callable[[Any], Any], mesh: dict[str, int]) -> Confirmation:
        capture = record(build, mesh)
        assert not capture.troubles, [trouble.message for trouble in capture.troubles]
        found = confirm(capture)
        assert found.status != "not-run", found.reason
        return found

    return run


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "model.py").write_text(MODEL)
    logs: list[str] = []
    with WorkerClient(Configuration(root, timeout=20.0), logs.append) as client:
        yield Project(root, client, logs)


@pytest.fixture
def project(running):
    yield running
    capture = running.capture("still_alive.py", CHECK)
    assert not capture.troubles, "the worker serves the next check"
