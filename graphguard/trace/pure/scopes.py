"""The variables of one call: how arguments become variables, and which may be given a value."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType

from graphguard.trace.pure.followed import Known, Once, Several, Value
from graphguard.trace.pure.lookups import Doubt


@dataclass(slots=True)
class Scope:
    """The variables of one call, and what it returned so far."""

    function: FunctionType
    locals: dict[str, Value]
    returned: list[Value] = field(default_factory=list)

    def set(self, name: str, value: Value) -> None:
        """Give a variable of the call's own a value."""
        code = self.function.__code__
        own = name not in code.co_freevars and (name in code.co_varnames or name in code.co_cellvars)
        if not own and name not in _loop_variables(code):
            raise Doubt(f"'{name}' is no variable of its function")
        self.locals[name] = value


def bound(
    function: FunctionType, arguments: ast.arguments, args: Sequence[Value], named: dict[str, Value]
) -> dict[str, Value]:
    """The variables that a function starts with, by its arguments."""
    if arguments.kwarg is not None:
        raise Doubt("a function takes any keywords")
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    values: dict[str, Value] = dict(zip(names, args, strict=False))
    if len(args) > len(names) and arguments.vararg is None:
        raise Doubt("too many arguments")
    if arguments.vararg is not None:
        values[arguments.vararg.arg] = Several(tuple(args[len(names) :]))
    for name, value in named.items():
        if name in values:
            raise Doubt("an argument is given twice")
        values[name] = value
    defaults = function.__defaults__ or ()
    for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        values.setdefault(name, Known(value))
    for name, value in (function.__kwdefaults__ or {}).items():
        values.setdefault(name, Known(value))
    wanted = {*names, *(one.arg for one in arguments.kwonlyargs)}
    if arguments.vararg is not None:
        wanted.add(arguments.vararg.arg)
    if set(values) != wanted:
        raise Doubt("arguments do not fit")
    return values


def lasting(value: Value) -> Value:
    """A value that may be looked at again; raises ``Doubt`` for one that is used up by that."""
    if isinstance(value, Once):
        raise Doubt("an iterator is kept")
    return value


def _loop_variables(code: CodeType) -> frozenset[str]:
    """Variables of the comprehensions of a function."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(name for one in inner for name in one.co_varnames)
