"""What a program can ask of the files of a machine: each question is a function of a path, so that an answer can be compared with today's.

For example, ``os.path.exists("flag")`` is the question ``exists`` of ``/project/flag``, with the answer ``no`` until somebody makes the file.  A recording that
asked it holds for as long as that is the answer.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

# Larger files are data; what reads one cannot be compared later.
_LARGEST_FILE: Final = 16 * 2**20
_IMPORTED: Final = ("", *importlib.machinery.all_suffixes())


def answered(question: str, path: str) -> str | None:
    """Today's answer to a question of :data:`QUESTIONS`; None where it cannot be compared with another day's."""
    try:
        return QUESTIONS[question](path)
    except OSError as error:
        return f"error {error.errno}"


def _status_of(path: str, usual: Callable[[str], os.stat_result] = os.stat) -> os.stat_result | None:
    """A file's status, by ``os.stat`` as it was before anybody listened to it; None where there is no file."""
    try:
        return usual(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _exists(path: str) -> str:
    return "no" if _status_of(path) is None else "yes"


def _kind(path: str) -> str:
    """``d`` for a folder, ``-`` for a plain file, other letters as ``ls`` prints them; empty where there is nothing."""
    status = _status_of(path)
    return "" if status is None else stat.filemode(status.st_mode)[0]


def _link(path: str, usual: Callable[[str], str] = os.readlink) -> str:
    """What a symbolic link names; an ``OSError`` where there is none."""
    return usual(path)


def _size(path: str) -> str:
    status = _status_of(path)
    return "" if status is None else str(status.st_size)


def _time(path: str) -> str:
    status = _status_of(path)
    return "" if status is None else str(status.st_mtime_ns)


def _status(path: str) -> str:
    found = _status_of(path)
    return "" if found is None else f"{found.st_mode} {found.st_size} {found.st_mtime_ns}"


def _permission(path: str, usual: Callable[[str, int], bool] = os.access) -> str:
    return "".join(letter for letter, mode in (("r", os.R_OK), ("w", os.W_OK), ("x", os.X_OK)) if usual(path, mode))


def _content(path: str) -> str | None:
    status = _status_of(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return _kind(path)
    if status.st_size > _LARGEST_FILE:
        return None
    with open(path, "rb") as stream:
        return _digest(stream.read())


def _listing(path: str) -> str:
    """The names in a folder, and which of them are folders."""
    with os.scandir(path) as entries:
        names = sorted(f"{entry.name}{'/' * entry.is_dir()}" for entry in entries)
    return _digest("\0".join(names).encode(errors="surrogateescape"))


def _entries(path: str) -> str:
    """The names in a folder with what ``os.DirEntry`` tells of each."""
    rows = [f"{name} {_status(os.path.join(path, name))}" for name in sorted(os.listdir(path))]
    return _digest("\0".join(rows).encode(errors="surrogateescape"))


def _module(path: str) -> str:
    """What an import of a name finds in a folder: ``folder/name`` with any of the endings that Python imports."""
    return " ".join(ending or "/" for ending in _IMPORTED if _status_of(path + ending) is not None)


QUESTIONS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "exists": _exists,
    "kind": _kind,
    "link": _link,
    "size": _size,
    "time": _time,
    "status": _status,
    "permission": _permission,
    "content": _content,
    "listing": _listing,
    "entries": _entries,
    "module": _module,
}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


@lru_cache
def of_function(name: str) -> str:
    """The question that a function of ``os.path`` or ``pathlib`` asks by looking at a file's status; all of it where it is not known better."""
    return _ASKED_BY.get(name, "status")


_ASKED_BY: Final = {
    "exists": "exists",
    "lexists": "exists",
    "isfile": "kind",
    "is_file": "kind",
    "isdir": "kind",
    "is_dir": "kind",
    "is_mount": "kind",
    "ismount": "kind",
    "islink": "link",
    "is_symlink": "link",
    "realpath": "link",
    "resolve": "link",
    "getsize": "size",
    "getmtime": "time",
    "glob": "kind",
    "rglob": "kind",
    "mkdir": "kind",
}
