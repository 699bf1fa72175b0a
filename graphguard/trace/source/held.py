"""Whether a program may still read an array: where only variables that no later line reads show its memory, what is written there is nobody's affair."""

from __future__ import annotations

import dis
import inspect
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

_LEAVES = ("RETURN_", "RAISE_", "RERAISE")
_JUMPS_AWAY = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


def is_read_later(array: Callable[[], Any], ours: int, frame: FrameType | None) -> bool:
    """Whether anything but ``ours`` of the references to what ``array`` gives, or to arrays that are views of it, may lead the program there again.

    ``frame`` is the innermost one that may hold some in its variables; what else holds one may read it.
    """
    forgotten = _forgotten(id(array()), frame)
    return sys.getrefcount(array()) - 1 > ours + forgotten  # one is the call's own


def _forgotten(array: int, frame: FrameType | None) -> int:
    """How many references to an array are variables that are not read any more, and views that only such variables hold."""
    count = 0
    views: dict[int, list[Any]] = {}
    while frame is not None:
        for value, idle in _variables(frame):
            if id(value) == array:
                count += idle
            elif id(getattr(value, "base", None)) == array:
                views.setdefault(id(value), [value, 0])[1] += idle
        value = None
        frame = frame.f_back
    for view in views.values():
        count += sys.getrefcount(view[0]) - 2 <= view[1]  # the pair here, and the call's own
    return count


def _variables(frame: FrameType) -> Iterator[tuple[Any, int]]:
    """What a frame's variables hold, each with how many references of the frame's never lead there again."""
    code, found = frame.f_code, frame.f_locals
    in_snapshot = int(type(found) is dict and bool(code.co_flags & inspect.CO_NEWLOCALS))  # which holds them as well
    own = set(code.co_varnames) - set(code.co_cellvars) if in_snapshot or type(found) is not dict else set()
    for name in list(found):
        idle = name in own and not reads(code, frame.f_lasti, name)
        yield found[name], in_snapshot + idle


def reads(code: CodeType, start: int, name: str) -> bool:
    """Whether code may read a variable from the instruction after ``start`` on, before it gives it another value."""
    steps = list(dis.get_instructions(code))
    at = {step.offset: index for index, step in enumerate(steps)}
    handlers = [(e.start, e.end, e.target) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]  # noqa: SLF001 - the only reader of it
    first = bisect_right(
        [step.offset for step in steps], start
    )  # which may be within what an instruction keeps for itself
    waiting = [first, *(at[target] for low, high, target in handlers if low <= start < high)]
    seen: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in seen or index >= len(steps):
            continue
        seen.add(index)
        step = steps[index]
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if name in names and "LOAD" in step.opname:
            return True
        waiting += [at[target] for low, high, target in handlers if low <= step.offset < high]
        if name in names and step.opname.startswith(("STORE_FAST", "DELETE_FAST")):
            continue
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            waiting.append(at[step.argval])
        if not step.opname.startswith(_LEAVES) and step.opname not in _JUMPS_AWAY:
            waiting.append(index + 1)
    return False
