"""What code finds when it looks something up: names, attributes and items of what was there before a call, and of what the call makes."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch

from graphguard.trace.pure.followed import (
    BORN,
    Applied,
    Born,
    Bound,
    Context,
    Known,
    Method,
    Once,
    Saver,
    Several,
    Value,
    all_plain,
    is_born,
    told,
)
from graphguard.trace.pure.harmless import METHODS, PROPERTIES, own_apply
from graphguard.trace.pure.lookups import Doubt, Lookups, is_primitive
from graphguard.trace.pure.scopes import Scope

_LONGEST = 64
_METACLASSES = (type, ABCMeta, type(torch.autograd.Function))
_SAVERS = frozenset(("save_for_backward", "set_materialize_grads", "mark_non_differentiable"))


@dataclass(frozen=True, slots=True)
class Read:
    """A property that is read: its function is called with the object."""

    function: FunctionType
    receiver: Known


def value_of(lookups: Lookups, name: str, scope: Scope) -> Value:
    """What a name stands for."""
    _unmangled(name)
    code = scope.function.__code__
    if name in scope.locals:
        return scope.locals[name]
    if name in code.co_varnames or name in code.co_cellvars:
        raise Doubt(f"'{name}' may not be there")
    if name in code.co_freevars:
        cell: CellType = (scope.function.__closure__ or ())[code.co_freevars.index(name)]
        return known(lookups.cell(cell))
    return known(lookups.of_globals(scope.function.__globals__, name))


def attribute_of(lookups: Lookups, owner: Value, name: str) -> Value | Read:
    """What an attribute is, or the property that it is."""
    _unmangled(name)
    match owner:
        case Born():
            if name in PROPERTIES or name in METHODS:
                lookups.own_method(name)
                return BORN if name in PROPERTIES else Method(name)
        case Context(kept):
            if name in ("saved_tensors", "needs_input_grad"):
                return BORN
            if name in _SAVERS:
                return Saver(name)
            if name in kept:
                return kept[name]
        case Known(value) if isinstance(value, ModuleType):
            return known(lookups.of_globals(vars(value), name))
        case Known(value) if isinstance(value, type):
            return _of_class(lookups, value, name)
        case Known(value) if not is_primitive(value):
            return _of_object(lookups, value, name)
    raise Doubt(f"the attribute '{name}' of {told(owner)}")


def _of_class(lookups: Lookups, cls: type, name: str) -> Value:
    if cls is torch.distributed.ReduceOp:
        return Known(getattr(cls, name))
    if type(cls) not in _METACLASSES:
        raise Doubt("a class has attributes of its own kind")
    found = lookups.of_class(cls, name)
    if issubclass(cls, torch.autograd.Function):
        if name == "apply" and own_apply(cls):
            lookups.of_class(cls, "setup_context")
            return Applied(cls)
        raise Doubt("an attribute of an autograd function")
    if isinstance(found, staticmethod):
        return Known(found.__func__)
    if isinstance(found, FunctionType) or is_primitive(found):
        return Known(found)
    raise Doubt(f"the attribute '{name}' of a class")


def _of_object(lookups: Lookups, value: Any, name: str) -> Value | Read:
    place, raw = lookups.attribute(value, name)
    if place != "class":
        return BORN if isinstance(raw, torch.Tensor) else known(raw)
    if isinstance(raw, FunctionType):
        return Bound(raw, Known(value))
    if isinstance(raw, staticmethod) and isinstance(raw.__func__, FunctionType):
        return Known(raw.__func__)
    if type(raw) is property and isinstance(raw.fget, FunctionType):
        return Read(raw.fget, Known(value))
    if is_primitive(raw):
        return Known(raw)
    raise Doubt(f"the attribute '{name}' of {type(value).__name__}")


def items_of(lookups: Lookups, value: Value) -> tuple[Value, ...]:
    """All items of a list."""
    if isinstance(value, (Several, Once)):
        return value.items
    if isinstance(value, Known):
        return tuple(map(known, short(lookups.items(value.value))))
    raise Doubt(f"the items of {told(value)}")


def item_at(lookups: Lookups, owner: Value, index: Value) -> Value:
    """What is at an index."""
    if is_born(owner):
        all_plain((index,))
        lookups.own_method("__getitem__")
        return BORN
    if isinstance(index, Known) and type(index.value) is int:
        found = items_of(lookups, owner)
        if -len(found) <= index.value < len(found):
            return found[index.value]
    raise Doubt(f"an item of {told(owner)}")


def known(value: Any) -> Known:
    """What was there before the call."""
    if isinstance(value, torch.Tensor):
        raise Doubt("a tensor that is no parameter or buffer")
    return Known(value)


def _unmangled(name: str) -> None:
    """Raise ``Doubt`` for a name that is another one inside a class."""
    if name.startswith("__") and not name.endswith("__"):
        raise Doubt(f"the private name '{name}'")


def short(listed: Sequence[Any]) -> Sequence[Any]:
    """A list that is not too long to be followed."""
    if len(listed) > _LONGEST:
        raise Doubt("too many items")
    return listed
