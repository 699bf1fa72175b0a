"""What a program takes out of a list by a number that differs between ranks: Python asks the number for its value, and says neither of what list nor for what.

The list is found again from the text of the line: a name, an attribute, or the result of the very call of PyTorch that stands there.  Other ranks take other elements; they are alike if these are equal,
or tensors that came about in the same way.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

import torch

from graphguard.trace.calls import state
from graphguard.trace.calls.events import Event, Ref
from graphguard.trace.classes.numbers import Number, Sounding

Place: TypeAlias = tuple[int, int, int, int]
"""First line and column, last line and column, as Python's syntax tree has them."""
Results: TypeAlias = dict[tuple[FrameType, Place], Any]
"""What calls of PyTorch gave last, by the frame that called and the place of the call."""

_UNKNOWN: Final = object()
_SIMPLE: Final = (int, float, bool, str, bytes, type(None), torch.dtype)
_SUBSCRIPTS: Final = ("BINARY_SUBSCR", "BINARY_OP[]")  # as Python 3.14 calls it


def place_of(frame: FrameType) -> Place | None:
    """The expression that a frame is at."""
    found = _places(frame.f_code).get(frame.f_lasti)
    return None if found is None or None in found else found  # type: ignore[return-value]


@cache
def _places(code: CodeType) -> dict[int, tuple[int | None, ...]]:
    return {2 * at: (first, column, last, end) for at, (first, last, column, end) in enumerate(code.co_positions())}


@cache
def _operations(code: CodeType) -> dict[int, str]:
    return {
        one.offset: one.opname + (one.argrepr if one.opname == "BINARY_OP" else "")
        for one in dis.get_instructions(code)
    }


@cache
def _subscripts(file: str) -> dict[Place, ast.expr]:
    """What is subscripted at every place of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    return {_place(node): node.value for node in nodes}


def _place(node: ast.expr) -> Place:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0


def container(frame: FrameType, results: Results) -> Any:
    """The list or tuple that a frame takes an element of; None where it does something else, or nobody knows of which."""
    if not _operations(frame.f_code).get(frame.f_lasti, "").startswith(_SUBSCRIPTS):
        return None
    place = place_of(frame)
    node = None if place is None else _subscripts(frame.f_code.co_filename).get(place)
    found = _UNKNOWN if node is None else _value(node, frame, results)
    return found if type(found) is list or type(found) is tuple else None


def _value(node: ast.expr, frame: FrameType, results: Results) -> Any:
    match node:
        case ast.Name(id=name):
            return frame.f_locals.get(name, frame.f_globals.get(name, _UNKNOWN))
        case ast.Attribute(value=owner, attr=name):
            found = _value(owner, frame, results)
            return _UNKNOWN if found is _UNKNOWN else getattr(found, name, _UNKNOWN)
        case ast.Call():
            return results.get((frame, _place(node)), _UNKNOWN)
    return _UNKNOWN


def taken(number: Number, elements: Any) -> bool:
    """Note what other ranks take of a list; False where nobody can say whether that is the same."""
    sounding: Sounding = number.sounding
    try:
        each = {
            rank: elements[number.values[rank]] for rank in sounding.alike if _is_within(number.values[rank], elements)
        }
    except TypeError:
        return False
    mine = each.get(sounding.me, _UNKNOWN)
    if type(mine) in _SIMPLE:
        sounding.keep({rank: (type(one), one) if type(one) in _SIMPLE else None for rank, one in each.items()})
        return True
    if not isinstance(mine, torch.Tensor):
        if mine is _UNKNOWN:
            return False
        sounding.keep({rank: id(one) for rank, one in each.items()})
        return True
    origins = _Origins()
    shown = {rank: origins.of(one) if isinstance(one, torch.Tensor) else None for rank, one in each.items()}
    if shown[sounding.me] is None:
        return False
    sounding.keep({rank: None if one is None else one[0] for rank, one in shown.items()})
    numbers = {rank: one[1] for rank, one in shown.items() if one is not None and rank in sounding.alike}
    for row in zip(*(numbers[rank] for rank in sounding.alike), strict=True):
        sounding.literals.append(dict(zip(sounding.alike, row, strict=True)))
    sounding.literals.append({rank: number.values[rank] for rank in sounding.alike})
    return True


def _is_within(index: Any, elements: Any) -> bool:
    return isinstance(index, int) and -len(elements) <= index < len(elements)


class _Origins:
    """How tensors came about: what was called on their memory, and which numbers say which of several tensors, or where in memory, each is."""

    def __init__(self) -> None:
        self._recorder: Any = state.current_recorder()
        self._events: dict[int, list[Event]] | None = None

    def of(self, tensor: torch.Tensor) -> tuple[Any, tuple[int, ...]] | None:
        """What is the same for tensors that came about in the same way, and the numbers in which they differ; None where nobody knows."""
        recorder = self._recorder
        local = getattr(tensor, "_local_tensor", tensor)
        if recorder is None or type(local) is not type(tensor):
            return None
        recorder.need_all()
        storage, geometry = recorder.ref(recorder.faked(local)).key
        offset, sizes, strides, kind = geometry
        if not isinstance(offset, int):
            return None
        touching, numbers = [], [offset]
        whole: Any = None
        for event in self._by_storage().get(storage, ()):
            own = [ref.geometry for ref in _refs((event.args, event.kwargs, event.outs)) if ref.storage == storage]
            whole = whole or own[0]
            if any(ref.storage == storage and ref.geometry not in (whole, geometry) for ref in event.written):
                return None  # a part of this memory is written, which may be what another rank takes
            description, where = _without(event, storage)
            touching.append((description, event.phase))
            numbers.extend(where)
        return (repr((sizes, strides, kind)), repr(touching)), tuple(numbers)

    def _by_storage(self) -> dict[int, list[Event]]:
        if self._events is None:
            self._events = {}
            for event in self._recorder.events if self._recorder is not None else ():
                for storage in dict.fromkeys(ref.storage for ref in _refs((event.args, event.kwargs, event.outs))):
                    self._events.setdefault(storage, []).append(event)
        return self._events


def _refs(value: Any) -> list[Ref]:
    found: list[Ref] = []
    _each(value, found.append)
    return found


def _each(value: Any, do: Callable[[Ref], object]) -> None:
    if type(value) is Ref:
        do(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _each(item, do)
    elif isinstance(value, dict):
        for item in value.values():
            _each(item, do)


def _without(event: Event, storage: int) -> tuple[Any, list[int]]:
    """A call as it is for any tensor in the place of those in one storage: which of a list these are, and where in memory, are numbers."""
    numbers: list[int] = []

    def shown(value: Any) -> Any:
        if type(value) is Ref:
            if value.storage != storage:
                return "other", value.key
            numbers.append(value.geometry[0] if isinstance(value.geometry[0], int) else -1)
            return "own", value.geometry[1:]
        if isinstance(value, (tuple, list)):
            if len(value) > 1 and all(type(item) is Ref for item in value):
                own = [at for at, item in enumerate(value) if item.storage == storage]
                if len(own) == 1:  # one of many: all of these, and which
                    numbers.append(own[0])
                    return "listed", len(value), {repr(item.geometry[1:]) for item in value}, id(value)
            return tuple(map(shown, value))
        if isinstance(value, dict):
            return {key: shown(item) for key, item in value.items()}
        return repr(value)

    description = (str(event.op), event.module, event.draw, shown(event.args), shown(event.kwargs), shown(event.outs))
    return description, numbers
