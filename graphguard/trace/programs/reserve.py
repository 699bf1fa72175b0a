"""When the worker keeps spare processes (:mod:`graphguard.trace.programs.spares`), and for how long.

Only a check that comes again and again is worth them: they are made in a quiet moment after one that this worker has recorded before, and go when nobody has asked for a while.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from graphguard.trace.process.children import Child, Ending, Family, Link, wait_for_work

if TYPE_CHECKING:
    from graphguard.trace.programs.spares import Spares

Run = Callable[[dict[str, Any], Link, "Spares"], Any]

# Nothing else has come for so long: whoever works with what a check gave is not to wait for spare processes.
QUIET = 0.4
KEPT = 60.0
# Programs of a check that are recorded in spare processes: as many as run at once, and no more than these.
MOST = 4
# Where less memory is free, nothing is kept in it.
LEAST_MEMORY = 2**30
# A file whose import was not to be repeated is imported once in so many of its next checks.
PAUSE = 20
# An import that takes so many seconds is quicker done once.
LONGEST = 0.1
_REMEMBERED = 256


class Reserve:
    """The one child of the worker that waits for the next check, with spare processes of its own."""

    def __init__(self, family: Family, run: Run) -> None:
        self._family = family
        self._run = run
        self._child: Child | None = None
        self._known: dict[tuple[str, str], None] = {}
        self._paused: dict[str, int] = {}
        self._slow: set[str] = set()
        self._count = 1
        self._sources: tuple[str, ...] = ()
        self._due = math.inf

    def note(self, file: str, name: str, mesh: dict[str, int], sources: Iterable[str] = ()) -> None:
        """This check on this mesh has been recorded; ``sources`` are the files that it imported."""
        self._sources = tuple(sources)
        again = (file, name) in self._known
        self._known.pop((file, name), None)
        self._known[file, name] = None
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        if mesh:
            self._count = min(1 + math.prod(mesh.values()), MOST, (os.cpu_count() or 2) + 1)
        if again and not self._refuses(file) and self._child is None and sys.platform.startswith("linux"):
            self._due = time.monotonic() + QUIET

    def note_import(self, file: str, seconds: float) -> None:
        """Importing this file and what it imports took so much CPU time."""
        if seconds > LONGEST:
            self._slow.add(file)
        else:
            self._slow.discard(file)

    def refuse(self, file: str) -> None:
        """Spare processes cannot record this file's checks for now."""
        self._paused[file] = PAUSE

    @property
    def ready(self) -> bool:
        """Whether spare processes wait for a check."""
        return self._child is not None and self._child.ready

    def put_off(self) -> None:
        """Something came: it is not quiet."""
        if self._child is None and self._due < math.inf:
            self._due = time.monotonic() + QUIET

    def patience(self) -> float | None:
        """Seconds until :meth:`tend` has something to do."""
        return None if self._due == math.inf else max(0.0, self._due - time.monotonic())

    def tend(self) -> None:
        """Make spare processes, or end them, where it is time."""
        if time.monotonic() < self._due:
            return
        self._due = math.inf
        if self._child is not None:
            self._family.stop(self._child, "cancelled")
        elif free_memory() >= LEAST_MEMORY:
            self._child = self._family.start_idle(self._live, on_end=self._ended, leader=True)
            self._due = time.monotonic() + KEPT

    def take(self, file: str) -> Child | None:
        """The child that waits, for a check of this file; one that is not ready yet would not be quicker than a new one."""
        refuses, child = self._refuses(file), self._child
        if file in self._paused:
            self._paused[file] -= 1
            if not self._paused[file]:
                del self._paused[file]
        if refuses or child is None or not child.ready:
            return None
        self._child, self._due = None, math.inf
        return child

    def _refuses(self, file: str) -> bool:
        return file in self._paused or file in self._slow

    def _ended(self, _: Ending) -> None:
        self._child, self._due = None, math.inf

    def _live(self, link: Link) -> Any:
        from graphguard.trace.programs.spares import Spares

        spares = Spares(self._count, self._sources)
        return self._run(wait_for_work(link), link, spares)


def free_memory() -> int:
    """Bytes that could be used without anything being written out, as far as the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return LEAST_MEMORY
