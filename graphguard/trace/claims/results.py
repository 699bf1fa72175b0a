"""What a program returned, opened: tensors, numbers that it read from tensors, constants, and what is none of these."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import pathlib
import re
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from graphguard.trace.calls import state
from graphguard.trace.claims.api import Gradients
from graphguard.trace.replace.number_calls import SHOWN
from graphguard.trace.replace.shown_arrays import is_shown, origin_of
from graphguard.trace.source.sources import file_of, is_installed

#: Values that say all that they are by their text.
_PLAIN: Final = (
    str, bytes, complex, type, range, slice, torch.dtype, torch.layout, decimal.Decimal, fractions.Fraction, pathlib.PurePath,
    datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
_NO_RESULTS: Final = (torch.nn.Module, torch.optim.Optimizer, torch.Generator, types.ModuleType, types.GeneratorType)
#: What stands in texts for numbers that a recording does not have, and for tensors.
_UNREAD: Final = re.compile(r"\bz?uf?\d+\b|FakeTensor\(|\[\? of shape")
_DEEPEST: Final = 12
_LISTED: Final = 1000

Kind = Literal["tensor", "array", "number", "constant", "gradient", "opaque"]


@dataclass(frozen=True, slots=True)
class Result:
    """One value of what a program returned.

    ``value`` is a tensor (also of an array, and of a parameter's ``gradient``), a number that was read from one, a :class:`Constant`, or the words for what is ``opaque``.
    ``of`` is the parameter of a gradient; ``told`` says of what kind a number is, and for a gradient by what name the program knows its parameter.
    """

    name: str
    kind: Kind
    value: Any
    told: str = ""
    of: Any = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number of Python's."""
        return self.kind == "number" or (self.kind == "constant" and self.value.is_number)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that depends on nothing: a number, None, or the text of anything else."""

    value: bool | int | float | None
    text: str

    @property
    def is_number(self) -> bool:
        """Whether a tensor could hold it."""
        return self.value is not None

    def equals(self, other: Constant) -> bool:
        """Whether the two are one; NaN is NaN."""
        if self.is_number and other.is_number:
            return self.value == other.value or (self.value != self.value and other.value != other.value)
        return self.text == other.text


NOTHING: Final = Constant(None, "None")


def results_of(value: Any, name: str = "out", above: tuple[int, ...] = ()) -> Iterator[Result]:
    """Every value in what a program returned, by name; ``above`` are the objects that hold it."""
    parts = None if id(value) in above or len(above) > _DEEPEST else _parts(value)
    if parts is not None:
        for path, item in parts:
            yield from results_of(item, name + path, (*above, id(value)))
    elif isinstance(value, Gradients):
        for key, parameter in value.parameters.items():
            yield Result(f"grad({key})", "gradient", placed_as(value[key], parameter), of=parameter)
    elif isinstance(value, torch.Tensor):
        yield Result(name, "tensor", value)
    elif type(value) in _NUMBERS and _known(value) is None:
        yield Result(name, "number", value, _NUMBERS[type(value)])
    else:
        yield _single(value, name)


_NUMBERS: Final = {torch.SymInt: "an int", torch.SymFloat: "a float", torch.SymBool: "a bool"}


def placed_as(gradient: Any, parameter: Any) -> Any:
    """A DTensor's gradient in the placements of its parameter, as an optimizer would use it."""
    if not hasattr(gradient, "placements") or gradient.placements == parameter.placements:
        return gradient
    return gradient.redistribute(placements=parameter.placements)


def _known(number: Any) -> bool | int | float | None:
    """What PyTorch knows a number to be; None where only the data decides it."""
    kind = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(number)]
    known: bool | int | float | None = getattr(number.node, f"maybe_as_{kind}")()
    return known


def _single(value: Any, name: str) -> Result:
    origin = origin_of(value) if is_shown(value) else None
    if origin is not None:
        return Result(name, "array", origin)
    constant = None if is_shown(value) else constant_of(value) or _constant_array(value)
    if constant is None:
        return Result(name, "opaque", _described(value))
    if constant.is_number:
        return Result(name, "constant", constant, f"{_article(type(constant.value).__name__)}")
    if isinstance(value, str) and _holds_unread(value):
        return Result(name, "opaque", "a text with numbers that depend on the inputs")
    return Result(name, "constant", constant)


def _holds_unread(text: str) -> bool:
    """Whether a text may have been made of numbers that a recording does not have."""
    recorder = state.current_recorder()
    return bool(_UNREAD.search(text)) or ("?" in text and recorder is not None and SHOWN in recorder.assumed)


def constant_of(value: Any) -> Constant | None:
    """A value that depends on nothing; None for any other."""
    number = value.item() if _is_numpy_scalar(value) else value
    if type(value) in _NUMBERS:
        number = _known(value)
    if isinstance(number, bool | int | float):
        return Constant(number, repr(number))
    if number is None:
        return NOTHING
    if isinstance(number, enum.Enum):
        return Constant(None, f"{type(number).__qualname__}.{number.name}")
    if isinstance(number, torch.device):
        return Constant(None, f"device {number.type}")  # its number is the rank's own
    if isinstance(number, _PLAIN):
        return Constant(None, repr(number))
    if isinstance(number, Set):
        items = [constant_of(item) for item in number]
        if all(item is not None for item in items):
            return Constant(None, f"{{{', '.join(sorted(item.text for item in items if item is not None))}}}")
    return None


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _constant_array(value: Any) -> Constant | None:
    """A numpy array that the program made of its own numbers."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        return None
    listed = repr(value.tolist())
    if value.size > _LISTED:
        listed = f"of shape {list(value.shape)}, {hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    return Constant(None, f"array {listed}")


def _parts(value: Any) -> Iterable[tuple[str, Any]] | None:
    """The values that a container holds, each with the end of its name; None for what is no container."""
    if is_shown(value) or isinstance(value, (Gradients, torch.Tensor, *_NO_RESULTS)):
        return None
    if isinstance(value, Mapping):
        return ((f'["{key}"]', item) for key, item in value.items())
    if isinstance(value, tuple | list | deque | KeysView | ValuesView):
        return ((f"[{index}]", item) for index, item in enumerate(value))
    if isinstance(value, Set):
        return (("{0}", item) for item in value) if len(value) == 1 and constant_of(value) is None else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return ((f".{key}", item) for key, item in _attributes(value)) if _is_own(value) else None


def _is_own(value: Any) -> bool:
    """Whether a value is an object of a class of the program's own, which says what it is by its attributes."""
    kind = type(value)
    if isinstance(value, types.SimpleNamespace):
        return True
    if isinstance(value, Callable | Exception | enum.Enum | Iterator) or kind.__module__ in sys.stdlib_module_names:  # type: ignore[arg-type]
        return False
    return _is_of_program(kind) and not any(_is_of_library(base) for base in kind.__mro__[1:])


def _is_of_program(kind: type) -> bool:
    file = file_of(sys.modules.get(kind.__module__))
    return kind.__module__ != "builtins" and kind.__flags__ & 1 << 9 != 0 and not (file and is_installed(file))


def _is_of_library(base: type) -> bool:
    """Whether a class belongs to PyTorch or another installed package: its objects are more than their attributes."""
    file = file_of(sys.modules.get(base.__module__))
    return bool(file) and is_installed(file)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if key not in ("__dict__", "__weakref__") and hasattr(value, key):
                yield key, getattr(value, key)


def _described(value: Any) -> str:
    if is_shown(value):
        return "an array that numpy makes of what depends on the inputs"
    if isinstance(value, Set):
        return f"a set of {len(value)}, which has no order"
    return _article(type(value).__qualname__)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
