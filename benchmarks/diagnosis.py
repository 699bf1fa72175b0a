"""How well defects are diagnosed: spoiled programs, and for each whether place, rule, fix and counterexample are right.

``python -m benchmarks.diagnosis [--only TEXT] [--part 1/4] [--jobs 2] [--save FILE] [--verbose]`` checks spoiled programs and prints a line for each, then
the shares of the whole.  ``--save`` keeps the rows in a JSON file, those of earlier runs included; ``--table FILE`` prints such a file as docs/diagnosis.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.mutants.edit import ROOT, SourceEdit
from benchmarks.mutants.lists import EDITS
from benchmarks.mutants.table import MARKS, Row, document, shares
from graphguard.checks.judging.requests import CheckRequest, Step, Steps
from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.driver import drive
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.report.diagnostics import Report, Verdict

SHOWN = ("check", "fixes", "smallest")
"""What is worked on, by how many reports there are already."""


@dataclass(slots=True)
class Stopwatch:
    """Adds up processor time by what it is spent on: ``check`` (tracing and proof), ``diagnosis``, ``fixes``, ``smallest`` (the counterexample).

    It is the time of this thread, in which the prover runs, and of the tracing worker with its children.
    """

    seconds: dict[str, float]

    def watched(self, steps: Steps) -> Steps:
        """The same steps, with the answer to each of them timed."""
        return watched(steps, self._timed)

    @contextmanager
    def _timed(self, part: str, asked: tuple[Step, ...]) -> Iterator[None]:
        here, there = time.thread_time(), worker_time()
        yield
        worked = worker_time() - there if any(each.process == "worker" for each in asked) else 0.0
        self.seconds[part] = self.seconds.get(part, 0.0) + time.thread_time() - here + worked


Around: TypeAlias = Callable[[str, tuple[Step, ...]], AbstractContextManager[None]]


def watched(steps: Steps, around: Around) -> Steps:
    """The same steps, each answered within ``around(part of the work, what is asked at once)``."""
    answer: Any = None
    shown = 0
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            report: Report = end.value
            return report
        if isinstance(step, Report):
            shown += 1
            answer = yield step
            continue
        asked = (step,) if isinstance(step, Step) else step
        part = SHOWN[shown] if shown else "diagnosis" if asked[0].method == "diagnose" else "check"
        with around(part, asked):
            answer = yield step


def worker_time() -> float:
    """Seconds of child processes that run, and of what these waited for: what a child still does when its answer is there is not asked for."""
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def run(edit: SourceEdit, worker: WorkerClient) -> Row:
    """Check one spoiled program."""
    clock = Stopwatch({})
    request = CheckRequest(
        str(ROOT / edit.program),
        edit.check,
        None,
        str(ROOT),
        overlay={str(ROOT / edit.file): edit.spoiled()},
        relations=False,
    )
    started = time.perf_counter()
    report = drive(clock.watched(check_steps(request)), worker, Prover())
    return _row(edit, report, time.perf_counter() - started, clock.seconds)


def _row(edit: SourceEdit, report: Report, seconds: float, parts: dict[str, float]) -> Row:
    first = report.diagnostics[0] if report.diagnostics else None
    span = first.span if first else None
    place, file = "", ""
    lines: range = range(0)
    if span is not None:
        path = Path(span.file)
        file = str(path.relative_to(ROOT) if path.is_absolute() and path.is_relative_to(ROOT) else path)
        lines = range(span.line, max(span.line, span.end_line) + 1)
        place = f"{file}:{span.line}"
    marks = {
        "broken": report.verdict is Verdict.BROKEN,
        "line": any((file, line) in edit.places() for line in lines),
        "rule": first is not None and first.rule in edit.rules,
        "fix": first is not None and bool(first.fixes),
        "one": len(report.diagnostics) == 1,
        "numbers": report.counterexample is not None,
    }
    findings = [f"{each.rule}: {each.message}" for each in report.diagnostics]
    fixes = [fix.title for each in report.diagnostics for fix in each.fixes]
    row = Row(edit.name, edit.program, edit.rules, marks, findings, fixes, place, round(seconds, 2), parts)
    return replace(row, revision=_revision())


@functools.cache
def _revision() -> str:
    """The short name of the commit that is measured, with a mark where files differ from it."""
    if not (ROOT / ".git").exists():
        return "no repository"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _worker_runs(edits: list[SourceEdit]) -> Iterator[Row]:
    worker = WorkerClient(Configuration(ROOT))
    try:
        for edit in edits:
            yield run(edit, worker)
    finally:
        worker.close()


def _send_runs(edits: list[SourceEdit], queue: Any) -> None:
    for row in _worker_runs(edits):
        queue.put(row)
    queue.put(None)


def runs(edits: list[SourceEdit], jobs: int) -> Iterator[Row]:
    """The rows of edits, by several processes at once, each with a worker of its own."""
    if jobs <= 1:
        yield from _worker_runs(edits)
        return
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_send_runs, args=(edits[start::jobs], queue)) for start in range(jobs)]
    for process in processes:
        process.start()
    left = jobs
    while left:
        row = queue.get()
        left -= row is None
        if row is not None:
            yield row
    for process in processes:
        process.join()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--part", default="1/1", help="which part of the list, such as 2/4")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--save", type=Path, help="keep the rows here")
    parser.add_argument("--table", type=Path, help="print the document of saved rows, and run nothing")
    parser.add_argument("--failed", type=Path, help="run what fails a mark in these saved rows")
    parser.add_argument("--verbose", action="store_true", help="print every message")
    options = parser.parse_args()
    if options.table:
        sys.stdout.write(document(_saved(options.table)))
        return
    part, parts = (int(number) for number in options.part.split("/"))
    edits = [edit for edit in EDITS if options.only in edit.name][part - 1 :: parts]
    if options.failed:
        failed = {row.name for row in _saved(options.failed) if not all(row.marks.values())}
        edits = [edit for edit in edits if edit.name in failed]
    rows = []
    for row in runs(edits, options.jobs):
        rows.append(row)
        _print(row, options.verbose)
        if options.save:
            _save(options.save, row)
    if rows:
        print()
        print("\n".join(f"{mark:8s} {share}" for mark, share in shares(rows).items()))


def _saved(path: Path) -> list[Row]:
    rows = {row["name"]: Row(**row) for row in json.loads(path.read_text())}
    return [rows[edit.name] for edit in EDITS if edit.name in rows]


def _save(path: Path, row: Row) -> None:
    rows = {kept.name: kept for kept in (_saved(path) if path.exists() else [])}
    rows[row.name] = row
    path.write_text(json.dumps([asdict(kept) for kept in rows.values()], indent=1))


def _print(row: Row, verbose: bool) -> None:
    marks = " ".join(name if row.marks[name] else "-" * len(name) for name in MARKS)
    print(f"{marks}  {row.seconds:5.2f} s  {row.name}", flush=True)
    if verbose or not all(row.marks.values()):
        for finding in row.findings:
            print(f"    {row.place} {finding!r}")
        print(f"    expected {row.rules}, fixes={row.fixes}", flush=True)


if __name__ == "__main__":
    main()
