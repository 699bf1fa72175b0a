"""Values of Python at places of the user's files: noted while a program is recorded, or another one put in the place of one of them.

The places are compiled as calls of :func:`probed`, which gives back what it is given, but for the one place where something else is ``put``.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

from graphguard.ir.puts import SPECIFICATION, TENSOR, Put

NAME: Final = "__graphguard_probed__"
MOST: Final = 12  # values of one place that a program is asked for
_NAMES: Final = 40  # of the values in sight of a place
_LONG: Final = 24  # characters of a text that is one of them

Place: TypeAlias = tuple[int, int, int, int]
"""Where an expression stands: its first line and column, its last line, and the column behind it, as ``ast`` counts them."""

Numbered: TypeAlias = tuple[int, bool]
"""The number of a place, and whether nothing but its truth is asked."""

Observed: TypeAlias = tuple[int, int, Any, Mapping[str, Any]]
"""A value as it was noted: the program (the specification's number is -1), the number of the place, the value (of a tensor, :data:`~graphguard.ir.puts.TENSOR`), and what is in sight of it by name."""


@dataclass(slots=True)
class Probes:
    """Places of files by their paths, each with its number, and what is put at one of them; ``observed`` is what was seen at them, once all is recorded."""

    places: Mapping[str, Mapping[Place, Numbered]]
    put: Put | None = None
    observed: list[Observed] = field(default_factory=list)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Probes:
        """What a request says: ``{"places": [[path, line, column, end line, end column, asked], ...], "put": {...} or None}``."""
        places: dict[str, dict[Place, Numbered]] = {}
        for number, (path, *place) in enumerate(plain["places"]):
            line, column, end_line, end_column, asked = place
            places.setdefault(path, {})[line, column, end_line, end_column] = number, asked
        put = plain.get("put")
        return cls(places, None if put is None else Put.of(put))


_set: Probes | None = None
_program = SPECIFICATION
_times: Counter[int] = Counter()
_writes: Counter[int] = Counter()
_observed: list[Observed] = []


def probe(probes: Probes) -> None:
    """From now on the files that this process imports, and those forked from it, are compiled with these places."""
    global _set
    _set = probes
    setattr(builtins, NAME, probed)


def begin(program: int) -> None:
    """What follows is this program's."""
    global _program
    _program = program
    _times.clear()
    _writes.clear()
    _observed.clear()


def observed() -> tuple[Observed, ...]:
    """What the program's places held, in order."""
    return tuple(
        (program, place, value.noted() if isinstance(value, _Tensor) else value, sight)
        for program, place, value, sight in _observed
    )


def is_probed(path: str) -> bool:
    """Whether a file has places that are noted."""
    return _set is not None and path in _set.places


def compiled(tree: ast.Module | bytes, path: str) -> ast.Module | bytes:
    """A file with its places, if any, as calls of :func:`probed`."""
    places = _set.places.get(path) if _set is not None else None
    if not places:
        return tree
    parsed = ast.parse(tree, path) if isinstance(tree, bytes) else tree
    changed: ast.Module = ast.fix_missing_locations(_Probing(dict(places)).visit(parsed))
    return changed


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor at a place, and how often its memory had been written then."""

    held: Any
    version: int
    learns: bool

    def noted(self) -> list[Any]:
        """What is said of it, once the program has been run."""
        return [TENSOR, _written(self.held) != self.version, self.learns]


class _Probing(ast.NodeTransformer):
    def __init__(self, places: dict[Place, Numbered]) -> None:
        self._places = places

    def visit(self, node: ast.AST) -> Any:
        numbered = None
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            place = node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0
            numbered = self._places.pop(place, None)  # what is compiled as our calls stands where its parts do
        visited = self.generic_visit(node)
        if numbered is None:
            return visited
        assert isinstance(node, ast.expr)
        called = ast.Call(ast.Name(NAME, ast.Load()), [*map(ast.Constant, numbered), node], [])
        return ast.copy_location(called, node)


def probed(place: int, asked: bool, value: Any) -> Any:
    """The value of a place, or what is put there."""
    if asked and (value is None or type(value) in (int, str, list, tuple, dict)):
        value = bool(value)
    if _set is None:
        return value
    if _is_tensor(value):
        return _probed_tensor(_set, place, value)
    if type(value) not in (bool, int, float):  # and no number that notes what is asked of it
        return value
    time = _times[place]
    _times[place] += 1
    put = _set.put
    if put is None:
        if time < MOST:
            _observed.append((_program, place, value, _in_sight(sys._getframe(1))))  # noqa: SLF001 - the caller's names
        return value
    if put.place != place:
        return value
    return put.value(_program, time, value, _in_sight(sys._getframe(1)))  # noqa: SLF001 - the same


def _probed_tensor(probes: Probes, place: int, value: Any) -> Any:
    if value.is_inference():
        return value  # counts no writes
    if probes.put is not None:
        return probes.put.tensor(_program, value) if probes.put.place == place else value
    if _times[place] < MOST:
        _observed.append((_program, place, _Tensor(value, _written(value), value.requires_grad), {}))
    _times[place] += 1
    return value


def wrote(value: Any) -> None:
    """A collective writes the tensors in nested lists, which PyTorch's own count does not say."""
    if _set is None:
        return
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            wrote(each)
    elif _is_tensor(value):
        _writes[_memory(value)] += 1


def _written(tensor: Any) -> int:
    """How often a tensor's memory has been written."""
    return int(tensor._version) + _writes[_memory(tensor)]  # noqa: SLF001 - PyTorch has no other name


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the same


def _is_tensor(value: Any) -> bool:
    """Whether something is a tensor, or does as one; torch is not imported for that, as commands read this file too."""
    return hasattr(type(value), "__torch_function__")


def _in_sight(frame: FrameType) -> dict[str, Any]:
    """Plain values by name: the function's own, and what its objects keep."""
    names = frame.f_locals
    found = {name: value for name, value in names.items() if _is_shown(name, value)}
    for name, value in names.items():
        kept = getattr(value, "__dict__", None) if name.isidentifier() and _is_theirs(value) else None
        for attribute, held in kept.items() if isinstance(kept, dict) else ():
            if _is_shown(attribute, held):
                found[f"{name}.{attribute}"] = held
        if len(found) >= _NAMES:
            break
    return found


def _is_theirs(value: Any) -> bool:
    """Whether an object keeps what a user gave it: no class or module, and no tensor, which keeps what the recording needs."""
    return not isinstance(value, type | ModuleType) and not _is_tensor(value)


def _is_shown(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        return False
    return value is None or type(value) in (bool, int) or (type(value) is str and len(value) <= _LONG)
