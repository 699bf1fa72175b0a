"""Where the time of a diagnosis and of its fixes goes: ``python -m benchmarks.profile_diagnosis NAME [--lines 25] [--sort tottime]``.

Runs the spoiled program of that name (`benchmarks/mutants`) and prints, for the diagnosis and for the search for fixes, processor seconds by step and a profile of what the prover does.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.diagnosis import watched, worker_time
from benchmarks.mutants.edit import ROOT, SourceEdit
from benchmarks.mutants.lists import EDITS
from graphguard.checks.judging.requests import CheckRequest, Step, Steps
from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.driver import drive
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.report.diagnostics import Report

PARTS = ("check", "diagnosis", "fixes", "smallest")


class Profiles:
    """A profile of the prover and seconds by step, for each part of the work on one check."""

    def __init__(self) -> None:
        self.profiles = {part: cProfile.Profile() for part in PARTS}
        self.seconds: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
        self.calls: dict[str, Counter[str]] = {part: Counter() for part in PARTS}

    def watched(self, steps: Steps, profiled: bool) -> Steps:
        """The same steps, each of them timed and, where it is wanted, profiled."""

        @contextmanager
        def around(part: str, asked: tuple[Step, ...]) -> Iterator[None]:
            method = "+".join(each.method for each in asked)
            here, there = time.thread_time(), worker_time()
            if profiled:
                self.profiles[part].enable()
            yield
            if profiled:
                self.profiles[part].disable()
            worked = worker_time() - there if any(each.process == "worker" for each in asked) else 0.0
            self.seconds[part][method] += time.thread_time() - here + worked
            self.calls[part][method] += 1

        return watched(steps, around)


def profiled(edit: SourceEdit, profile: bool, cache: bool) -> tuple[Profiles, Report]:
    """Check a spoiled program and watch it."""
    watch = Profiles()
    overlay = {str(ROOT / edit.file): edit.spoiled()}
    request = CheckRequest(
        str(ROOT / edit.program), edit.check, None, str(ROOT), overlay=overlay, relations=False, cache=cache
    )
    worker = WorkerClient(Configuration(ROOT))
    try:
        report = drive(watch.watched(check_steps(request), profile), worker, Prover())
    finally:
        worker.close()
    return watch, report


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="part of a name; the first one that has it is run")
    parser.add_argument("--lines", type=int, default=25, help="lines of each profile; 0 for the seconds alone")
    parser.add_argument("--sort", default="cumulative", help="order of the lines")
    options = parser.parse_args()
    edit = next(edit for edit in EDITS if options.name in edit.name)
    watch, report = profiled(edit, options.lines > 0, cache=True)
    print(f"{edit.name}: {report.verdict}")
    for diagnostic in report.diagnostics:
        print(f"  {diagnostic.rule} {diagnostic.span}: {diagnostic.message}")
    for part in PARTS:
        rows = watch.seconds[part].most_common()
        print(
            f"{part}: " + ", ".join(f"{method} {1000 * s:.0f} ms in {watch.calls[part][method]}" for method, s in rows)
        )
        if options.lines and rows and part in ("diagnosis", "fixes"):
            text = io.StringIO()
            pstats.Stats(watch.profiles[part], stream=text).sort_stats(options.sort).print_stats(options.lines)
            print(text.getvalue())


if __name__ == "__main__":
    main()
