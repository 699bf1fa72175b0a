"""Which lines of whose code an operator comes from.

While recording, a stack is only walked and interned as (code object, instruction) pairs; lines and columns are looked up once, at
the end, from the code objects' own position tables.
"""

from __future__ import annotations

import linecache
import os
import sys
from functools import cache
from types import CodeType, FrameType
from typing import TypeAlias

import torch

from graphguard.ir.spans import Frame, Span

RawStack: TypeAlias = tuple[tuple[CodeType, int], ...]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PLUMBING = ("contextlib.py", "functools.py", "typing_extensions.py", "threading.py")
_STANDARD = os.path.dirname(os.__file__) + os.sep


@cache
def is_shown(code: CodeType) -> bool:
    """Whether a frame of this code is told to users: all but PyTorch's, ours, and the standard library's plumbing."""
    file = code.co_filename
    if file.startswith((_TORCH, _OURS)):
        return False
    if file.startswith("<"):
        return not file.startswith("<frozen") and bool(linecache.getlines(file))
    name = os.path.basename(file)
    return not (name in _PLUMBING and (file.startswith(_STANDARD) or name == "typing_extensions.py"))


def walk(frame: FrameType | None, stop: FrameType | None) -> RawStack:
    """The shown frames from ``frame`` outwards, innermost first, ending before ``stop``."""
    found = []
    while frame is not None and frame is not stop:
        if is_shown(frame.f_code):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


class Stacks:
    """Interned stacks, resolved to frames only when asked."""

    def __init__(self) -> None:
        self._known: dict[RawStack, int] = {(): -1}
        self._raw: list[RawStack] = []

    def here(self, depth: int, stop: FrameType | None) -> int:
        """The index of the stack ``depth`` calls above; -1 where no frame is shown."""
        return self.intern(walk(sys._getframe(depth + 1), stop))  # noqa: SLF001  # the documented way to see frames cheaply

    def intern(self, raw: RawStack) -> int:
        """The index of a stack; -1 for an empty one."""
        index = self._known.get(raw)
        if index is None:
            index = self._known[raw] = len(self._raw)
            self._raw.append(raw)
        return index

    def innermost(self, index: int) -> Frame:
        """The innermost frame of a stack."""
        return frame_at(*self._raw[index][0])

    def resolve(self) -> tuple[tuple[Frame, ...], tuple[tuple[int, ...], ...]]:
        """All frames, and every stack as indices into them."""
        frames: dict[tuple[CodeType, int], int] = {}
        stacks = []
        for raw in self._raw:
            for place in raw:
                frames.setdefault(place, len(frames))
            stacks.append(tuple(frames[place] for place in raw))
        return tuple(frame_at(code, lasti) for code, lasti in frames), tuple(stacks)


@cache
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


@cache
def frame_at(code: CodeType, lasti: int) -> Frame:
    """The frame of an instruction; columns count characters, not bytes."""
    line, end_line, column, end_column = _positions(code)[max(lasti, 0) // 2]
    line = line or code.co_firstlineno
    end_line = end_line or line
    start = 1 if column is None else _character(code.co_filename, line, column)
    end = start if end_column is None else _character(code.co_filename, end_line, end_column)
    return Frame(Span(code.co_filename, line, start, end_line, end), code.co_qualname)


def _character(file: str, line: int, offset: int) -> int:
    """The column, from 1, of a UTF-8 byte offset in a line."""
    text = linecache.getline(file, line)
    if text.isascii():
        return offset + 1
    return len(text.encode()[:offset].decode(errors="replace")) + 1
