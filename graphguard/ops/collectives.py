"""The collectives, declared once: what a call names, and of what every member puts in each of the results is made.

All who follow a collective ask here: validity, joining, orders in memory, evaluation, replay on numbers, extents, and diagnosis.
Their forms in a graph stand in :mod:`graphguard.ir.graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")


class Place(NamedTuple):
    """A tensor of one member: its operand or, where ``taken``, its result at a position; members are counted in group order."""

    member: int
    position: int
    taken: bool = False

    def of(self, node: Any) -> Any:
        """The variable at this place of the member's call; raises ``IndexError`` where it has none."""
        return (node.outs if self.taken else node.reads)[self.position]


class Made(NamedTuple):
    """What a result is made of: one operand that is handed on or, where ``reduced``, one of every member."""

    places: tuple[Place, ...]
    reduced: bool = False


#: (position of the member, number of members, position of the root) to what each of the member's results is made of.
Making = Callable[[int, int, int], tuple[Made, ...]]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective.

    ``arguments`` names the positional ones: ``x`` (a tensor) or ``xs`` (one for every member), ``reduce``, ``root`` or ``peer`` (a global rank), ``tag``, ``group``.
    ``alike`` says that a member's result has the type of its own operand; ``counts`` that PyTorch asks for equal numbers of elements only, and not for equal shapes.
    """

    arguments: str
    made: Making
    alike: bool = False
    counts: bool = False

    @property
    def reduces(self) -> bool:
        """Whether anything is added up."""
        return self.names("reduce")

    @property
    def is_message(self) -> bool:
        """Whether one rank sends and another receives, each by an operator of its own."""
        return self.names("peer")

    def names(self, argument: str) -> bool:
        """Whether a call has an argument of this name."""
        return argument in self.arguments.split()

    def argument(self, name: str, args: Sequence[Any]) -> Any:
        """The argument of that name among a call's positional ones."""
        return args[self.arguments.split().index(name)]

    def root(self, args: Sequence[Any], group: Sequence[int]) -> int:
        """Where in the group the root of a call stands; 0 where it has none."""
        return group.index(self.argument("root", args)) if self.names("root") else 0


@lru_cache(maxsize=256)
def _each(position: int, members: int) -> tuple[Made, ...]:
    """One result of every member's operand at a position."""
    return tuple(Made((Place(other, position),)) for other in range(members))


@lru_cache(maxsize=256)
def _total(position: int, members: int) -> tuple[Made, ...]:
    """One result, made of all members' operands at a position."""
    return (Made(tuple(Place(other, position) for other in range(members)), reduced=True),)


@lru_cache(maxsize=256)
def _one(member: int, position: int) -> tuple[Made, ...]:
    """One result, a member's operand at a position."""
    return (Made((Place(member, position),)),)


COLLECTIVE: Final[dict[str, Collective]] = {
    "gg.all_reduce": Collective("x reduce group", lambda me, n, root: _total(0, n), alike=True, counts=True),
    "gg.all_gather": Collective("x group", lambda me, n, root: _each(0, n)),
    "gg.reduce_scatter": Collective("xs reduce group", lambda me, n, root: _total(me, n)),
    "gg.all_to_all": Collective("xs group", lambda me, n, root: _each(me, n), counts=True),
    "gg.broadcast": Collective("x root group", lambda me, n, root: _one(root, 0), alike=True, counts=True),
    "gg.reduce": Collective(
        "x root reduce group",
        lambda me, n, root: _total(0, n) if me == root else _one(me, 0),
        alike=True,
        counts=True,
    ),
    "gg.gather": Collective("x root group", lambda me, n, root: _each(0, n) if me == root else ()),
    "gg.scatter": Collective("xs root group", lambda me, n, root: _one(root, me)),
    # A send and its receive are one call of two members, the source and the destination.
    "gg.send": Collective("x peer tag group", lambda me, n, root: _one(0, 0) if me else (), counts=True),
    "gg.recv": Collective("peer tag group", lambda me, n, root: _one(0, 0) if me else (), counts=True),
    "gg.barrier": Collective("group", lambda me, n, root: ()),
}
"""Every collective by the name of its operator."""


@lru_cache(maxsize=256)
def linked(op: str, members: int, root: int = 0) -> tuple[tuple[Place, Place], ...]:
    """Pairs of tensors that are of one shape: what elements go from and to, and what is added up with what."""
    pairs: dict[tuple[Place, Place], None] = {}
    for member in range(members):
        if COLLECTIVE[op].alike:
            pairs[Place(member, 0), Place(member, 0, taken=True)] = None
        for position, (places, _) in enumerate(COLLECTIVE[op].made(member, members, root)):
            pairs.update(((places[0], other), None) for other in places[1:])
            pairs[places[0], Place(member, position, taken=True)] = None
    return tuple(pairs)


def exchanged(
    op: str, members: int, root: int, given: Callable[[int, int], T], reduced: Callable[[int, list[T]], T]
) -> list[list[T]]:
    """What every member receives.

    ``given(member, position)`` is an operand of a member, ``reduced(member, values)`` makes one of many for that member.
    """
    received: list[list[T]] = []
    before: tuple[Made, ...] | None = None
    for member in range(members):
        results = COLLECTIVE[op].made(member, members, root)
        if results is not before:  # what all members get alike is one object
            mine = [
                reduced(member, [given(place.member, place.position) for place in places])
                if sums
                else given(places[0].member, places[0].position)
                for places, sums in results
            ]
        received.append(mine)
        before = results
    return received


class _Names:
    """The collectives' names by attribute, ``gg.all_reduce``: one that is not declared is an error where it is written."""

    def __getattr__(self, name: str) -> str:
        op = f"gg.{name}"
        if op not in COLLECTIVE:
            raise AttributeError(f"{op} is no collective")
        setattr(self, name, op)
        return op


gg: Final = _Names()


def collectives(holds: Callable[[Collective], object]) -> frozenset[str]:
    """The collectives of which something holds."""
    return frozenset(name for name, collective in COLLECTIVE.items() if holds(collective))


REDUCTIONS: Final = collectives(lambda collective: collective.reduces)
MESSAGES: Final = collectives(lambda collective: collective.is_message)
EXCHANGES: Final = collectives(lambda collective: len(collective.made(0, 2, 1)) == 2)
"""Those that give every member one tensor of each."""
