"""What numpy makes of numbers that a recording does not have: ``print(loss.numpy())``, ``accuracy = (predicted.numpy() == labels.numpy()).mean()``.

Such an array has a shape and a type and no elements.  It can be computed with, where that gives a shape that the shapes alone decide, and shown; nothing of it can come back to the program: not as a number, not as a tensor, not as a condition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.source.errors import TracingError

REFUSED: Final = (
    "the program needs a number that depends on its inputs, here\n"
    "a recording holds for all inputs: what numpy makes of them can be shown, and nothing else; compute with tensors"
)
_METHODS: Final = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "flatten", "item", "max", "mean", "min", "prod",
    "ravel", "reshape", "round", "squeeze", "std", "sum", "swapaxes", "transpose", "var",
)  # fmt: skip
_FUNCTIONS: Final = (
    "all", "any", "argmax", "argmin", "argsort", "around", "average", "clip", "concatenate", "copy", "cumsum", "expand_dims", "max", "mean",
    "median", "min", "prod", "ravel", "reshape", "round", "sort", "squeeze", "stack", "std", "sum", "transpose", "var", "vstack", "hstack",
    "isclose", "percentile", "quantile",
)  # fmt: skip
_OF_SEVERAL: Final = ("clip", "isclose")
_OF_SHAPES: Final = ("ndim", "shape", "size")
_OPERATORS: Final = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
)  # fmt: skip
_COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")
_NUMBERS: Final = ("bool", "int", "float", "complex", "index", "array", "setitem", "delitem", "contains", "hash")


def shown(tensor: torch.Tensor, on_text: Callable[[], None], *, force: bool = False) -> Any:
    """The array of a tensor whose elements are not known; ``on_text`` is called when it is shown.  Raises what PyTorch raises of a tensor that has no array."""
    with _disable_current_modes():
        one = torch.empty((), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)
        kind = one.numpy(force=force).dtype
    return Shown(_numpy().ones(tuple(tensor.shape), kind), on_text, tensor)


def _numpy() -> Any:
    import numpy

    return numpy


def refuse(*_: Any, **__: Any) -> Any:
    """Say that elements would be needed."""
    raise TracingError("trace-error", REFUSED)


class Shown:
    """An array without elements; ``_like`` is another one of its shape and type, ``_origin`` the tensor whose elements it shows."""

    def __init__(self, like: Any, on_text: Callable[[], None], origin: torch.Tensor | None = None) -> None:
        self._like, self._on_text, self._origin = _numpy().asarray(like), on_text, origin

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # a program asks whether it is an array
        return _numpy().ndarray

    shape = property(lambda self: self._like.shape)
    dtype = property(lambda self: self._like.dtype)
    ndim = property(lambda self: self._like.ndim)
    size = property(lambda self: self._like.size)
    T = property(lambda self: self._made(self._like.T))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(self._method, name) if name in _METHODS else refuse()

    def __len__(self) -> int:
        return len(self._like)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        if not all(place is None or place is Ellipsis or isinstance(place, int | slice) for place in places):
            refuse()
        origin = None if self._origin is None or _is_turned(places) else self._origin.detach()[index]
        return Shown(self._like[index], self._on_text, origin)

    def tolist(self) -> Any:
        """Nested lists of arrays of one element."""
        return [row.tolist() for row in self] if self._like.ndim else self

    def __str__(self) -> str:
        self._on_text()
        return "?" if not self._like.ndim else f"[? of shape {self._like.shape}]"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method not in ("__call__", "reduce") or "out" in kwargs:
            refuse()
        return self._computed(getattr(ufunc, method), *inputs, **kwargs)

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in _OF_SHAPES and function is getattr(_numpy(), function.__name__):
            return function(*_likes(args), **_likes(kwargs))
        if function.__name__ not in _FUNCTIONS or getattr(_numpy(), function.__name__) is not function:
            refuse()
        if function.__name__ not in _OF_SEVERAL and any(map(is_shown, (*args[1:], *kwargs.values()))):
            refuse()  # a dim that only the data decides
        return self._computed(function, *args, **kwargs)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in _OF_SEVERAL and any(map(is_shown, (*args, *kwargs.values()))):
            refuse()
        return self._computed(getattr(self._like, name), *args, **kwargs)

    def _computed(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What it makes of arrays of the same shapes."""
        if kwargs.get("out") is not None or kwargs.get("where") is not None:
            refuse()
        with _numpy().errstate(all="ignore"):
            found = function(*_likes(args), **_likes(kwargs))
        return self._made(found)

    def _made(self, like: Any) -> Any:
        return Shown(like, self._on_text)


def origin_of(value: Any) -> torch.Tensor | None:
    """The tensor whose elements such an array shows; None where numpy made it of several, or of its numbers."""
    return value._origin  # noqa: SLF001


def _is_turned(places: tuple[Any, ...]) -> bool:
    """Whether a slice goes backwards, which no tensor's does."""
    return any(isinstance(place, slice) and (place.step or 1) < 0 for place in places)


def is_shown(value: Any) -> bool:
    """Whether a value is such an array, whatever it says that it is."""
    return type(value) is Shown


def _likes(value: Any) -> Any:
    """Arguments with other arrays in place of such; a tensor with which it would be computed is the program's."""
    if is_shown(value):
        return value._like  # noqa: SLF001
    if isinstance(value, torch.Tensor):
        refuse()
    if isinstance(value, list | tuple):
        return type(value)(map(_likes, value))
    return {key: _likes(item) for key, item in value.items()} if isinstance(value, dict) else value


def _computing(apply: Callable[..., Any], *, turned: bool = False) -> Any:
    def method(self: Any, *others: Any) -> Any:
        return self._computed(apply, *((*others, self) if turned else (self, *others)))

    return method


def _define() -> None:
    """Operators: those that are computed, and those that would need an element."""
    for name in _OPERATORS:
        apply = getattr(operator, name + "_" if name in ("and", "or") else name)
        setattr(Shown, f"__{name}__", _computing(apply))
        setattr(Shown, f"__r{name}__", _computing(apply, turned=True))
        setattr(Shown, f"__i{name}__", refuse)
    for name in (*_COMPARISONS, "neg", "abs", "invert"):
        setattr(Shown, f"__{name}__", _computing(getattr(operator, name)))
    for name in _NUMBERS:
        setattr(Shown, f"__{name}__", refuse)


_define()
