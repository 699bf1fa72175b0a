"""``--timings``: where the time of the whole command went, phase by phase; the phases add up to what was waited for."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphguard.report.diagnostics import Report

PHASES: Final = {
    "start": "starting Python and GraphGuard",
    "find": "configuration, and looking for checks",
    "worker": "starting the tracing worker, which imports torch, and waiting for it",
    "import": "importing the files of the checks",
    "trace": "recording the specification and the ranks",
    "relate": "relating results and states to parameters",
    "join": "joining the recordings of all ranks",
    "infer": "proving",
    "confirm": "numbers, as far as they took longer than the proof beside them",
    "relations": "the relations of all tensors",
    "diagnose": "explaining what is broken",
    "fixes": "recording and proving fixes",
    "other": "putting answers together",
    "cache": "comparing what is cached with today's files, and the rest",
    "at the same time": "of the above, what went on beside it",
    "show": "writing findings and totals",
}
_LOADED = time.perf_counter()


def since_start() -> float:
    """Seconds since this process began; since this module was loaded where the system does not tell."""
    if sys.platform != "linux":
        return time.perf_counter() - _LOADED
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


@dataclass(slots=True)
class Timings:
    """The phases of one run of the command, in seconds; ``begun`` seconds after the process."""

    begun: float = 0.0
    _spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _since: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._spent["start"] = self.begun

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What is done inside is of this phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._spent[name] += time.perf_counter() - began

    def phases(self, reports: Sequence[Report]) -> dict[str, float]:
        """Seconds by phase until now, in the order of :data:`PHASES`: they add up to ``total``, which is the last.

        Those of checks that ran beside each other are counted in full, and taken off again under ``at the same time``.
        """
        total = self.begun + time.perf_counter() - self._since
        spent = self._spent.copy()
        for report in reports:
            for phase, seconds in report.seconds.items():
                spent[phase] += seconds
        rest = total - sum(spent.values())
        spent["cache" if rest >= 0 else "at the same time"] += rest
        return {**{phase: spent[phase] for phase in PHASES if phase in spent}, "total": total}


def table(phases: dict[str, float]) -> str:
    """The phases as people read them; what took no millisecond is left out."""
    rows = [f"{phase:<16} {seconds:8.3f} s  {PHASES.get(phase, '')}" for phase, seconds in phases.items()]
    shown = [row.rstrip() for row, seconds in zip(rows, phases.values(), strict=True) if abs(seconds) >= 0.0005]
    return "\n".join(("", "where the time went", *shown)) + "\n"
