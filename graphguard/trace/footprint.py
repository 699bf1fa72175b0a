"""What a check depended on while it was recorded: the sources it imported, the files it read, the environment variables it asked for."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphguard.ir import Capture
from graphguard.trace.audits import hear_openings
from graphguard.trace.sources import ProjectFiles, is_installed, is_ours, is_own_code, is_torch, meaning_digest

# Set by the recording itself, differently in every rank.
RANK_VARIABLES = frozenset(
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
)
_CODE = (".py", ".pyc", ".so", ".pyi")
_SYSTEM = ("/proc/", "/dev/", "/sys/", "/etc/", "/usr/", "/lib/", "/lib64/", "/tmp/tmp")  # noqa: S108 - prefixes of paths that are read
# Larger files are data; a check that opens one is traced anew every time.
_LARGEST_FILE = 16 * 2**20


@dataclass(slots=True)
class Footprint:
    """``sources`` by path as they were read; ``environment`` as digests of values (None: not set); ``opened`` files as digests of contents.

    ``complete`` is False where something was read that cannot be compared later.
    """

    sources: dict[str, bytes] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    opened: dict[str, str] = field(default_factory=dict)
    complete: bool = True

    def merge(self, other: Footprint) -> None:
        """Add what another process of the same check depended on."""
        self.sources.update(other.sources)
        self.environment.update(other.environment)
        self.opened.update(other.opened)
        self.complete = self.complete and other.complete

    def digests(self) -> dict[str, str]:
        """The meaning of every source, by path."""
        return {path: meaning_digest(text) for path, text in sorted(self.sources.items())}


def with_sources_of_frames(capture: Capture) -> Capture:
    """A capture whose sources are those of the frames as well: what was imported before the recording began was read by nobody who took notes."""
    graphs = (capture.spec, *capture.ranks)
    files = {frame.span.file for graph in graphs if graph is not None for frame in graph.frames}
    own = sorted(file for file in files - set(capture.sources) if is_own_code(file) and os.path.isfile(file))
    return replace(
        capture, sources={**capture.sources, **{file: meaning_digest(Path(file).read_bytes()) for file in own}}
    )


def value_digest(value: str | None) -> str | None:
    """A digest of an environment variable's value: the value itself may be a secret."""
    return None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:32]


def file_digest(path: str) -> str | None:
    """A digest of a file's contents; None where it is too large, not a plain file, or cannot be read."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_FILE:
            return None
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    except OSError:
        return None


class Watch:
    """Notes what the rest of this process's life reads; it cannot be taken back, so only children that run user code have one.

    ``rank_dependent`` turns True when an import asks which rank it is in.
    """

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._variables: set[str] = set()
        self._before = dict(os.environ)  # what a program sets itself is no part of what it depends on
        self._paths: set[str] = set()
        self.rank_dependent = False

    def install(self) -> None:
        """Begin."""
        self._watch_environment()
        hear_openings(self._note_opened)

    def found(self) -> Footprint:
        """What was read so far."""
        footprint = Footprint(dict(self._files.read))
        for name in sorted(self._variables - RANK_VARIABLES):
            footprint.environment[name] = value_digest(self._before.get(name))
        for path in sorted(self._paths):
            digest = file_digest(path)
            if digest is not None:
                footprint.opened[path] = digest
            elif os.path.isfile(path):
                footprint.complete = False
        return footprint

    def _watch_environment(self) -> None:
        environment: Any = type(os.environ)
        usual = environment.__getitem__

        def read(this: Any, name: str) -> Any:
            self._note(name)
            return usual(this, name)

        def contains(this: Any, name: object) -> bool:
            self._note(name)
            return this.encodekey(name) in this._data  # noqa: SLF001 - what Mapping does by way of __getitem__, without counting twice

        environment.__getitem__ = read
        environment.__contains__ = contains

    def _note(self, name: object) -> None:
        if not isinstance(name, str):
            return
        if name in RANK_VARIABLES:
            self.rank_dependent = self.rank_dependent or not _asked_by_torch()
        else:
            self._variables.add(name)

    def _note_opened(self, arguments: tuple[Any, ...]) -> None:
        if not isinstance(arguments[0], str | bytes):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        mode, flags = arguments[1], arguments[2]
        writes = (mode is not None and any(letter in mode for letter in "wax+")) or flags & (os.O_WRONLY | os.O_RDWR)
        if writes or path.endswith(_CODE) or path.startswith(_SYSTEM) or is_installed(path):
            return
        self._paths.add(path)


def _asked_by_torch() -> bool:
    """Whether the code that reads the environment is torch's, the standard library's or ours."""
    frame = sys._getframe(2)  # noqa: SLF001 - who asks is what counts
    while frame is not None:
        path = frame.f_code.co_filename
        if not (path.startswith("<frozen") or path == __file__ or path == os.__file__ or "_collections_abc" in path):
            return is_torch(path) or is_ours(path)
        if frame.f_back is None:
            return True
        frame = frame.f_back
    return True


def unchanged(footprint: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether variables and opened files are as a stored footprint has them."""
    return all(
        value_digest(environment.get(name)) == digest for name, digest in footprint["environment"].items()
    ) and all(file_digest(path) == digest for path, digest in footprint["opened"].items())
