"""What the type of a value is to the program: where something stands in for a tensor, a number or an array while a program is recorded, it is that of what it stands for.

``type(x) is torch.Tensor``, ``x.__class__`` and ``isinstance(loss, float)`` in the user's files come here (:mod:`~graphguard.trace.source.rewriting`).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

_NUMBERS: Final[dict[type, type]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_OURS: Final = __package__.partition(".")[0] + "."


def class_of(value: Any) -> type:
    """``type(value)`` as it is where nothing is recorded."""
    kind = type(value)
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    if issubclass(kind, FakeTensor):
        return _tensors_class(kind, value)
    return value.__class__ if kind.__module__.startswith(_OURS) else kind


def is_read_as(value: Any, kinds: Any) -> bool:
    """``isinstance(value, kinds)`` of a number that was read, which a symbol stands for."""
    number = _NUMBERS.get(type(value))
    return number is not None and isinstance(number(), kinds)


def of_its_class(value: Any) -> Any:
    """What has the ``__class__`` that ``value`` has where nothing is recorded: itself, if it stands for nothing else."""
    return _Of(class_of(value)) if type(value) in _NUMBERS or isinstance(value, FakeTensor) else value


def _tensors_class(kind: type, value: FakeTensor) -> type:
    if kind is FakeTensor:
        return nn.Parameter if getattr(value, "_is_param", False) else torch.Tensor
    return next(base for base in kind.__mro__ if not issubclass(base, FakeTensor))  # the program's own


class _Of:
    """Something of a class, of which nothing else is asked."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind
