"""A baseline: the findings a project lives with, so that only new ones fail.

The file is meant to be committed.  It lists fingerprints with their counts, and it shrinks by itself: what is no longer found leaves it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.fingerprint import fingerprint
from graphguard.report.sources import Sources

VERSION = 1


class BaselineError(ValueError):
    """The file is not a baseline; the message names it and says what to do."""


@dataclass(slots=True)
class Baseline:
    """Known findings: for every check, fingerprint to number of places.

    A finding is looked up under its check: one that several checks, or several meshes of a check, share counts once for each check.
    """

    known: dict[str, Counter[str]] = field(default_factory=dict)
    _seen: dict[str, Counter[str]] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def apply(self, report: Report, sources: Sources) -> Report:
        """The report with known diagnostics moved to ``waived``."""
        if report.verdict is None:
            self._failed.add(report.check.id)
        names = [fingerprint(diagnostic, sources) for diagnostic in report.diagnostics]
        known = self.known.get(report.check.id, Counter())
        here: Counter[str] = Counter()
        kept: list[Diagnostic] = []
        moved: list[Diagnostic] = []
        for name, diagnostic in zip(names, report.diagnostics, strict=True):
            here[name] += 1
            (moved if here[name] <= known[name] else kept).append(diagnostic)
        self._seen[report.check.id] = self._seen.get(report.check.id, Counter()) | here
        return replace(report, diagnostics=tuple(kept), waived=(*report.waived, *moved)) if moved else report

    def shrunk(self, there: Collection[str] | None = None) -> int:
        """Forget what the checks seen no longer find; the number of findings forgotten.

        Checks that did not run, or could not be, keep theirs.  ``there`` are the checks that the whole project has: others are forgotten,
        unless their file is one of those, because it does not parse.
        """
        before = self.total()
        for check, seen in self._seen.items():
            if check not in self._failed:
                self.known[check] = self.known.get(check, Counter()) & seen
        if there is not None:
            kept = {check for check in self.known if check in there or check.partition("::")[0] in there}
            self.known = {check: counts for check, counts in self.known.items() if check in kept}
        return before - self.total()

    def total(self) -> int:
        """How many findings it lists."""
        return sum(counts.total() for counts in self.known.values())

    def text(self) -> str:
        """The file's text: sorted, one finding a line, so that it merges well."""
        checks = {check: dict(sorted(counts.items())) for check, counts in sorted(self.known.items()) if counts}
        return json.dumps({"version": VERSION, "checks": checks}, indent=1) + "\n"


def baseline_of(reports: Iterable[Report], sources: Sources) -> Baseline:
    """A baseline with every diagnostic of the reports."""
    known: dict[str, Counter[str]] = {}
    for report in reports:
        counts = Counter(fingerprint(diagnostic, sources) for diagnostic in report.diagnostics)
        known[report.check.id] = known.get(report.check.id, Counter()) | counts
    return Baseline(known)


def read_baseline(path: Path) -> Baseline:
    """The baseline of a file; raises :class:`BaselineError`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BaselineError(f"{path}: there is no such baseline; --write-baseline writes it") from error
    except (OSError, ValueError) as error:
        raise BaselineError(f"{path}: not a baseline: {error}") from error
    return Baseline({check: Counter(counts) for check, counts in _checks(document, path).items()})


def _checks(document: Any, path: Path) -> Mapping[str, dict[str, int]]:
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise BaselineError(f"{path}: not a baseline of version {VERSION}; --write-baseline writes it anew")
    checks = document.get("checks")
    if isinstance(checks, dict) and all(
        isinstance(counts, dict) and all(type(count) is int and count > 0 for count in counts.values())
        for counts in checks.values()
    ):
        return checks
    raise BaselineError(
        f"{path}: not a baseline: 'checks' must map checks to numbers of findings; --write-baseline writes it anew"
    )
