"""Proved stages, programs and reports on disk: what one run of GraphGuard proved, the next one, or the editor, does not prove again.

An entry says "this was proved", and nothing in it can be checked without proving it again.  So it is only believed where this user's GraphGuard wrote it: every
entry is signed with a key that lies in the user's state folder, not in the cache, and the name under which it lies is signed with it.  A cache that comes with a repository, or
with an image, holds nothing that is believed; neither does a damaged one.  Entries are for exactly the sources of the engine that proved them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import graphguard
from graphguard.ir.plain import CodecError, from_plain, to_plain
from graphguard.trace.depends.cache import cache_folder, write_whole

T = TypeVar("T")

SIZE_LIMIT: Final = 64 * 2**20
_TRIMMED_EVERY: Final = 256  # entries written
_KEY_BYTES: Final = 32
_ENGINE: Final = ("ops", "ir", "relations", "rules", "refine")


def user_shelf(name: str = "stages") -> DiskShelf | None:
    """A shelf in the user's cache folder: ``stages`` that were proved, or ``reports``; None where no key can be kept."""
    key = _user_key()
    return None if key is None else DiskShelf(cache_folder() / name, key)


class DiskShelf:
    """One file an entry, in a folder by its first letters; safe for several processes at once."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self.folder = folder
        self._key = key
        self._written = 0

    def get(self, digest: str, kind: type[T]) -> T | None:
        """What was proved under a digest; an entry that this user's key did not sign is none."""
        entry = self._entry(digest, kind)
        try:
            signature, _, body = entry.read_bytes().partition(b"\n")
        except OSError:
            return None
        if not hmac.compare_digest(signature, self._signature(entry.name, body)):
            return None
        try:
            plain = json.loads(body)
            found = from_plain(kind, plain)
        except (CodecError, ValueError, RecursionError):
            return None
        if to_plain(found) != plain:
            return None
        with contextlib.suppress(OSError):
            os.utime(entry)
        return found

    def put(self, digest: str, value: object) -> None:
        """Keep what was proved; a full disk is no error."""
        entry = self._entry(digest, type(value))
        body = json.dumps(
            to_plain(value), separators=(",", ":")
        ).encode()  # of the standard library: factors may be large
        with contextlib.suppress(OSError):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(entry, self._signature(entry.name, body) + b"\n" + body)
            if self._written % _TRIMMED_EVERY == 0:
                self._trim()
            self._written += 1

    def clear(self) -> None:
        """Remove every entry."""
        for entry in list(self._entries()):
            with contextlib.suppress(OSError):
                entry.unlink()

    def _entry(self, digest: str, kind: type[object]) -> Path:
        name = hashlib.sha256(f"{_engine()}{kind.__name__}{digest}".encode()).hexdigest()
        return self.folder / name[:2] / name

    def _signature(self, name: str, body: bytes) -> bytes:
        return hmac.new(self._key, name.encode() + b"\n" + body, "sha256").hexdigest().encode()

    def _entries(self) -> Iterator[Path]:
        return self.folder.glob("*/*")

    def _trim(self) -> None:
        """Remove the entries that were used longest ago until the rest is well below the limit."""
        entries = []
        for entry in self._entries():
            with contextlib.suppress(OSError):
                status = entry.stat()
                entries.append((status.st_mtime_ns, status.st_size, entry))
        size = sum(row[1] for row in entries)
        if size <= SIZE_LIMIT:
            return
        for _, own, entry in sorted(entries):
            entry.unlink(missing_ok=True)
            size -= own
            if size <= SIZE_LIMIT * 0.8:
                return


@cache
def _engine() -> str:
    """A digest of the sources that prove: another version may prove other things."""
    digest = hashlib.sha256(sys.version.encode())
    home = Path(graphguard.__file__).parent
    for folder in _ENGINE:
        for source in sorted((home / folder).rglob("*.py")):
            text = source.read_bytes()
            digest.update(f"{source.relative_to(home)} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _user_key() -> bytes | None:
    """The key of this user, made when it is first needed; None where it can be neither read nor made, or where others may read it."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(base) / "graphguard" / "key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        if os.name == "posix" and path.stat().st_mode & 0o077:
            return None
        key = path.read_bytes()
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _make_key(path: Path) -> None:
    """Write a new key in one step, unless somebody else was faster."""
    own = path.with_name(f".{secrets.token_hex(8)}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(secrets.token_bytes(_KEY_BYTES))
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()
