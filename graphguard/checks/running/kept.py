"""Reports on disk: a check that would be recorded and proved as it was is told as it was, without a worker, a prover or torch.

An entry holds for as long as all that the recording depended on is as it was (:mod:`graphguard.trace.depends.footprint`), the sources' comments and layout included,
because findings quote them.  It claims a verdict, so it is believed only where this user's key signed it (:mod:`graphguard.checks.proving.shelf`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphguard.checks.judging.requests import CheckRequest
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.proving.shelf import DiskShelf, user_shelf
from graphguard.checks.running.worker_client import worker_command
from graphguard.report.diagnostics import Report, Verdict
from graphguard.trace.depends.cache import request_key
from graphguard.trace.depends.footprint import text_digest, unchanged
from graphguard.trace.source.sources import SOURCES


@dataclass(frozen=True, slots=True)
class Kept:
    """A report and what it depended on."""

    depends: dict[str, Any]
    report: Report


def kept_reports(configuration: Configuration) -> KeptReports | None:
    """Those in the user's cache folder; None where no key can be kept, or where the project has another interpreter, whose packages this one does not know."""
    shelf = user_shelf("reports")
    if shelf is None or configuration.python not in ((), (sys.executable,)):
        return None
    return KeptReports(shelf, worker_command(configuration.python, configuration.sources)[1])


@dataclass(frozen=True, slots=True)
class KeptReports:
    """One entry for each request; ``environment`` is what the worker would have."""

    shelf: DiskShelf
    environment: Mapping[str, str]

    def find(self, request: CheckRequest) -> Report | None:
        """The report of a request, or of one that asks for relations as well, where all that it depended on is as it was; without seconds, as nothing was done."""
        if request.overlay:
            return None
        known = self.shelf.get(self._digest(request), Kept)
        if known is None and not request.relations:
            known = self.shelf.get(self._digest(replace(request, relations=True)), Kept)
        if known is None or not self._holds(known.depends):
            return None
        return replace(known.report, seconds={}, cached=True, depends=known.depends)

    def keep(self, request: CheckRequest, report: Report) -> None:
        """Keep a verdict; what could not be decided may be decided another time."""
        if report.depends is None or report.verdict in (None, Verdict.UNKNOWN) or request.overlay:
            return
        texts = {name: str(relation) for name, relation in report.relations.items()}
        plain = replace(report, relations=texts, seconds={}, proof="", depends=None)
        self.shelf.put(self._digest(request), Kept(report.depends, plain))

    def _holds(self, depends: Mapping[str, Any]) -> bool:
        try:
            written = all(text_digest(Path(path).read_bytes()) == text for path, text in depends["sources"].items())
        except OSError:
            return False
        return written and unchanged(depends, self.environment)

    def _digest(self, request: CheckRequest) -> str:
        """Everything that a report depends on beside what was recorded: GraphGuard and the installed packages are part of the first."""
        key = request_key(request.file, request.name, request.mesh, request.root, ranks=request.ranks)
        asked = [key, sorted(request.levels.items()), request.fixes, request.cross_check, request.relations]
        asked += [request.audit, request.smallest, request.timeout, self.environment[SOURCES]]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
