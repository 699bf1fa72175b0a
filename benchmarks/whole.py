"""Whole commands, as a user waits for them: cold (no cache, fresh processes) and with all reports cached, as multiples of ``import torch`` in the same run.

``python -m benchmarks.whole`` prints a table; ``--full`` adds the rows that take minutes, ``--only WORD`` runs the rows that have a word in their names.  Figures are medians:
seconds of the clock, and in brackets of the processor, of all processes together, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import whole_projects

Files = Callable[[Path], list[str]]


@dataclass(frozen=True, slots=True)
class Row:
    """A command: what it is called, the files that it checks, its further arguments."""

    name: str
    files: Files
    arguments: tuple[str, ...] = ()
    full: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of the clock and of the processor, and the most memory that one process had, in bytes."""

    clock: float
    processor: float
    memory: int


def rows() -> Iterator[Row]:
    """All commands, the long ones last."""
    yield Row("one small check", lambda folder: [f"{whole_projects.small(folder, 1)[0]}::right"])
    for jobs in ("1", "2"):
        yield Row(f"the examples, -j {jobs}", whole_projects.examples, ("-j", jobs))
    for jobs in ("1", "2"):
        yield Row(f"40 verdicts of 20 files, -j {jobs}", lambda folder: whole_projects.small(folder, 20), ("-j", jobs))
    for ranks in (2, 8, 64):
        yield Row(f"one 8B-shaped layer, tp {ranks}", _stack(1, ranks), full=ranks > 8)
    yield Row("one 8B-shaped layer, tp 64, --ranks all", _stack(1, 64), ("--ranks", "all"), full=True)
    for ranks in (64, 512, 2048):
        yield Row(f"an MLP, tp {ranks}", _many(ranks), full=ranks > 64)
    for dp, pp, tp in ((2, 2, 2), (16, 4, 2)):
        yield Row(f"a training step, dp {dp} x pp {pp} x tp {tp}", _step(dp, pp, tp), full=dp > 2)
    for layers in (8, 32, 126):
        yield Row(f"{layers} 8B-shaped layers, tp 8", _stack(layers, 8), full=layers > 8)
    for model, layers, ranks in (("70B", 80, 8), ("405B", 126, 16)):
        yield Row(f"one {model}-shaped layer, tp {ranks}", _stack(1, ranks, model), full=True)
        yield Row(f"{layers} {model}-shaped layers, tp {ranks}", _stack(layers, ranks, model), full=True)


def _stack(layers: int, ranks: int, model: str = "8B") -> Files:
    return lambda folder: whole_projects.stack(folder, layers, ranks, model)


def _step(dp: int, pp: int, tp: int) -> Files:
    return lambda folder: whole_projects.step(folder, dp, pp, tp, 2 * pp, 4)


def _many(ranks: int) -> Files:
    return lambda folder: whole_projects.many(folder, ranks)


def taken(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Taken:
    """What a command takes; raises ``RuntimeError`` where it could not run."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")
    return Taken(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def median(runs: Sequence[Taken]) -> Taken:
    """The median of each figure."""
    return Taken(
        statistics.median(run.clock for run in runs),
        statistics.median(run.processor for run in runs),
        round(statistics.median(run.memory for run in runs)),
    )


def measured(row: Row, folder: Path, repeats: int) -> tuple[Taken, Taken]:
    """A command cold, and again with what it left in the cache."""
    cold, warm = [], []
    for number in range(repeats):
        home = folder / str(number)
        project = whole_projects.project(home / "project")
        environment = {
            **os.environ,
            "GRAPHGUARD_CACHE_DIR": str(home / "cache"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        command = [sys.executable, "-m", "graphguard", "check", *row.files(project), *row.arguments]
        cold.append(taken(command, project, environment))
        warm.append(taken(command, project, environment))
    return median(cold), median(warm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5, help="runs of every command (default: 5)")
    parser.add_argument("--full", action="store_true", help="64 ranks, and 32 and 126 layers, as well")
    parser.add_argument("--only", default="", help="the rows whose names have this in them")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        torch = median(
            [taken([sys.executable, "-c", "import torch"], folder, dict(os.environ)) for _ in range(options.repeats)]
        )
        print(f"`import torch`: {torch.clock:.1f} s ({torch.processor:.1f} s of the processor)\n")
        print("| command | cold | cached | cold, of the processor | cached, of the processor | memory |")
        print("|---|---|---|---|---|---|")
        for number, row in enumerate(rows()):
            if options.only in row.name and (options.full or not row.full):
                print(_line(row, *measured(row, folder / str(number), options.repeats), torch), flush=True)


def _line(row: Row, cold: Taken, warm: Taken, unit: Taken) -> str:
    clocks = [f"{one.clock / unit.clock:.1f}x ({one.clock:.1f} s)" for one in (cold, warm)]
    processors = [f"{one.processor / unit.processor:.1f}x ({one.processor:.1f} s)" for one in (cold, warm)]
    return f"| {' | '.join((row.name, *clocks, *processors))} | {cold.memory / 2**20:.0f} MiB |"


if __name__ == "__main__":
    main()
