"""Python's own functions on numbers that a program reads from tensors: ``int(counts.sum())``, ``float(norm)``, ``max(norm.item(), 1.0)``, ``len(rows)``, ``math.sqrt(total.item())``, and texts of them;
and what the types of values are to a program, ``type(x) is torch.Tensor``.

Python insists on the number itself, which a recording does not have.  Calls in the user's files come here (:mod:`~graphguard.trace.source.rewriting`), the functions of ``math`` are
replaced; plain numbers give what they always give.
"""

from __future__ import annotations

import builtins
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import _adafactor

from graphguard.trace.calls import state
from graphguard.trace.depends.orders import hashed, placed
from graphguard.trace.replace.classes import class_of, is_read_as, of_its_class
from graphguard.trace.replace.overrides import known_to_scripts
from graphguard.trace.replace.shown_arrays import is_shown
from graphguard.trace.source.rewriting import CLASS, NAME

_SYMBOLS: Final = (torch.SymInt, torch.SymFloat)
_FUNCTIONS: Final = ("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos")
_CHECKS: Final = ("isnan", "isinf", "isfinite")
_CONVERSION: Final = re.compile(r"%(?:\((?P<key>\w*)\))?[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?(?P<kind>.)")
#: What a verdict rests on where numbers that only the data decides are put into texts.
SHOWN: Final = "numbers that are written into texts are shown: nothing depends on the texts"


def install() -> None:
    """Have rewritten files find ``called``, and ``math`` and formatted texts take numbers that were read, while a program is recorded."""
    setattr(builtins, NAME, called)
    for name in (*_FUNCTIONS, *_CHECKS):
        original = getattr(math, name)
        taking = functools.wraps(original)(_taking_read_numbers(original, name))
        setattr(math, name, known_to_scripts(original, taking))
    for name in ("max", "min"):  # PyTorch's one optimizer that takes them of norms
        setattr(_adafactor, name, functools.partial(called, getattr(builtins, name)))
    for number in _SYMBOLS:
        number.__format__ = _text
    FakeTensor.__format__ = _text_of_tensor
    torch.SymFloat.__round__ = _rounded(torch.SymFloat.__round__)
    json.JSONEncoder.default = _in_json(json.JSONEncoder.default)  # type: ignore[method-assign, assignment]


def called(function: Any, *arguments: Any) -> Any:
    """``function(*arguments)``; of None, a text with values put into it; of ``CLASS``, whose class is asked for."""
    if function is None:
        return _filled(*arguments)
    if function is isinstance and len(arguments) == 2:
        return isinstance(*arguments) or is_read_as(*arguments)
    if function is str or function is repr:
        return _written(function, *arguments)
    if function is type:
        return class_of(*arguments) if len(arguments) == 1 else type(*arguments)
    if function is CLASS:
        return of_its_class(*arguments)
    if function is len:
        return _length(*arguments)
    if function is int or function is float:
        return _converted(function, *arguments)
    if function is hash:
        return hashed(*arguments)
    if function is id:
        return placed(*arguments)
    if function is max or function is min:
        return _extreme(function, arguments)
    return function(*arguments)


def _length(value: Any, *others: Any) -> Any:
    """``len(rows)``, which Python wants to be a number at once, as ``rows.shape[0]``, which may be one that only the data decides."""
    if isinstance(value, torch.Tensor) and type(value).__len__ is torch.Tensor.__len__ and value.dim() and not others:
        size = value.shape[0]
        if isinstance(size, torch.SymInt) and _known(size) is None:
            return size
    return len(value, *others)


def _converted(function: Any, value: Any, *others: Any) -> Any:
    if isinstance(value, torch.Tensor) and not others and _is_single(value):
        value = (value.to(torch.int64) if value.dtype == torch.bool else value).item()
    if not isinstance(value, _SYMBOLS) or others or (function is int and isinstance(value, torch.SymFloat)):
        return function(value, *others)
    if _known(value) is not None:
        return function(_known(value))
    return torch.sym_float(value) if function is float else value


def _extreme(function: Any, arguments: Sequence[Any]) -> Any:
    items = arguments
    if len(arguments) == 1 and isinstance(arguments[0], list | tuple | Iterator):
        items = list(arguments[0])
        arguments = (items,)
    if not any(isinstance(each, _SYMBOLS) and _known(each) is None for each in items) or not all(
        isinstance(each, int | float | torch.SymInt | torch.SymFloat) for each in items
    ):
        return function(*arguments)
    if all(isinstance(each, int | torch.SymInt) for each in items):
        return functools.reduce(torch.sym_max if function is max else torch.sym_min, items)
    joined = functools.reduce(torch.maximum if function is max else torch.minimum, map(_tensor_of, items))
    return joined.item()


def _taking_read_numbers(original: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def take(value: Any, *others: Any) -> Any:
        if others or state.current_recorder() is None or not _is_read(value):
            return original(value, *others)
        found = getattr(torch, name)(_tensor_of(value))
        return bool(found) if name in _CHECKS else found.item()

    return take


def _is_read(value: Any) -> bool:
    if isinstance(value, FakeTensor):
        return _is_single(value)
    return isinstance(value, _SYMBOLS) and _known(value) is None


def _is_unread(value: Any) -> bool:
    return is_shown(value) or _is_read(value)


def _is_single(tensor: torch.Tensor) -> bool:
    return (not tensor.dim() or tensor.numel() == 1) and not tensor.is_complex()


def _tensor_of(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().reshape(()).to(torch.float64)
    return torch.tensor(value, dtype=torch.float64)


def _known(number: Any) -> int | float | None:
    """What PyTorch knows such a number to be; None where only the data decides it."""
    return number.node.maybe_as_int() if isinstance(number, torch.SymInt) else number.node.maybe_as_float()


def _filled(text: str, values: Any) -> str:
    """``text % values``, in which numbers that a recording does not have are words."""
    if isinstance(values, dict):
        unread = {key for key, value in values.items() if _is_unread(value)}
        fitting = _CONVERSION.sub(lambda place: f"%({place['key']})s" if place["key"] in unread else place[0], text)
        return fitting % {key: _word(value) if key in unread else value for key, value in values.items()}
    listed = values if isinstance(values, tuple) else (values,)
    if not any(map(_is_unread, listed)):
        return text % values
    waiting = iter(listed)

    def fit(place: re.Match[str]) -> str:
        taken = 0 if place["kind"] == "%" else 1 + place[0].count("*")
        return "%s" if taken and any(map(_is_unread, islice(waiting, taken))) else place[0]

    return _CONVERSION.sub(fit, text) % tuple(_word(value) if _is_unread(value) else value for value in listed)


def _written(function: Any, *arguments: Any) -> str:
    """``str(x)`` or ``repr(x)``."""
    value = arguments[0] if len(arguments) == 1 else None
    if isinstance(value, FakeTensor):
        return f"tensor({_word(value)})"
    if isinstance(value, _SYMBOLS):
        return _text(value, "")
    text: str = function(*arguments)
    return text


def _word(number: Any) -> str:
    """What stands in a text for a number that a recording does not have, which cannot be read back."""
    note_shown()
    return "?" if isinstance(number, torch.Tensor) else str(number)


def note_shown() -> None:
    """Nothing may depend on a text that is made now."""
    recorder = state.current_recorder()
    if recorder is not None:
        recorder.assumed.add(SHOWN)


def _rounded(original: Callable[..., Any]) -> Callable[..., Any]:
    def rounded(number: Any, digits: int | None = None) -> Any:
        if digits is None or _known(number) is not None or state.current_recorder() is None:
            return original(number) if digits is None else round(float(number), digits)
        return torch.round(_tensor_of(number), decimals=digits).item()

    return rounded


def _in_json(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Numbers that a recording does not have are words there, too."""

    def default(self: Any, value: Any) -> Any:
        if not isinstance(value, _SYMBOLS) and not is_shown(value):
            return original(self, value)
        known = None if is_shown(value) else _known(value)
        return _word(value) if known is None else known

    return functools.wraps(original)(default)


def _text(number: Any, spec: str) -> str:
    known = _known(number)
    return _word(number) if known is None else format(known, spec)


def _text_of_tensor(tensor: torch.Tensor, spec: str) -> str:
    if not spec or not tensor.dim():
        note_shown()
        return str(tensor)
    return object.__format__(tensor, spec)
