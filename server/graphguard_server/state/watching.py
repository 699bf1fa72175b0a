"""Changes of files outside the editor: branch switches, generated files, configuration."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

    from graphguard_server.state.session import Session

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.1
_IGNORED: Final = frozenset(
    {".git", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
_CONFIGURATION: Final = "pyproject.toml"


class Watcher:
    """Watches workspace folders and tells the session what changed, after a moment in which more may come."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._observer: BaseObserver | None = None
        self._watched: dict[str, object] = {}
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, folder: str) -> None:
        """Watch a folder and everything below it; where the system refuses, saves in the editor still count."""
        if folder in self._watched or not os.path.isdir(folder):
            return
        loop = asyncio.get_running_loop()
        if self._observer is None:
            self._observer = Observer()
            self._observer.daemon = True
            self._observer.start()
        try:
            self._watched[folder] = self._observer.schedule(_Handler(self, loop), folder, recursive=True)
        except OSError as error:
            log.warning("%s is not watched: %s", folder, error)

    def stop(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()
        if self._timer is not None:
            self._timer.cancel()

    def note(self, path: str) -> None:
        """A file changed; called on the event loop, by the watching thread's events and by the client's."""
        self._changed.add(os.path.normpath(path))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._settle)

    def _settle(self) -> None:
        paths, self._changed = self._changed, set()
        self._timer = None
        if any(os.path.basename(path) == _CONFIGURATION for path in paths):
            self._session.reconfigure()
        for path in paths:
            if path.endswith(".py") and self._session.documents.at(path) is None:
                self._session.changed_on_disk(path)


class _Handler(FileSystemEventHandler):
    """Runs in watchdog's thread: filters, and passes paths on to the event loop."""

    def __init__(self, watcher: Watcher, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = watcher
        self._loop = loop

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Pass on what may matter."""
        if event.is_directory or event.event_type in ("opened", "closed_no_write"):
            return
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            if _matters(path) and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._watcher.note, path)


def _matters(path: str) -> bool:
    named = path.endswith(".py") or os.path.basename(path) == _CONFIGURATION
    return named and _IGNORED.isdisjoint(path.split(os.sep))
