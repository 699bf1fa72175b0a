"""``graphguard doctor``: looks at an installation, part by part, and says what to do about what is wrong."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import graphguard
from graphguard.checks.project.configuration import Configuration, ConfigurationError, load_configuration
from graphguard.checks.running.worker_client import NO_FORK, WorkerClient, WorkerError
from graphguard.report.layout import page_for
from graphguard.trace import OLDEST_TORCH, release

OLDEST_PYTHON = (3, 11)
TESTED_TORCH = ("2.13", "2.14")


@dataclass(frozen=True, slots=True)
class Symptom:
    """One part of the installation: ``ok`` is None for something that works with a reservation."""

    part: str
    ok: bool | None
    text: str


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command has the same form
    """Print one line for every part; 0 where nothing is wrong, else 2."""
    page = page_for(sys.stdout)
    worst = True
    for symptom in _symptoms():
        word, colour = {True: ("ok", "refines"), None: ("note", "warning"), False: ("wrong", "error")}[symptom.ok]
        sys.stdout.write(f"{page.paint(colour, f'{word:>5}')}  {symptom.part}: {symptom.text}\n")
        worst = worst and symptom.ok is not False
    return 0 if worst else 2


def _symptoms() -> Iterator[Symptom]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Symptom("python", sys.version_info[:2] >= OLDEST_PYTHON, f"{python} at {sys.executable}")
    yield Symptom("graphguard", True, f"{version('graphguard')} at {Path(graphguard.__file__).parent}")
    yield _system()
    yield _optional("orjson", "captures are coded by the standard library's slower json")
    yield _optional("pygls", "graphguard lsp needs it: pip install 'graphguard[server]'")
    yield _optional("distributed", "graphguard check --executor dask needs it: pip install 'graphguard[dask]'")
    yield _optional("mcp", "graphguard mcp needs it: pip install 'graphguard[mcp]'")
    try:
        configuration = load_configuration(Path.cwd())
    except ConfigurationError as error:
        yield Symptom("configuration", False, str(error))
        return
    yield Symptom(
        "configuration", True, f"project {configuration.root}, checks {', '.join(configuration.checks) or 'none'}"
    )
    yield _temporary()
    if hasattr(os, "fork"):
        yield from _worker(configuration)


def _system() -> Symptom:
    """What works on this operating system."""
    name = f"{platform.system()} {platform.machine()}"
    if not hasattr(os, "fork"):
        return Symptom("system", False, f"{name}: {NO_FORK}; graphguard explain works here")
    if not sys.platform.startswith("linux"):
        return Symptom("system", None, f"{name}: not tested; the setting memory bounds nothing here")
    return Symptom("system", True, name)


def _optional(package: str, without: str) -> Symptom:
    try:
        return Symptom(package, True, version(package))
    except PackageNotFoundError:
        return Symptom(package, None, f"not installed: {without}")


def _temporary() -> Symptom:
    try:
        with tempfile.NamedTemporaryFile() as file:
            return Symptom("temporary files", True, str(Path(file.name).parent))
    except OSError as error:
        return Symptom("temporary files", False, f"none can be written: {error}")


def _cuda(cuda: dict[str, Any]) -> str:
    """What programs that name CUDA devices get: no GPU is needed, so none of this can be wrong."""
    gigabytes = 2**30
    devices = [
        f"{each['name']} ({each['free'] / gigabytes:.0f} of {each['total'] / gigabytes:.0f} GiB free)"
        for each in cuda["devices"]
    ]
    return f"{', '.join(devices) or 'no device'}; {cuda['why']} ({cuda['mode']})"


def _torch(found: str | None) -> Symptom:
    if found is None:
        return Symptom(
            "torch",
            False,
            "not installed for the worker: install it there, or set python in [tool.graphguard] to the project's interpreter",
        )
    if release(found) < OLDEST_TORCH:
        return Symptom("torch", False, f"{found}: GraphGuard needs {'.'.join(map(str, OLDEST_TORCH))} or newer")
    tested = ", ".join(TESTED_TORCH)
    known = any(found.startswith(f"{version}.") for version in TESTED_TORCH)
    return Symptom(
        "torch", True if known else None, found if known else f"{found}; GraphGuard was tested with {tested}"
    )


def _worker(configuration: Configuration) -> Iterator[Symptom]:
    """The tracing worker and the torch it sees, which need not be those of this process."""
    try:
        with WorkerClient(configuration) as client:
            answer: dict[str, Any] = client.call("hello", {})
            device: dict[str, Any] = client.call("doctor", {}) if answer["torch"] else {}
    except WorkerError as error:
        yield Symptom("worker", False, str(error))
        return
    yield Symptom("worker", True, f"python {answer['python']} at {answer['executable']}")
    yield _torch(answer["torch"])
    if device:
        yield Symptom("cuda", True, _cuda(device["cuda"]))
        yield Symptom("cache", True, str(device["cache"]))
        yield Symptom("processors", True, str(device["processors"]))
