"""Frozen dataclasses as plain data and back, by their type hints: what crosses a process border, beside the graphs of captures."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class CodecError(ValueError):
    """The data is not of the type that was asked for."""


def to_plain(value: Any) -> Any:
    """Dicts, lists, text, numbers and None for a value made of dataclasses, tuples, dicts, bytes, fractions, paths and enums."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def from_plain(kind: type[T], data: Any) -> T:
    """The value of type ``kind`` that :func:`to_plain` turned into ``data``; raises ``CodecError`` for anything else."""
    try:
        return typing.cast("T", _read(kind, data))
    except CodecError:
        raise
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CodecError(f"not a {kind.__name__}: {error!r}") from error


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), data)
    if origin is typing.Literal:
        return _checked(data in typing.get_args(kind), data, kind)
    if origin is tuple:
        return _read_tuple(typing.get_args(kind), data)
    if origin in (dict, Mapping):
        key, item = typing.get_args(kind)
        return {_read(key, name): _read(item, row) for name, row in data.items()}
    if kind is Any:
        return data
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind(**{name: _read(hint, data[name]) for name, hint in _fields(kind).items() if name in data})
    if kind in (Fraction, Path):
        return kind(data)
    if kind is bytes:
        return base64.b64decode(data, validate=True)
    if kind is float:
        return float(data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    return _checked(isinstance(data, kind) and (kind is bool or not isinstance(data, bool)), data, kind)


def _read_union(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _read(kind, data)
        except (CodecError, KeyError, TypeError, ValueError, AttributeError):
            continue
    raise CodecError(f"{data!r} is none of {kinds}")


def _read_tuple(kinds: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    _checked(isinstance(data, list), data, tuple)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], item) for item in data)
    return tuple(_read(kind, item) for kind, item in zip(kinds, data, strict=True))


def _checked(ok: bool, data: Any, kind: Any) -> Any:
    if not ok:
        raise CodecError(f"expected {kind}, found {data!r}")
    return data
