"""Which lines of whose code an operator comes from.

While recording, a stack is only walked and interned as pairs of a code object and an instruction; lines and columns are looked up once, at
the end, from the code objects' own position tables.  Code objects are told apart by identity: two functions of the same text on the same lines of two files are
equal to Python, which does not compare their files, and their hash takes in everything else.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar

import torch

from graphguard.ir.spans import Frame, Span
from graphguard.trace.source.sources import is_standard

_Function = TypeVar("_Function", bound=Callable[..., Any])
RawStack: TypeAlias = tuple[int, ...]
"""For every frame, innermost first, the identity of its code object and the instruction that it is at."""

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


# What ``id`` gives in another order, without the audit event that costs ten times as much where anybody hears it.
_identity = object.__hash__


class _Code:
    """A code object that was met: kept, so that its identity stays its own."""

    __slots__ = ("code", "identity", "is_outermost", "is_shown", "positions")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.identity = _identity(code)
        self.is_shown = _is_shown(code)
        self.is_outermost = False
        self.positions: list[tuple[int | None, int | None, int | None, int | None]] | None = None


_met: dict[int, _Code] = {}


def is_shown(code: CodeType) -> bool:
    """Whether a frame of this code is told to users: all but PyTorch's, ours, and the standard library's."""
    return _of(code).is_shown


def _of(code: CodeType) -> _Code:
    known = _met.get(_identity(code))
    if known is None:
        known = _Code(code)
        _met[known.identity] = known
    return known


def _is_shown(code: CodeType) -> bool:
    file = code.co_filename
    if file.startswith((_TORCH, _OURS)):
        return False
    if file.startswith("<"):
        return not file.startswith("<frozen") and bool(linecache.getlines(file))
    return not (is_standard(file) or os.path.basename(file) == "typing_extensions.py")


def outermost(function: _Function) -> _Function:
    """Mark a function of ours that runs programs: whoever called it is no part of them, and stacks are not walked any further."""
    ours: Any = function
    _of(ours.__code__).is_outermost = True
    return function


def walk(frame: FrameType | None, stop: FrameType | None) -> RawStack:
    """The shown frames from ``frame`` outwards, innermost first, ending before ``stop``."""
    found: list[int] = []
    known_as, identity = _met.get, _identity
    while frame is not None and frame is not stop:
        code = frame.f_code
        known = known_as(identity(code)) or _of(code)
        if known.is_shown:
            found += (known.identity, frame.f_lasti)
        elif known.is_outermost:
            break
        frame = frame.f_back
    return tuple(found)


class Stacks:
    """Interned stacks, resolved to frames only when asked."""

    def __init__(self) -> None:
        self._known: dict[RawStack, int] = {(): -1}
        self._raw: list[RawStack] = []
        self.noted: dict[int, None] | None = None
        """The indices that were asked for, in their order, where somebody wants to know."""
        self.muted = False
        """Whether no stack is worth noting: all are -1."""

    def here(self, depth: int, stop: FrameType | None) -> int:
        """The index of the stack ``depth`` calls above; -1 where no frame is shown."""
        if self.muted:
            return -1
        return self.intern(walk(sys._getframe(depth + 1), stop))  # noqa: SLF001  # the documented way to see frames cheaply

    def intern(self, raw: RawStack) -> int:
        """The index of a stack; -1 for an empty one."""
        index = self._known.get(raw)
        if index is None:
            index = self._known[raw] = len(self._raw)
            self._raw.append(raw)
        if self.noted is not None:
            self.noted[index] = None
        return index

    def raw(self, index: int) -> RawStack:
        """The stack of an index."""
        return self._raw[index] if index >= 0 else ()

    def innermost(self, index: int) -> Frame:
        """The innermost frame of a stack."""
        code, lasti = self._raw[index][:2]
        return _frame(code, lasti)

    def frames(self, index: int) -> Iterator[Frame]:
        """The frames of a stack, innermost first."""
        return frames_of(self.raw(index))

    def resolve(self) -> tuple[tuple[Frame, ...], tuple[tuple[int, ...], ...]]:
        """All frames, and every stack as indices into them."""
        frames: dict[tuple[int, int], int] = {}
        stacks = []
        for raw in self._raw:
            places = list(zip(raw[::2], raw[1::2], strict=True))
            for place in places:
                frames.setdefault(place, len(frames))
            stacks.append(tuple(frames[place] for place in places))
        return tuple(_frame(code, lasti) for code, lasti in frames), tuple(stacks)


def frames_of(raw: RawStack) -> Iterator[Frame]:
    """The frames of a stack, innermost first."""
    return (_frame(code, lasti) for code, lasti in zip(raw[::2], raw[1::2], strict=True))


def frame_at(code: CodeType, lasti: int) -> Frame:
    """The frame of an instruction; columns count characters, not bytes."""
    return _frame(_of(code).identity, lasti)


@cache
def _frame(identity: int, lasti: int) -> Frame:
    """The frame of an instruction of a code object that was met."""
    known = _met[identity]
    code = known.code
    if known.positions is None:
        known.positions = list(code.co_positions())
    line, end_line, column, end_column = known.positions[max(lasti, 0) // 2]
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
