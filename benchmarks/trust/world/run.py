"""A run of many programs: in several processes, counted, and what disagrees made short."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.trust.world.compare import UNSOUND, Judged, judged, settled
from benchmarks.trust.world.generate import program
from benchmarks.trust.world.product import Product
from benchmarks.trust.world.program import Program
from benchmarks.trust.world.real import Care, Ranks
from benchmarks.trust.world.shrink import shrunk
from graphguard.trace.process.parentage import die_with

_RANKS = 4
_SLICE = 500  # programs on one set of processes
_SHRUNK = 12  # of a slice: where more disagree, the first say enough
_CAREFUL = Care(trials=4, still=4.0, late=1.0)


@dataclass(slots=True)
class Tally:
    """Counts of (verdict, truth, outcome), by kind of step as well; and what disagrees."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    found: list[Judged] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, row: Judged) -> None:
        """Count a program."""
        truth = (
            row.truth.kind + (" if late" if row.truth.lazily else "") + (", not dense" if row.truth.not_dense else "")
        )
        self.counts[row.said.verdict, truth, row.outcome] += 1
        for kind in row.program.kinds:
            self.kinds[kind, row.outcome] += 1
        if row.said.verdict in ("unknown", "not run"):
            right = "right" if row.truth.kind == "equal" else "wrong"
            self.reasons[f"{row.said.verdict}, {right}: {_reason(row.said.headline)}"] += 1

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.counts += other.counts
        self.kinds += other.kinds
        self.reasons += other.reasons
        self.found += other.found
        self.seconds += other.seconds

    @property
    def programs(self) -> int:
        """How many were run."""
        return sum(self.counts.values())

    def unsound(self) -> int:
        """How many are a defect of the product's."""
        return sum(count for (_, _, outcome), count in self.counts.items() if outcome in UNSOUND)

    def lines(self) -> Iterator[str]:
        """A report."""
        yield f"{'verdict':10}{'truth':28}{'outcome':16}programs"
        for (verdict, truth, outcome), count in sorted(self.counts.items()):
            yield f"{verdict:10}{truth:28}{outcome:16}{count:8}"
        outcomes = sorted({outcome for _, outcome in self.kinds})
        yield "".join((f"\n{'kind of step':24}", *(f"{outcome:>15}" for outcome in outcomes)))
        for kind in sorted({kind for kind, _ in self.kinds}):
            yield "".join((f"{kind:24}", *(f"{self.kinds[kind, outcome]:15}" for outcome in outcomes)))
        yield from ("", *(f"{count:6}  {reason}" for reason, count in self.reasons.most_common(25)))
        yield from ("", f"right programs: {self._shares(right=True)}", f"wrong programs: {self._shares(right=False)}")
        each = self.seconds / max(self.programs, 1)
        yield f"{self.programs} programs, {each:.2f} s each in one of the processes, {self.unsound()} unsound"

    def _shares(self, *, right: bool) -> str:
        count = Counter[str]()
        for (verdict, truth, _), programs in self.counts.items():
            if truth.startswith("equal") == right:
                count[verdict] += programs
        return ", ".join(f"{verdict} {programs / count.total():.1%}" for verdict, programs in sorted(count.items()))


def _reason(headline: str) -> str:
    return re.sub(r"'[^']*'|\d+", "…", headline)[:110]


class Machine:
    """The product and the ranks' fork servers; programs are written to a folder of its own."""

    def __init__(self, seed: int = 0) -> None:
        # not a TemporaryDirectory, which every process forked from this one would remove when it ends
        self._folder = Path(tempfile.mkdtemp(prefix="graphguard-world-"))
        self._numbers = itertools.count()
        self._product = Product()
        self._ranks = Ranks(_RANKS, seed)
        self._ranks.start()

    def __enter__(self) -> Machine:
        """It is started."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its processes."""
        self._product.close()
        self._ranks.close()
        shutil.rmtree(self._folder)

    def judge(self, one: Program, care: Care | None = None) -> Judged:
        """Run a program both ways, at the same time."""
        path = self._folder / f"{one.name}_{next(self._numbers)}.py"
        path.write_text(one.text)
        return self.judge_file(path, one, care)

    def judge_file(self, path: Path, one: Program, care: Care | None = None) -> Judged:
        """The same of a file."""
        self._product.begin(path)
        truth = self._ranks.truth(path, care or Care())
        return judged(one, self._product.end(), truth)


def judge_slice(numbers: range, save: Path | None = None) -> Tally:
    """The tally of some programs; those that disagree are looked at again in other processes, and made short."""
    tally, began = Tally(), time.monotonic()
    with ExitStack() as stack:
        machine, careful = stack.enter_context(Machine()), None
        for number in numbers:
            row = machine.judge(program(number))
            if row.outcome in UNSOUND:
                careful = careful or stack.enter_context(Machine(seed=1))
                row = settled(row, careful.judge(row.program, _CAREFUL))
            tally.add(row)
            if row.outcome in UNSOUND:
                tally.found.append(shrunk(row, machine.judge) if len(tally.found) < _SHRUNK else row)
                if save is not None:
                    _save(tally.found[-1], save)
    tally.seconds = time.monotonic() - began
    return tally


def run(programs: int, seed: int, jobs: int, save: Path | None = None) -> Tally:
    """Judge programs ``seed``, ``seed + 1``, ...; each that disagrees is written to a folder where one is given."""
    numbers = range(seed, seed + programs)
    size = max(1, min(_SLICE, -(-programs // jobs)))
    slices = [numbers[start : start + size] for start in range(0, programs, size)]
    total = Tally()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, initializer=die_with, initargs=(os.getpid(),)) as pool:
        for done in as_completed([pool.submit(judge_slice, each, save) for each in slices]):
            tally = done.result()
            total.merge(tally)
            print(f"{total.programs} of {programs}, {total.unsound()} unsound", file=sys.stderr, flush=True)
    return total


def judge_files(paths: list[Path]) -> list[Judged]:
    """Programs that were kept, as they are now."""
    with Machine() as machine:
        return [machine.judge_file(path, Program(str(path), (), (), (), (), ""), _CAREFUL) for path in paths]


def described(row: Judged) -> str:
    """A disagreement as a text: both results, and the program."""
    return f"{headed(row)}\n{row.program.text}"


def headed(row: Judged) -> str:
    """Both results."""
    truth = row.truth.kind + (" where what is asynchronous is late" if row.truth.lazily else "")
    said = f"{row.said.verdict} {row.said.rule} {row.said.headline}".strip()
    return "\n".join(
        (
            f"# {row.outcome}: {row.program.name} ({', '.join(row.program.kinds)})",
            f"# product: {said}" + (f" | at: {row.said.line}" if row.said.line else ""),
            f"# gloo:    {truth} {row.truth.text}".rstrip(),
        )
    )


def signature(row: Judged) -> str:
    """Disagreements with one signature are most likely one defect."""
    lines = re.sub(r"\d+", "", "\n".join(row.program.impl[:-1]))
    calls = sorted(set(re.findall(r"\w+(?=\()", lines)))
    return re.sub(r"\W+", "-", f"{row.outcome} {row.truth.kind} {row.said.rule} {' '.join(calls)}").strip("-")[:140]


def _save(row: Judged, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{signature(row)}.py"
    if not path.exists():
        path.write_text(described(row))
