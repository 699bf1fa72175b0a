"""The order of what has none: of a set whose elements are hashed otherwise in every process, and of a folder, which every machine lists in its own way.

A program's sets cannot be hashed anew in a process that was forked.  So the user's files are compiled (:mod:`~graphguard.trace.source.rewriting`) to ask here wherever a set would
show its order; files that were compiled before are compiled again (:mod:`~graphguard.trace.source.recompiled`).
"""

from __future__ import annotations

import builtins
import functools
import os
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from operator import is_
from pathlib import PurePath
from typing import Any, Final

from graphguard.trace.depends.unshared import Process, asks, is_of_interest
from graphguard.trace.source.rewriting import IN_ORDER, TAKEN

# Hashed alike in every process: by what they are, not by where they are.
_SAME: Final = (int, float, complex, bool, type(None))
_WORDS: Final[dict[type, str]] = {str: "texts", bytes: "bytes"}
_SORTED: Final = "go through it in an order of its own: sorted(...)"


def install() -> None:
    """Have rewritten files find who answers, and folders be listed in another order by every process."""
    setattr(builtins, IN_ORDER, in_order)
    setattr(builtins, TAKEN, taken)
    os.listdir = functools.wraps(os.listdir)(_listing(os.listdir))
    os.scandir = functools.wraps(os.scandir)(_scanning(os.scandir))


def in_order(iterable: Any) -> Any:
    """What is to be gone through; the elements of a set in the order that it has in this process."""
    if type(iterable) is not set and type(iterable) is not frozenset:
        return iterable
    if len(iterable) < 2 or not is_of_interest() or all(map(_is_alike, iterable)):
        return iterable
    process = asks(f"the order of a set of {_kind(iterable)} differs between processes", _SORTED)
    return iterable if process is None else _ordered(iterable, process)


def taken(owner: Any) -> Any:
    """``owner.pop()``."""
    if type(owner) is not set or len(owner) < 2:
        return owner.pop()
    first = next(iter(in_order(owner)))
    owner.remove(first)
    return first


def hashed(value: Any) -> int:
    """``hash(value)``."""
    found = hash(value)
    if not is_of_interest() or _is_alike(value):
        return found
    process = asks(
        f"'hash' of {_kind([value])} differs between processes", "use a digest of it: zlib.crc32, hashlib.sha256"
    )
    if process is None:
        return found
    return int.from_bytes(_digest((value, found) if _kind([value]) == "objects" else value, process.salt)[:7], "big")


def placed(value: Any) -> int:
    """``id(value)``: where it lies in memory, which is elsewhere in another process (:func:`~graphguard.trace.depends.unshared.memory_in_use`)."""
    process = asks(
        "the 'id' of an object differs between processes", "number objects in the order in which they are made"
    )
    place = id(value)
    return place if process is None or not process.alike else process.places.setdefault(place, len(process.places))


def _is_alike(element: Any) -> bool:
    kind = type(element)
    if kind is tuple or kind is frozenset:
        return all(map(_is_alike, element))
    return kind in _SAME or (kind.__module__ == "numpy" and not isinstance(element, (str, bytes)))


def _kind(elements: Any) -> str:
    kinds = {type(element) for element in elements}
    return next((word for kind, word in _WORDS.items() if kinds == {kind}), "objects")


def _ordered(elements: Any, process: Process, key: Callable[[Any], bytes] | None = None) -> list[Any]:
    """Elements in one of three orders, of which none is that in which they would be sorted; two neighbours have not the same, nor has the specification that of any rank.

    No element is at one place in two of them, but for the specification where there are two elements, and so two orders.
    """
    found = sorted(elements, key=key or _digest)
    if process.side == 0:
        return found
    middle = len(found) // 2
    turned = found[::-1]
    if len(found) % 2 and middle:  # turned round, it would stay where it is
        turned[0], turned[middle] = turned[middle], turned[0]
    if process.number >= 0:
        return turned
    rotated = (found[by:] + found[:by] for by in range(1, len(found)))
    return next((third for third in rotated if not any(map(is_, third, turned))), turned)


def _digest(element: Any, salt: int = 0) -> bytes:
    return blake2b(_text(element).encode(errors="surrogateescape"), digest_size=8, key=b"%d" % salt).digest()


def _text(element: Any) -> str:
    """What tells elements apart, in every process alike; objects of a class stay as they are."""
    if isinstance(element, tuple):
        return f"({','.join(map(_text, element))})"
    if isinstance(element, frozenset):
        return f"{{{','.join(sorted(map(_text, element)))}}}"
    if isinstance(element, (str, bytes, PurePath, *_SAME)):
        return repr(element)
    kind = type(element)
    named = element if isinstance(element, type) or callable(element) else kind
    name = f"{named.__module__}.{getattr(named, '__qualname__', kind.__qualname__)}"
    return f"{name}.{element.name}" if isinstance(element, Enum) else name


def _listing(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def listdir(path: Any = None) -> list[Any]:
        names = original(path)
        process = _lists(names)
        return names if process is None else _ordered(names, process)

    return listdir


def _scanning(original: Callable[..., Any]) -> Callable[..., Any]:
    def scandir(path: Any = None) -> Any:
        if not is_of_interest():
            return original(path)
        with original(path) as found:
            entries = list(found)
        process = _lists(entries)
        return _Entries(entries if process is None else _ordered(entries, process, lambda entry: _digest(entry.name)))

    return scandir


def _lists(entries: list[Any]) -> Process | None:
    if len(entries) < 2:
        return None
    return asks("the order in which a folder is listed differs between machines", "sort it: sorted(...)")


class _Entries:
    """What ``os.scandir`` returns."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give nothing more."""
        self._entries = iter(())
