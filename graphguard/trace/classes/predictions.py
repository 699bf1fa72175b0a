"""The graphs of ranks that were not recorded: the skeleton of those that were, with every hole fitted on them."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from graphguard.ir.graph import Constant, Graph
from graphguard.trace.classes.forms import Coordinates, Form, fitted
from graphguard.trace.classes.templates import Hole, Template, UnlikeError, is_same
from graphguard.trace.graph.meetings import Stop

# Elements of a literal tensor that differs between ranks.
_LARGEST: Final = 4096
_CODES: Final = {"float32": "f", "float64": "d", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B"}


class Mapped:
    """Where ranks are on a mesh of these sizes, the last axis varying fastest."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.count = math.prod(sizes)

    def place(self, rank: int) -> Coordinates:
        """The coordinates of a rank."""
        found = []
        for size in reversed(self.sizes):
            rank, at = divmod(rank, size)
            found.append(at)
        return tuple(reversed(found))

    def rank(self, place: Sequence[int]) -> int:
        """The rank at these coordinates; raises ``UnlikeError`` outside of the mesh."""
        rank = 0
        for size, at in zip(self.sizes, place, strict=True):
            if not 0 <= at < size:
                raise UnlikeError
            rank = rank * size + at
        return rank


class Class:
    """Ranks of one skeleton: every hole as a function of a rank, where one was found; raises ``UnlikeError`` where not all were."""

    def __init__(self, templates: Mapping[int, Template], mesh: Mapped) -> None:
        self._mesh = mesh
        self._ranks = tuple(templates)
        self._known: dict[Any, Any] = {}
        first = next(iter(templates.values()))
        self._base = first
        if any(other.skeleton != first.skeleton for other in templates.values()):
            raise UnlikeError
        self._functions: dict[int, list[Any]] = {}
        for unit, holes in enumerate(first.holes):
            each = [one.holes[unit] for one in templates.values()]
            functions = [self._function([row[at] for row in each]) for at in range(len(holes))]
            if any(function is not None for function in functions):
                self._functions[unit] = functions

    def filled(self, rank: int) -> list[Sequence[Any]]:
        """What stands in the holes on a rank; raises ``UnlikeError``."""
        numbers: list[Sequence[Any]] = []
        for unit, holes in enumerate(self._base.holes):
            functions = self._functions.get(unit)
            own = [value for _, value in holes]
            if functions is not None:
                own = [
                    value if function is None else self._at(function, rank)
                    for value, function in zip(own, functions, strict=True)
                ]
            numbers.append(own)
        return numbers

    def graph(self, rank: int) -> tuple[Graph, tuple[Stop, ...]]:
        """The graph of a rank, and its stops; raises ``UnlikeError``."""
        return self._base.filled(self.filled(rank), self._functions)

    def foretells(self, rank: int, template: Template) -> bool:
        """Whether a rank that was recorded is what would have been said of it."""
        if template.skeleton != self._base.skeleton:
            return False
        try:
            numbers = self.filled(rank)
        except UnlikeError:
            return False
        return all(
            is_same(value, own)
            for row, holes in zip(numbers, template.holes, strict=True)
            for value, (_, own) in zip(row, holes, strict=True)
        )

    def _at(self, function: Any, rank: int) -> Any:
        key = (id(function), rank)
        if key not in self._known:
            self._known[key] = function(rank)
        return self._known[key]

    def _function(self, holes: Sequence[Hole]) -> Any:
        """A hole by rank; None where it is the same on all."""
        kinds, values = {kind for kind, _ in holes}, [value for _, value in holes]
        if len(kinds) > 1:
            raise UnlikeError
        if all(is_same(value, values[0]) for value in values):
            if len(values) < 2:
                raise UnlikeError
            return None
        (kind,) = kinds
        key = (kind, tuple(value.digest if type(value) is Constant else value for value in values))
        if key not in self._known:
            self._known[key] = self._fit(kind, values)
        return self._known[key]

    def _fit(self, kind: str, values: Sequence[Any]) -> Any:
        if kind == "tensor":
            return self._tensor(values)
        if kind == "group":
            if len({len(value) for value in values}) > 1:
                raise UnlikeError
            members = [self._rank([value[at] for value in values]) for at in range(len(values[0]))]
            return lambda rank: tuple(each(rank) for each in members)
        if kind == "rank":
            return self._rank(values)
        form = self._form(values)
        if kind == "float":
            return lambda rank: float(form(self._mesh.place(rank)))
        return lambda rank: _whole(form(self._mesh.place(rank)))

    def _rank(self, values: Sequence[int]) -> Any:
        """A rank: its number, or else its coordinates one by one."""
        try:
            form = self._form(values)
        except UnlikeError:
            places = [self._mesh.place(value) for value in values]
            forms = [self._form([place[axis] for place in places]) for axis in range(len(self._mesh.sizes))]
            return lambda rank: self._mesh.rank([_whole(each(self._mesh.place(rank))) for each in forms])
        return lambda rank: _whole(form(self._mesh.place(rank)))

    def _form(self, values: Sequence[Any]) -> Form:
        return form_of(dict(zip(self._ranks, values, strict=True)), self._mesh)

    def _tensor(self, values: Sequence[Constant]) -> Any:
        first = values[0]
        code = _CODES.get(first.type.dtype)
        data = [value.data for value in values]
        if (
            code is None
            or any(one is None or len(one) != len(data[0] or b"") for one in data)
            or len({value.type for value in values}) > 1
        ):
            raise UnlikeError
        count = len(data[0] or b"") // struct.calcsize(code)
        if count > _LARGEST:
            raise UnlikeError
        rows = [struct.unpack(f"<{count}{code}", one or b"") for one in data]
        forms = [self._form([row[at] for row in rows]) for at in range(count)]

        def at(rank: int) -> Constant:
            place = self._mesh.place(rank)
            numbers = [float(form(place)) if code in "fd" else _whole(form(place)) for form in forms]
            try:
                new = struct.pack(f"<{count}{code}", *numbers)
            except struct.error as error:
                raise UnlikeError from error
            return Constant(first.type, hashlib.sha256(repr(first.type).encode() + new).hexdigest(), new)

        return at


def form_of(numbers: Mapping[int, Any], mesh: Mapped) -> Form:
    """A number as a function of coordinates, from what it is on some ranks; raises ``UnlikeError`` where there is none."""
    if any(type(each) is float and not math.isfinite(each) for each in numbers.values()):
        raise UnlikeError
    form = fitted({mesh.place(rank): Fraction(each) for rank, each in numbers.items()}, mesh.sizes)
    if form is None:
        raise UnlikeError
    return form


def _whole(number: Fraction) -> int:
    if number.denominator != 1:
        raise UnlikeError
    return int(number)
