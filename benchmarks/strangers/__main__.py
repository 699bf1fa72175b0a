"""``python -m benchmarks.strangers [--ordinary | --styles] [--only TEXT] [--repaired] [--verbose]``: how well bugs are told that nobody here had seen.

A line for each program: how far the finding's line is from the bug's, whether its rule names it, whether a fix was proved, seconds; then the shares.
``--ordinary``: the commonest mistakes in loops of a few steps instead; ``--styles``: code in the styles of public frameworks.  ``--repaired`` checks the repaired programs as well, which must refine.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.strangers.program import ORDINARY, PROGRAMS, STYLES, Program, programs
from graphguard.checks.judging.requests import CheckRequest
from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.driver import drive
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.report.diagnostics import Report, Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one program; ``away`` is None where the first finding is not in the program."""

    name: str
    broken: bool
    away: int | None
    rule: bool
    fix: bool
    seconds: float

    def __str__(self) -> str:
        where = "elsewhere" if self.away is None else "line exact" if self.away == 0 else f"line {self.away} away"
        marks = [("broken", self.broken), ("rule", self.rule), ("fix", self.fix)]
        return f"{self.name:32s} {where:14s} {' '.join(mark if is_so else '-' * len(mark) for mark, is_so in marks)}  {self.seconds:5.1f} s"


def checked(program: Program, text: str, worker: WorkerClient) -> Report:
    """The report on a text of a program."""
    path = str(program.path)
    request = CheckRequest(path, "check", None, str(program.path.parent), overlay={path: text}, relations=False)
    report: Any = drive(check_steps(request), worker, Prover())
    assert isinstance(report, Report)
    return report


def judged(program: Program, report: Report, seconds: float) -> Row:
    """A report against what is known of the bug."""
    first = report.diagnostics[0] if report.diagnostics else None
    span = first.span if first is not None else None
    away = None
    if span is not None and span.file == str(program.path):
        told = range(span.line, max(span.line, span.end_line) + 1)
        away = min(abs(line - known) for line in told for known in program.lines)
    rule = first is not None and first.rule in program.rules
    fix = first is not None and bool(first.fixes)
    return Row(program.path.stem, report.verdict is Verdict.BROKEN, away, rule, fix, seconds)


def main() -> int:
    """The command; 1 where a repaired program does not refine."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ordinary", action="store_true", help="the commonest mistakes, in loops of a few steps")
    which.add_argument(
        "--styles", action="store_true", help="models, steps and inference in the styles of public frameworks"
    )
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--repaired", action="store_true", help="check the repaired programs as well")
    parser.add_argument("--verbose", action="store_true", help="print every message")
    options = parser.parse_args()
    worker = WorkerClient(Configuration(PROGRAMS))
    rows, wrong = [], 0
    try:
        folder = ORDINARY if options.ordinary else STYLES if options.styles else PROGRAMS
        for program in programs(options.only, folder):
            if options.repaired:
                fixed = checked(program, program.repaired, worker)
                if fixed.verdict is not Verdict.REFINES:
                    wrong += 1
                    print(
                        f"{program.path.stem}: the repaired program is {fixed.verdict}: {[each.message for each in fixed.diagnostics]}",
                        flush=True,
                    )
            started = time.perf_counter()
            report = checked(program, program.buggy, worker)
            rows.append(judged(program, report, time.perf_counter() - started))
            print(rows[-1], flush=True)
            for each in report.diagnostics if options.verbose else ():
                place = f"{each.span.line}" if each.span is not None else "?"
                print(f"    {place} {each.rule}: {each.message}  {[fix.title for fix in each.fixes]}", flush=True)
    finally:
        worker.close()
    if rows:
        exact, near = sum(row.away == 0 for row in rows), sum(row.away is not None and row.away <= 1 for row in rows)
        print(
            f"\n{len(rows)} programs: line exact {exact}, within one {near}, rule {sum(row.rule for row in rows)}, fix {sum(row.fix for row in rows)}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
