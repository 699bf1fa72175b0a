"""Groups, peers and roots of collectives as digits and programs, looked at on every rank."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.ops import gg
from graphguard.relations.algebra import Unsupported

Coordinates: TypeAlias = tuple[int, ...]

#: Where collectives name a rank.
RANKED: Final = {gg.send: 1, gg.recv: 0, gg.broadcast: 1}
FOLLOWED: Final = {*RANKED, gg.all_reduce, gg.all_gather, gg.reduce_scatter, gg.all_to_all, gg.barrier}


@dataclass(frozen=True, slots=True)
class Span:
    """What a group of a collective is made of: the digits that it runs over, and the programs, in the order of the group.

    ``order`` has its members by program and place, where it runs over several programs and places: two groups of the same ranks in another order are two.
    """

    digits: tuple[int, ...]
    programs: tuple[int, ...]
    order: tuple[tuple[int, Coordinates], ...] = ()


def place_of(mesh: Sequence[tuple[str, int]], rank: int) -> Coordinates:
    """Where a rank is on a mesh."""
    found = []
    for _, size in reversed(mesh):
        rank, at = divmod(rank, size)
        found.append(at)
    return tuple(reversed(found))


def program_of(mesh: Sequence[tuple[str, int]], others: Sequence[int], rank: int) -> int:
    """The number of the program that a rank runs."""
    place, number = place_of(mesh, rank), 0
    for axis in others:
        number = number * mesh[axis][1] + place[axis]
    return number


def same_argument(one: object, other: object) -> bool:
    """Whether two arguments are equal, to their types and the sign of nothing."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_argument, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else one == other


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups and peers of collectives as digits and programs; what is ``known`` of groups is not worked out again."""

    mesh: tuple[tuple[str, int], ...]
    digits: tuple[int, ...]
    others: tuple[int, ...]
    known: dict[tuple[Arg, ...], tuple[Span, frozenset[Arg]]] = field(default_factory=dict)

    def span(self, ranks: Sequence[int], calls: Sequence[Node]) -> Span:
        """What the groups of a call are on all ranks of a program; raises ``Unsupported`` where they are of no whole digits, or differ."""
        found = self._span(ranks[0], calls[0])
        for rank, call in zip(ranks, calls, strict=True):
            if self._span(rank, call) != found:
                raise Unsupported("groups that differ between ranks of one program")
            self._check(rank, call, calls[0])
        return found

    def _span(self, rank: int, call: Node) -> Span:
        group = call.args[-1]
        assert isinstance(group, tuple)
        if group not in self.known:
            self.known[group] = self._taken_apart(group), frozenset(group)
        span, members = self.known[group]
        if rank not in members:
            raise Unsupported("a collective on a group that the rank is not in")
        return span

    def _taken_apart(self, group: tuple[Arg, ...]) -> Span:
        """The digits and programs of a group: all places of these digits for each of the programs, the last digit fastest."""
        members = [member for member in group if isinstance(member, int)]
        if len(members) < len(group) or min(members) < 0 or max(members) >= math.prod(size for _, size in self.mesh):
            raise Unsupported("a group of more ranks than there are")
        own = [self._digits(member) for member in members]
        moved = tuple(d for d in range(len(self.digits)) if len({at[d] for at in own}) > 1)
        runs = [program_of(self.mesh, self.others, member) for member in members]
        programs = tuple(dict.fromkeys(runs))
        places = [
            tuple(dict(zip(moved, row, strict=True)).get(d, at) for d, at in enumerate(own[0]))
            for row in itertools.product(*(range(self.mesh[self.digits[d]][1]) for d in moved))
        ]
        wanted = [(program, place) for program in programs for place in places]
        found = list(zip(runs, own, strict=True))
        mixed = len(programs) > 1 and len(places) > 1  # of these only totals are followed, which have no order
        if (sorted(found) != sorted(wanted)) if mixed else (found != wanted):
            raise Unsupported("a group that is none of whole axes in their order")
        order = [(program, tuple(place[d] for d in moved)) for program, place in found]
        return Span(moved, programs, tuple(order) if mixed else ())

    def _digits(self, rank: int) -> Coordinates:
        place = place_of(self.mesh, rank)
        return tuple(place[axis] for axis in self.digits)

    def _check(self, rank: int, call: Node, first: Node) -> None:
        """Raise ``Unsupported`` where the collective of a rank differs from that of the first in more than its group, and its peer or root."""
        ranked = RANKED.get(call.op)
        for at, (one, other) in enumerate(zip(call.args[:-1], first.args[:-1], strict=True)):
            both_read = isinstance(one, Var) and isinstance(other, Var)  # which tensor, the program's calls say
            if at != ranked and not both_read and not same_argument(one, other):
                raise Unsupported("collectives that differ between ranks of one program")
        if ranked is None:
            return
        peer, its = call.args[ranked], first.args[ranked]
        assert isinstance(peer, int)
        assert isinstance(its, int)
        if program_of(self.mesh, self.others, peer) != program_of(self.mesh, self.others, its):
            raise Unsupported("ranks of one program with peers of several")
        if call.op != gg.broadcast and self._digits(peer) != self._digits(rank):
            raise Unsupported("a message to another place of an axis")
        span, members = self.known[call.args[-1]]  # type: ignore[index]
        if peer not in members:
            raise Unsupported("a peer outside of the group")
        roots = [self._digits(each)[digit] for digit in span.digits for each in (peer, its)]
        if call.op == gg.broadcast and roots[::2] != roots[1::2]:
            raise Unsupported("a broadcast from several places")
