"""Looking at and hurting the processes of a server under test."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def children(pid: int) -> dict[int, str]:
    """Every living descendant with its command line."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = list(parents.get(pid, ()))
    while waiting:
        child = waiting.pop()
        waiting.extend(parents.get(child, ()))
        try:
            found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def one(pid: int, name: str) -> int | None:
    """The descendant whose command line ends with a name."""
    return next((child for child, command in children(pid).items() if name in command), None)


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def hurt(pid: int | None, how: signal.Signals) -> None:
    """Send a signal; a process that is already gone is fine."""
    if pid is not None:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return
