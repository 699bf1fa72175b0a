"""How well defects are diagnosed: spoiled programs, and for each whether place, rule, fix and counterexample are right.

``python -m benchmarks.diagnosis [--only TEXT]`` prints a table and the shares of the whole.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.edits import EDITS, SourceEdit
from graphguard.checks.configuration import Configuration
from graphguard.checks.driver import drive
from graphguard.checks.prover import Prover
from graphguard.checks.steps import CheckRequest, check_steps
from graphguard.checks.worker_client import WorkerClient
from graphguard.report.diagnostics import Report, Verdict

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one spoiled program."""

    edit: SourceEdit
    report: Report
    line: str
    seconds: float

    @property
    def marks(self) -> dict[str, bool]:
        """Which of the figures this program reaches."""
        first = self.report.diagnostics[0] if self.report.diagnostics else None
        return {
            "broken": self.report.verdict is Verdict.BROKEN,
            "line": any(place in self.line for place in self.edit.place),
            "rule": first is not None and first.rule in self.edit.rules,
            "fix": first is not None and bool(first.fixes),
            "one": len(self.report.diagnostics) == 1,
            "numbers": self.report.counterexample is not None,
        }


def spoiled(edit: SourceEdit) -> tuple[str, str]:
    """The path and the text of a spoiled program; raises ``ValueError`` where the edit does not fit its file."""
    path = ROOT / edit.file
    text = path.read_text()
    at = -1
    for _ in range(edit.occurrence + 1):
        at = text.index(edit.old, at + 1)
    return str(path), text[:at] + edit.new + text[at + len(edit.old) :]


def run(edit: SourceEdit, worker: WorkerClient, prover: Prover, mesh: dict[str, int] | None) -> Row:
    """Check one spoiled program."""
    path, text = spoiled(edit)
    request = CheckRequest(path, edit.check, mesh, str(ROOT), overlay={path: text}, relations=False)
    started = time.perf_counter()
    report = drive(check_steps(request), worker, prover)
    span = report.diagnostics[0].span if report.diagnostics else None
    lines = text.splitlines()
    line = "\n".join(lines[span.line - 1 : max(span.line, span.end_line)]) + "\n" if span and span.file == path else ""
    return Row(edit, report, line, time.perf_counter() - started)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--verbose", action="store_true", help="print every message")
    options = parser.parse_args()
    worker, prover = WorkerClient(Configuration(ROOT)), Prover()
    rows = []
    try:
        for edit in EDITS:
            if options.only in edit.name:
                rows.append(run(edit, worker, prover, None))
                _print(rows[-1], options.verbose)
    finally:
        worker.close()
    if not rows:
        return
    print()
    for mark in rows[0].marks:
        print(f"{mark:10s} {sum(row.marks[mark] for row in rows)}/{len(rows)}")


def _print(row: Row, verbose: bool) -> None:
    marks = " ".join(name if ok else "-" * len(name) for name, ok in row.marks.items())
    print(f"{marks}  {row.seconds:5.2f} s  {row.edit.name}", flush=True)
    if verbose or not all(row.marks.values()):
        for diagnostic in row.report.diagnostics:
            place = f"{diagnostic.span.line}" if diagnostic.span else "?"
            print(
                f"    {diagnostic.rule} line {place}: {diagnostic.message!r} fixes={[fix.title for fix in diagnostic.fixes]}"
            )


if __name__ == "__main__":
    main()
