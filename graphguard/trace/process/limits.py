"""What a child that runs user code may do before it is stopped, and how it dies with its parent (Linux; a no-op elsewhere)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
# Copies that a child of ours may make of itself: enough for a DataLoader, too few for a fork bomb.
MAX_FORKS = 64
# A process of a check gets this much even where many share the check's memory.
_LEAST_MEMORY = 512 * 2**20
# Processes and threads that all of a user's programs together may have before a child's fork fails.
MAX_PROCESSES = 16384


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one check: ``seconds`` of wall-clock, ``memory`` in bytes beyond what torch itself takes, ``output`` in bytes printed."""

    seconds: float = 60.0
    memory: int | None = None
    output: int = 64 * 2**20

    def share(self, processes: int, seconds: float) -> Limits:
        """The bounds of one of a check's processes, of which so many run at once."""
        memory = None if self.memory is None else max(self.memory // processes, _LEAST_MEMORY)
        return Limits(seconds, memory, self.output)


def default_memory() -> int:
    """Half of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that what user code leaves behind can be found and ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans(known: Container[int]) -> None:
    """End the processes that this one adopted: its children apart from the ``known`` ones."""
    for pid in _children():
        if pid not in known:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> Iterator[int]:
    """Process ids of this process's children (Linux; none elsewhere)."""
    mine = str(os.getpid()).encode()
    for name in os.listdir("/proc") if sys.platform.startswith("linux") else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                # the name of the program is in parentheses and may hold anything; state and parent follow it
                if stat.read().rpartition(b")")[2].split()[1] == mine:
                    yield int(name)


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def confine(limits: Limits, forks: int = MAX_FORKS) -> None:
    """Apply the bounds that the kernel and Python keep for the calling process and all that it starts, of which there may be so many ``forks``."""
    bound_memory(limits)
    _cap(resource.RLIMIT_CORE, 0)
    if hasattr(resource, "RLIMIT_NPROC"):
        _cap(resource.RLIMIT_NPROC, MAX_PROCESSES)
    _limit_forks(forks)


def bound_memory(limits: Limits) -> None:
    """Let the calling process have so much memory beyond what it has now."""
    if limits.memory is not None and sys.platform.startswith("linux"):
        _cap(resource.RLIMIT_DATA, data_size() + limits.memory)


@contextlib.contextmanager
def first_to_go() -> Iterator[None]:
    """Where the kernel runs out of memory meanwhile, it is to end this process before any other (Linux; nothing elsewhere)."""
    place = "/proc/self/oom_score_adj"
    try:
        with open(place) as file:
            before = file.read()
        Path(place).write_text("1000")
    except OSError:
        yield
        return
    yield
    with contextlib.suppress(OSError):
        Path(place).write_text(before)


def _cap(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, hard))


def data_size() -> int:
    """Private writable memory of this process, mapped or not, in bytes: what RLIMIT_DATA counts."""
    with open("/proc/self/status") as status:
        sizes = dict(line.split(":", 1) for line in status)
    return int(sizes["VmData"].split()[0]) * 1024


class _Forks:
    """How many processes the code of a check may still start; None where nothing bounds it."""

    left: int | None = None


_fork = os.fork


def fork_child() -> int:
    """Fork a process of ours, which does not count; under a check it may start none itself."""
    pid = _fork()
    if pid == 0 and _Forks.left is not None:
        _Forks.left = 0
    return pid


def _limit_forks(count: int) -> None:
    if _Forks.left is not None:
        return  # what bounds a check bounds its ranks
    _Forks.left = count

    def limited_fork() -> int:
        assert _Forks.left is not None
        if _Forks.left <= 0:
            raise BlockingIOError(f"a check may start at most {MAX_FORKS} processes, and these may start none")
        _Forks.left -= 1
        return fork_child()

    patched: Any = limited_fork
    os.fork = patched
