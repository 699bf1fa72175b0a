"""Replay: the verdicts and relations of all cases are recorded, and a change of one must be declared.

``pytest --record`` writes what is found now; the difference is then in the commit, for whoever reads it.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.folding import mesh_text
from graphguard.report.sources import Sources


class Recording:
    """One file of records, by name; ``update`` writes what is found instead of comparing."""

    def __init__(self, path: Path, *, update: bool) -> None:
        self.path, self.update = path, update

    def compare(self, name: str, found: Any) -> list[str]:
        """What differs from the record, in lines for people; empty where nothing does."""
        if self.update:
            self._write(name, found)
            return []
        known = self._read()
        if name not in known:
            return [f"not recorded in {self.path.name}: `pytest --record` records what is found"]
        if known[name] == found:
            return []
        before, after = (
            json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False).splitlines() for each in (known[name], found)
        )
        changed = [row for row in difflib.ndiff(before, after) if row[:1] in "+-"]
        return [f"not as recorded in {self.path.name}; `pytest --record` declares the change:", *changed]

    def only(self, names: Iterable[str]) -> list[str]:
        """Records of what is no longer there, in lines for people; an update takes them out."""
        gone = sorted(set(self._read()) - set(names))
        if gone and self.update:
            for name in gone:
                self._write(name, None)
            return []
        return [f"recorded in {self.path.name}, but not there: {name}" for name in gone]

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text(encoding="utf-8"))) if self.path.exists() else {}

    def _write(self, name: str, found: Any) -> None:
        """Change one record; several test processes may do so at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(Path(tempfile.gettempdir()) / f"graphguard-record-{os.getuid()}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = {key: value for key, value in {**self._read(), name: found}.items() if value is not None}
            text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
            self.path.write_text(text + "\n", encoding="utf-8")


def record_of(reports: Sequence[Report], sources: Sources) -> list[dict[str, Any]]:
    """What is recorded of reports: verdicts, findings without their words, and relations."""
    return [
        {
            "check": " ".join(part for part in (report.check.name, mesh_text(report.mesh)) if part),
            "verdict": None if report.verdict is None else report.verdict.value,
            "findings": [_finding(each, sources) for each in (*report.diagnostics, *report.waived)],
            "relations": [f"{name} = {relation}" for name, relation in report.relations.items()],
        }
        for report in reports
    ]


def _finding(diagnostic: Diagnostic, sources: Sources) -> str:
    span = diagnostic.span
    place = "" if span is None else f" {sources.shown(span.file)}:{span.line}"
    return f"{diagnostic.severity}[{diagnostic.rule}]{place}"
