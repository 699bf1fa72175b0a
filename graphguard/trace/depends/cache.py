"""Captures on disk, found by what they depend on: shared by command line and editor, safe for two at once, never trusted.

A request names a folder; in it lies one file for every state of the sources in which the check was recorded, so that undoing an edit is a hit.
Entries are JSON and are decoded with every field checked: a damaged or hostile one is a miss and is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import graphguard
from graphguard.ir import Capture, capture_from_json, capture_to_json
from graphguard.ir.codec import dumps, loads
from graphguard.ir.plain import CodecError
from graphguard.trace.depends.footprint import Footprint, text_digest, unchanged
from graphguard.trace.source.remap import Moves, Unmapped, remapped
from graphguard.trace.source.sources import ProjectFiles, counted_as_own, meaning_digest

SCHEMA = 2
SIZE_LIMIT = 512 * 2**20
ENTRIES_PER_REQUEST = 16


def cache_folder() -> Path:
    """Where captures are kept: ``GRAPHGUARD_CACHE_DIR``, or the user's cache folder."""
    chosen = os.environ.get("GRAPHGUARD_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "graphguard"


def clear_cache(folder: Path | None = None) -> int:
    """Remove every capture, and every report; returns how many captures there were."""
    home, removed = folder or cache_folder(), 0
    for entry in list(_entries(home)):
        with contextlib.suppress(FileNotFoundError):
            entry.unlink()
            removed += 1
    for entry in list(home.glob("reports/*/*")):
        entry.unlink(missing_ok=True)
    return removed


def request_key(
    file: str, name: str, mesh: Mapping[str, int] | None, root: str, machines: int = 1, ranks: int | None = None
) -> str:
    """A digest of a request and of everything that holds for a whole environment: interpreter, installed packages, GraphGuard itself."""
    asked = [
        SCHEMA,
        file,
        name,
        None if mesh is None else list(mesh.items()),
        root,
        machines,
        ranks,
        counted_as_own(),
        *_environment(),
    ]
    return hashlib.sha256(dumps(asked)).hexdigest()[:32]


@cache
def _environment() -> tuple[str, ...]:
    packages = hashlib.sha256()
    for folder in sorted(set(sys.path)):
        with contextlib.suppress(OSError):
            names = sorted(
                name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info", ".pth"))
            )
            if names:  # what else a folder of the path holds is asked by imports
                packages.update(repr((folder, names)).encode())
    return sys.version, sys.platform, packages.hexdigest(), _own_digest()


def _own_digest() -> str:
    """A digest of GraphGuard's own sources: another version may record differently."""
    digest = hashlib.sha256()
    for source in sorted(Path(graphguard.__file__).parent.rglob("*.py")):
        status = source.stat()
        digest.update(f"{source}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


Kept = dict[str, Any]
"""What a capture depended on, as :attr:`Footprint.kept` has it."""


def load(key: str, files: ProjectFiles, folder: Path | None = None) -> tuple[Capture, Kept] | None:
    """The capture of a request whose sources mean what they meant and whose other dependencies are as they were, its places in today's texts; and these dependencies."""
    home = (folder or cache_folder()) / "captures" / key
    for entry in _newest_first(home):
        try:
            found = _read(entry, files)
        except (CodecError, OSError, KeyError, TypeError, ValueError, AttributeError):
            with contextlib.suppress(OSError):
                entry.unlink()
            continue
        if found is not None:
            with contextlib.suppress(OSError):
                os.utime(entry)
            return found
    return None


def _read(entry: Path, files: ProjectFiles) -> tuple[Capture, Kept] | None:
    with entry.open("rb") as stream:
        footprint = loads(stream.readline())
        texts = _texts(footprint["sources"], files)
        if texts is None or not unchanged(footprint, os.environ):
            return None
        capture = capture_from_json(stream.read())
    try:
        moves = {path: Moves(old, new) for path, (old, new) in texts.items() if old != new}
        moved = remapped(capture, moves)
    except Unmapped:
        return None
    digests = {path: meaning_digest(text.encode()) for path, text in footprint["sources"].items()}
    kept = {**footprint, "sources": {path: text_digest(new) for path, (_, new) in texts.items()}}
    return replace(moved, sources=digests, seconds={}), kept


def _texts(sources: Mapping[str, str], files: ProjectFiles) -> dict[str, tuple[bytes, bytes]] | None:
    """The text of every file as it was and as it is; None where one means something else."""
    texts = {}
    for path, text in sources.items():
        old = text.encode()
        try:
            new = files.text(path)
        except OSError:
            return None
        if new != old and meaning_digest(new) != meaning_digest(old):
            return None
        texts[path] = (old, new)
    return texts


def store(key: str, capture: Capture, footprint: Footprint, folder: Path | None = None) -> None:
    """Keep a capture; one with troubles, or that read what cannot be compared, is not kept.  A full disk is no error."""
    if capture.troubles or footprint.lost:
        return
    try:
        texts = {path: text.decode() for path, text in footprint.sources.items()}
    except UnicodeDecodeError:
        return
    header = {"sources": texts, "environment": footprint.environment, "answers": footprint.answers}
    home = (folder or cache_folder()) / "captures" / key
    name = hashlib.sha256(dumps(header)).hexdigest()[:32]
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(home / f"{name}.json", dumps(header) + b"\n" + capture_to_json(capture))
        for old in list(_newest_first(home))[ENTRIES_PER_REQUEST:]:
            old.unlink(missing_ok=True)
        _trim(home.parents[1])


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever reads half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _trim(folder: Path) -> None:
    """Remove the entries that were used longest ago until the rest is well below the limit."""
    entries = [(entry, entry.stat()) for entry in _entries(folder)]
    size = sum(status.st_size for _, status in entries)
    if size <= SIZE_LIMIT:
        return
    for entry, status in sorted(entries, key=lambda row: row[1].st_mtime_ns):
        entry.unlink(missing_ok=True)
        size -= status.st_size
        if size <= SIZE_LIMIT * 0.8:
            return


def _entries(folder: Path) -> Iterator[Path]:
    return (folder / "captures").glob("*/*")


def _newest_first(home: Path) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for entry in home.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another process may have removed it
                found.append((entry.stat().st_mtime_ns, entry))
    return [entry for _, entry in sorted(found, reverse=True)]
