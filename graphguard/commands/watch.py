"""``graphguard check --watch``: run again whenever a Python file of the project changes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from graphguard.commands.failure import CommandError

SETTLE_SECONDS = 0.2
_IGNORED = {".git", ".venv", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache"}


class _Changes(FileSystemEventHandler):
    """Wakes the loop when a Python file or the configuration changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wake = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Look at one event; reading a file is none of ours."""
        if event.is_directory or event.event_type in ("opened", "closed", "closed_no_write"):
            return
        if any(self._matters(Path(str(name))) for name in (event.src_path, event.dest_path) if name):
            self.wake.set()

    def _matters(self, path: Path) -> bool:
        return path.suffix in (".py", ".toml") and not _IGNORED & set(path.relative_to(self.root).parts)

    def wait(self) -> None:
        """Return after a change, once no more come."""
        self.wake.wait()
        while self.wake.is_set():
            self.wake.clear()
            time.sleep(SETTLE_SECONDS)


def watch(once: Callable[[], int], root: Path) -> int:
    """Run, wait for a change, run again; an interrupt ends it with the last exit code."""
    changes = _Changes(root)
    observer = Observer()
    observer.schedule(changes, str(root), recursive=True)
    observer.start()
    code = 0
    try:
        while True:
            code = _guarded(once)
            sys.stderr.write("watching for changes; Ctrl-C ends\n")
            changes.wait()
    except KeyboardInterrupt:
        return code
    finally:
        observer.stop()
        observer.join()


def _guarded(once: Callable[[], int]) -> int:
    """A file that disappears or does not parse for a moment must not end the watch."""
    try:
        return once()
    except CommandError as error:
        sys.stderr.write(f"graphguard: {error}\n")
        return 2
