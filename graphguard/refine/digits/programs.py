"""Which ranks run one program, exactly: every call of every rank is compared with those of one rank.

Ranks of a program read the same leaves and make the same tensors in the same order.  Calls may differ in numbers, in which result of a call they read, and in the order of a list;
every rank's own call is kept where it is not that of the first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from graphguard.ir import Capture, Constant, Graph, Node, TensorType, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.ops import gg
from graphguard.refine.stages.flow import labelled
from graphguard.relations.algebra import Unsupported

Coordinates: TypeAlias = tuple[int, ...]

#: Digits are worth their while where they stand for so many ranks each.
_FEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Span:
    """What a group of a collective is made of: the digits that it runs over, and the programs, in the order of the group.

    ``order`` has its members by program and place, where it runs over several programs and places: two groups of the same ranks in another order are two.
    """

    digits: tuple[int, ...]
    programs: tuple[int, ...]
    order: tuple[tuple[int, Coordinates], ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What the ranks at one place of the axes that are no digits run.

    ``graph`` is that of the first rank; ``ranks`` are all of them, the last digit varying fastest.  ``unlike`` has the calls of all ranks where some differ, ``literals`` the
    literal tensors; ``spans`` the groups of collectives, by call.  ``outputs`` and ``labels`` have the variables of all ranks, by name.
    """

    graph: Graph
    place: Coordinates
    ranks: tuple[int, ...]
    unlike: dict[int, tuple[Node, ...]]
    literals: dict[Var, tuple[Constant, ...]]
    spans: dict[int, Span]
    outputs: dict[str, tuple[Var, ...]]
    labels: dict[str, tuple[Var, ...]]


@dataclass(frozen=True, slots=True)
class Quotient:
    """A job by programs: ``digits`` are the axes along which all ranks run the same one, of these ``sizes``; ``others`` the axes whose places have a program each."""

    mesh: tuple[tuple[str, int], ...]
    digits: tuple[int, ...]
    others: tuple[int, ...]
    programs: tuple[Program, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many places every digit has."""
        return tuple(self.mesh[axis][1] for axis in self.digits)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """One graph for every program; groups and peers are numbers of programs."""
        return tuple(map(self._graph, self.programs))

    def _graph(self, program: Program) -> Graph:
        nodes = list(program.graph.nodes)
        for index, span in program.spans.items():
            nodes[index] = self._joint(nodes[index], span)
        return replace(program.graph, nodes=tuple(nodes))

    def _joint(self, node: Node, span: Span) -> Node:
        args: list[Arg] = [*node.args[:-1], span.programs]
        if node.op in _RANKED:
            rank = args[_RANKED[node.op]]
            assert isinstance(rank, int)
            args[_RANKED[node.op]] = program_of(self.mesh, self.others, rank)
        return replace(node, args=tuple(args))


#: Where collectives name a rank.
_RANKED: Final = {gg.send: 1, gg.recv: 0, gg.broadcast: 1}
_FOLLOWED: Final = {*_RANKED, gg.all_reduce, gg.all_gather, gg.reduce_scatter, gg.all_to_all, gg.barrier}


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


def quotient(capture: Capture) -> Quotient:
    """A capture by programs; raises ``Unsupported`` where there are as many as ranks, or where a collective's group is none of whole digits."""
    mesh = tuple(capture.mesh.items())
    if len(capture.ranks) != capture.world_size:
        raise Unsupported("not all ranks were captured")
    if any(node.op in COLLECTIVES and node.op not in _FOLLOWED for graph in capture.ranks for node in graph.nodes):
        raise Unsupported("a collective that is not followed along digits")
    kinds = _kinds(capture.ranks)
    digits = tuple(axis for axis in range(len(mesh)) if mesh[axis][1] > 1 and _is_digit(mesh, kinds, axis))
    if math.prod(mesh[axis][1] for axis in digits) < _FEWEST:
        raise Unsupported("every rank runs a program of its own")
    others = tuple(axis for axis in range(len(mesh)) if axis not in digits)
    members: dict[int, list[int]] = {}
    for rank in range(len(capture.ranks)):
        members.setdefault(program_of(mesh, others, rank), []).append(rank)
    grouping = _Grouping(mesh, digits, others)
    programs = tuple(
        _program(capture.ranks, grouping, tuple(place_of(mesh, ranks[0])[axis] for axis in others), ranks)
        for _, ranks in sorted(members.items())
    )
    return Quotient(mesh, digits, others, programs)


def _is_digit(mesh: Sequence[tuple[str, int]], kinds: Sequence[int], axis: int) -> bool:
    """Whether ranks that differ in one coordinate are of one kind."""
    inside = math.prod(size for _, size in mesh[axis + 1 :])
    step = inside * mesh[axis][1]
    return all(kinds[rank] == kinds[rank - rank % step + rank % inside] for rank in range(len(kinds)))


def _kinds(graphs: Sequence[Graph]) -> list[int]:
    """For every graph the number of the first that it is like."""
    firsts: dict[object, list[int]] = {}
    kinds: list[int] = []
    for number, graph in enumerate(graphs):
        alike = firsts.setdefault((len(graph.nodes), tuple(node.op for node in graph.nodes)), [])
        found = next((first for first in alike if _alike(graphs[first], graph)), None)
        if found is None:
            alike.append(number)
        kinds.append(number if found is None else found)
    return kinds


def _alike(first: Graph, other: Graph) -> bool:
    """Whether two graphs make the same tensors from the same leaves by calls of the same operators, and give the same outputs."""
    if first is other:
        return True
    if first.symbols or other.symbols or len(first.nodes) != len(other.nodes):
        return False
    if first.inputs != other.inputs or first.outputs.keys() != other.outputs.keys():
        return False
    if list(first.constants) != list(other.constants) or not _same_types(first.types, other.types):
        return False
    return all(one is two or _same_call(one, two) for one, two in zip(first.nodes, other.nodes, strict=True))


def _same_types(one: dict[Var, TensorType], other: dict[Var, TensorType]) -> bool:
    return one is other or (
        len(one) == len(other)
        and all(
            var in other and (kind is other[var] or (kind.shape, kind.dtype) == (other[var].shape, other[var].dtype))
            for var, kind in one.items()
        )
    )


def _same_call(one: Node, other: Node) -> bool:
    """Whether two calls differ in their positional arguments at most, and there in no more than numbers, lists and tensors."""
    return (
        one.op == other.op
        and one.outs == other.outs
        and one.phase == other.phase
        and one.draw == other.draw
        and same_argument(tuple(one.kwargs.items()), tuple(other.kwargs.items()))
        and len(one.args) == len(other.args)
        and all(_same_sort(a, b) for a, b in zip(one.args, other.args, strict=True))
    )


def _same_sort(one: Arg, other: Arg) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other)
    return isinstance(one, int | Var) and not isinstance(one, bool) or same_argument(one, other)


def same_argument(one: object, other: object) -> bool:
    """Whether two arguments are equal, to their types and the sign of nothing."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_argument, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else one == other


def _program(graphs: Sequence[Graph], grouping: _Grouping, place: Coordinates, ranks: Sequence[int]) -> Program:
    own = [graphs[rank] for rank in ranks]
    first = own[0]
    unlike: dict[int, tuple[Node, ...]] = {}
    spans: dict[int, Span] = {}
    for index, node in enumerate(first.nodes):
        calls = tuple(graph.nodes[index] for graph in own)
        if node.op in COLLECTIVES:
            spans[index] = grouping.span(ranks, calls)
        elif any(call is not node and not same_argument(call.args, node.args) for call in calls[1:]):
            unlike[index] = calls
    literals = {
        var: tuple(graph.constants[var] for graph in own)
        for var, constant in first.constants.items()
        if any(graph.constants[var] != constant for graph in own)
    }
    outputs = {name: tuple(graph.outputs[name] for graph in own) for name in first.outputs}
    named = [labelled(graph) for graph in own]
    shared = set(named[0]).intersection(*named[1:])
    labels = {name: tuple(each[name] for each in named) for name in shared}
    return Program(first, place, tuple(ranks), unlike, literals, spans, outputs, labels)


@dataclass(frozen=True, slots=True)
class _Grouping:
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
        ranked = _RANKED.get(call.op)
        for at, (one, other) in enumerate(zip(call.args[:-1], first.args[:-1], strict=True)):
            if at != ranked and not same_argument(one, other):
                raise Unsupported("collectives that differ between ranks of one program")
        if ranked is None:
            return
        peer, its = call.args[ranked], first.args[ranked]
        assert isinstance(peer, int) and isinstance(its, int)
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
