"""Whether code that could not be recorded speaks of other ranks: then what it does is not a function of its arguments alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import CodeType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

from graphguard.trace.source.sources import is_ours, is_torch

_COLLECTIVE = re.compile("all_?reduce|reduce_?scatter|all_?gather|all_?to_?all")
_DISTRIBUTED = "torch.distributed"
# Functions that call functions, this often.
_DEEPEST = 4


def names_collective(operator: str) -> bool:
    """Whether an operator's name is that of a collective."""
    return _COLLECTIVE.search(operator) is not None


def distributed_name(trace: TracebackType | None) -> str | None:
    """The name by which code on this traceback, or a function that it calls, reaches other ranks."""
    seen: set[CodeType] = set()
    while trace is not None:
        code, globals_ = trace.tb_frame.f_code, trace.tb_frame.f_globals
        if _is_to_be_read(code) and (found := _name_in(code, globals_, seen, _DEEPEST)) is not None:
            return found
        trace = trace.tb_next
    return None


def _is_to_be_read(code: CodeType) -> bool:
    return not is_torch(code.co_filename) and not is_ours(code.co_filename)


def _name_in(code: CodeType, globals_: Mapping[str, Any], seen: set[CodeType], depth: int) -> str | None:
    if code in seen:
        return None
    seen.add(code)
    for name in code.co_names:
        value = globals_.get(name)
        if _COLLECTIVE.search(name) or _is_distributed(value):
            return name
        function = value.__func__ if isinstance(value, MethodType) else value
        if depth and isinstance(function, FunctionType) and _is_to_be_read(function.__code__):
            found = _name_in(function.__code__, function.__globals__, seen, depth - 1)
            if found is not None:
                return found
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return next((found for part in inner if (found := _name_in(part, globals_, seen, depth)) is not None), None)


def _is_distributed(value: Any) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and (home + ".").startswith(_DISTRIBUTED + ".")
