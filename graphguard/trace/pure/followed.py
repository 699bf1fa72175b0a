"""What is known of a value of code that is followed without being run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final, TypeAlias

import torch

from graphguard.trace.pure.lookups import Doubt, is_primitive


@dataclass(frozen=True, slots=True)
class Known:
    """An object that was there before the call, or a plain constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or list that the call makes, item by item."""

    items: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class Once:
    """What can be gone through once: a generator, a ``zip``.  It is only followed where that happens at once."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A method of an object that was there before."""

    function: FunctionType
    receiver: Value


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a born value, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The ``apply`` of an autograd function."""

    function: type


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The ``ctx`` of one call of an autograd function, and what was kept in it."""

    kept: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saver:
    """A method of a ``ctx`` that keeps tensors or notes a wish."""

    name: str


@dataclass(frozen=True, slots=True)
class Born:
    """Something that the call makes out of tensors and plain constants, and nothing else."""


Value: TypeAlias = Known | Several | Once | Bound | Method | Applied | Context | Saver | Born
BORN: Final = Born()
NONE: Final = Known(None)
_PASSED = (torch.distributed.ProcessGroup, torch.distributed.ReduceOp, torch.distributed.ReduceOp.RedOpType)
_NUMBERS = (bool, int, float)


def joined(one: Value, other: Value) -> Value:
    """What is certain of a value that is one of two."""
    if one is other or (isinstance(one, Known) and isinstance(other, Known) and one.value is other.value):
        return one
    if isinstance(one, Several) and isinstance(other, Several) and len(one.items) == len(other.items):
        return Several(tuple(map(joined, one.items, other.items)))
    all_plain((one, other))
    return BORN


def is_born(value: Value) -> bool:
    """Whether the call makes a value."""
    return isinstance(value, Born)


def is_none(value: Value) -> bool:
    """Whether a value is None."""
    return isinstance(value, Known) and value.value is None


def is_number(value: Value) -> bool:
    """Whether a value is a number that is known."""
    return isinstance(value, Known) and type(value.value) in _NUMBERS


def is_text(value: Value) -> bool:
    """Whether a value is a text that is known."""
    return isinstance(value, Known) and type(value.value) is str


def all_plain(values: Sequence[Value]) -> None:
    """Raise ``Doubt`` unless these are tensors, plain constants, process groups, and lists of such."""
    for value in values:
        match value:
            case Born():
                continue
            case Several(items):
                all_plain(items)
            case Known(known) if is_primitive(known) or isinstance(known, _PASSED):
                continue
            case _:
                raise Doubt(f"{told(value)} is passed on")


def told(value: Value) -> str:
    """A value in words."""
    return f"a {type(value.value).__name__}" if isinstance(value, Known) else "what the call makes"
