"""A project on disk, and one worker for the tests of all files."""

from pathlib import Path

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running import driver
from graphguard.checks.running.worker_client import WorkerClient

from .project import write_project


class Lent:
    """The one worker of all these tests in place of a worker for every command: starting one takes longer than a check."""

    def __init__(self, client):
        self.call = client.call

    def close(self):
        pass


@pytest.fixture(scope="session")
def worker():
    client = WorkerClient(Configuration(Path.cwd()))
    yield client
    client.close()


@pytest.fixture
def project(tmp_path, monkeypatch, worker):
    monkeypatch.setattr(driver, "WorkerClient", lambda configuration, on_log=None: Lent(worker))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write_project(tmp_path)
    return tmp_path
