"""The installed engine, as the server uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import ConfigurationError, load_configuration
from graphguard.checks.running.worker_client import worker_command
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers
from graphguard.trace.claims.declared import FoundCheck, checks_in
from graphguard.trace.depends.cache import clear_cache
from graphguard_server.processes.engine import Engine, ProjectConfiguration
from graphguard_server.processes.processes import Launch
from graphguard_server.texts.source import parsed

SCANNED_FILES: Final = 4000
_MARKS: Final = ("pyproject.toml", ".git", "setup.py")
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist", "venv"})


def installed_engine() -> Engine:
    """The engine of the installed package."""
    return Engine(
        check_steps, _discover, _configure, _check_files, _waive, _unused_waivers, _worker, _prover, clear_cache
    )


def _discover(path: str, text: str, root: str) -> Sequence[FoundCheck]:
    return checks_in(path, text, root, parsed(text))


def _configure(folder: str) -> ProjectConfiguration:
    try:
        found = load_configuration(Path(folder))
    except ConfigurationError as error:
        return ProjectConfiguration("", trouble=str(error), place=Span(str(error.file), max(error.line, 1)))
    return ProjectConfiguration(
        str(found.root),
        found.checks,
        found.python,
        found.timeout,
        found.memory,
        found.levels,
        found.sources,
        found.ranks,
    )


def _check_files(configuration: ProjectConfiguration) -> list[str]:
    """The configured files, and others of the folder that mention GraphGuard: a check beside its model is found without configuration.

    A folder that is no project is not searched: it may be somebody's home.
    """
    root = Path(configuration.root)
    if not any((root / mark).exists() for mark in _MARKS):
        return sorted(str(path) for path in root.glob("*.py") if _mentions(str(path)))
    configured = {str(path) for pattern in configuration.checks for path in root.glob(pattern) if path.is_file()}
    return sorted(configured | {path for path in _python_files(configuration.root) if _mentions(path)})


def _python_files(root: str) -> Iterator[str]:
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                seen += 1
                if seen > SCANNED_FILES:
                    return
                yield os.path.join(folder, name)


def _mentions(path: str) -> bool:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return False
    return b"graphguard" in data and b"check" in data


def _waive(report: Report, texts: Mapping[str, str], levels: Mapping[str, str]) -> Report:
    return Waivers(Sources(texts=dict(texts)), levels).apply(report)


def _unused_waivers(reports: Sequence[Report], path: str, text: str, levels: Mapping[str, str]) -> Sequence[Diagnostic]:
    waivers = Waivers(Sources(texts={path: text}), levels)
    for report in reports:
        waivers.apply(replace(report, diagnostics=(*report.diagnostics, *report.waived), waived=()))
    return waivers.unused([path])


def _worker(python: Sequence[str], root: str, sources: Sequence[str]) -> Launch:
    command, environment = worker_command(python or (sys.executable,), sources)
    return Launch(command, environment, root)


def _prover() -> Launch:
    return Launch([sys.executable, "-m", "graphguard.checks.proving.prover"], _engine_path())


def _engine_path() -> dict[str, str]:
    """Where the bundled engine and its dependencies lie, for a prover that is started by the server's own Python."""
    parts = [
        os.environ[name] for name in ("GRAPHGUARD_ENGINE_PATH", "GRAPHGUARD_FALLBACK_PATH") if os.environ.get(name)
    ]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}
