"""A rank is recorded once more, to be asked which ranks run the same program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from graphguard.trace.claims.placements import Mesh
from graphguard.trace.classes.asking import Asking
from graphguard.trace.classes.calls import Following
from graphguard.trace.classes.numbers import Number, Sounding, on
from graphguard.trace.classes.plan import Sounded
from graphguard.trace.classes.predictions import Mapped


class Plain:
    """A rank of a mesh that is recorded as it is."""

    def __init__(self, rank: int, mesh: dict[str, int]) -> None:
        self.mesh = Mesh.of_rank(mesh, rank)

    def begun(self) -> AbstractContextManager[None]:
        """Nothing is different inside."""
        return nullcontext()

    def found(self) -> None:
        """It was not asked which ranks run the same program."""


class _Seen(Mesh):
    """The mesh as all ranks see it at once."""

    def members(self, axis: str) -> tuple[int, ...]:
        return _Members(super().members(axis))


class _Members(tuple[Any, ...]):
    """Ranks along an axis; whether they are those of a group is asked of each rank as a whole."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple):
            return NotImplemented
        sounding = next((one.sounding for one in (*self, *other) if type(one) is Number), None)
        if sounding is None:
            return tuple.__eq__(self, other)
        return bool(sounding.keep({rank: on(tuple(self), rank) == on(tuple(other), rank) for rank in sounding.alike}))

    __hash__ = tuple.__hash__


class Soundings:
    """The sounding of one rank of a mesh, in a process that does nothing after it."""

    def __init__(self, rank: int, mesh: dict[str, int]) -> None:
        sizes = Mapped(tuple(mesh.values()))
        self._sounding = Sounding(rank, range(sizes.count))
        places = [sizes.place(each) for each in range(sizes.count)]
        coordinates: dict[str, Any] = {
            axis: self._sounding.number({each: place[at] for each, place in enumerate(places)})
            for at, axis in enumerate(mesh)
        }
        self.mesh: Mesh = _Seen(dict(mesh), coordinates)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Inside, the program is answered with numbers that know all ranks; process groups are there, and a recorder."""
        following = Following(self._sounding)
        Asking(self._sounding).install(following)
        with following:
            yield

    def found(self) -> Sounded:
        """What came of it."""
        one = self._sounding
        rows = dict.fromkeys(
            tuple(values[rank] for rank in one.alike)
            for values in one.literals
            if len({values[rank] for rank in one.alike}) > 1
        )
        literals = tuple(dict(zip(one.alike, row, strict=True)) for row in rows)
        return Sounded(one.alike, literals, one.split, one.unfollowed)
