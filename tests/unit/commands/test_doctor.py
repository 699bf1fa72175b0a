"""``graphguard doctor`` on systems and installations that lack something, and what a check says there."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from graphguard.cli import main
from graphguard.commands import doctor
from graphguard.trace.programs import worker

from .project import write_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def symptoms():
    return {symptom.part: (symptom.ok, symptom.text) for symptom in doctor._symptoms()}


def test_a_system_that_cannot_fork(project, monkeypatch, capsys):
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr("platform.system", lambda: "Windows")
    found = symptoms()
    assert found["system"][0] is False
    assert found["system"][1].startswith("Windows ")
    assert "use Linux, macOS or WSL; graphguard explain works here" in found["system"][1]
    assert "worker" not in found
    assert main(["check", "--no-cache"]) == 2
    assert "programs are recorded in forked processes, which this system does not have" in capsys.readouterr().out


def test_a_system_that_is_not_tested(project, monkeypatch):
    monkeypatch.setattr(doctor.sys, "platform", "darwin")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert doctor._system().ok is None
    assert "not tested" in doctor._system().text


def test_parts_that_are_optional(project, monkeypatch):
    def none(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", lambda name: "0.1.0" if name == "graphguard" else none(name))
    found = symptoms()
    assert found["pygls"] == (None, "not installed: graphguard lsp needs it: pip install 'graphguard[server]'")
    assert found["distributed"][1].endswith("pip install 'graphguard[dask]'")
    assert found["mcp"][1].endswith("pip install 'graphguard[mcp]'")


def test_a_language_server_that_is_not_installed():
    run = "import sys; sys.modules['pygls'] = None; from graphguard.cli import main; sys.exit(main(['lsp']))"
    found = subprocess.run([sys.executable, "-c", run], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr.startswith("graphguard: the language server is not installed (")
    assert found.stderr.endswith("): pip install 'graphguard[server]'\n")


@pytest.mark.parametrize(
    ("torch", "ok", "says"),
    [
        (None, False, "not installed for the worker: install it there, or set python in [tool.graphguard]"),
        ("2.9.1+cu128", False, "2.9.1+cu128: GraphGuard needs 2.10 or newer"),
        ("2.13.0+cpu", True, "2.13.0+cpu"),
        ("2.15.0", None, "2.15.0; GraphGuard was tested with 2.13, 2.14"),
    ],
)
def test_releases_of_torch(torch, ok, says):
    found = doctor._torch(torch)
    assert found.ok is ok
    assert found.text.startswith(says)


@pytest.mark.parametrize(
    ("torch", "code", "says"), [(None, "no-torch", "install it there"), ("2.9.1", "old-torch", "needs 2.10 or newer")]
)
def test_a_worker_without_a_torch_that_serves(monkeypatch, torch, code, says):
    monkeypatch.setattr(worker, "installed_version", lambda package: torch)
    monkeypatch.setattr(worker, "_has_torch", lambda: torch is not None)
    with pytest.raises(worker.RequestError) as refused:
        worker._target({"file": "check.py", "root": "."})
    assert refused.value.code == code
    assert says in str(refused.value)
