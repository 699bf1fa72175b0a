"""Which ranks run one program, exactly: every call of every rank is compared with those of one rank.

Ranks of a program read the same leaves and make the same tensors in the same order.  Calls may differ in numbers, in which result of a call they read, and in the order of a list;
every rank's own call is kept where it is not that of the first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import Final, TypeVar

from graphguard.ir import Capture, Constant, Graph, Node, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.refine.digits.groups import (
    FOLLOWED,
    RANKED,
    Coordinates,
    Grouping,
    Span,
    place_of,
    program_of,
    same_argument,
)
from graphguard.refine.stages.flow import labelled
from graphguard.relations.algebra import Unsupported

T = TypeVar("T")
#: Programs that a digit is worth, which cannot be followed as one: so many are evaluated in its place.
_MOST: Final = 16


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
        if node.op in RANKED:
            rank = args[RANKED[node.op]]
            assert isinstance(rank, int)
            args[RANKED[node.op]] = program_of(self.mesh, self.others, rank)
        return replace(node, args=tuple(args))


def quotients(capture: Capture) -> Iterator[Quotient]:
    """A capture by programs, as few of them as can be; then with ever more axes that are no digits, for those that cannot be followed as one.

    Raises ``Unsupported`` where there are as many programs as ranks, or where a collective's group is none of whole digits.
    """
    mesh = tuple(capture.mesh.items())
    if len(capture.ranks) != capture.world_size:
        raise Unsupported("not all ranks were captured")
    if any(node.op in COLLECTIVES and node.op not in FOLLOWED for graph in capture.ranks for node in graph.nodes):
        raise Unsupported("a collective that is not followed along digits")
    kinds = _kinds(capture.ranks)
    digits = tuple(axis for axis in range(len(mesh)) if mesh[axis][1] > 1 and _is_digit(mesh, kinds, axis))
    if not digits:
        raise Unsupported("every rank runs a program of its own")
    for left in _subsets(mesh, digits):
        yield _quotient(capture, mesh, left)


def _subsets(mesh: Sequence[tuple[str, int]], digits: Coordinates) -> list[Coordinates]:
    """The digits, and these without some of them, those before that leave fewer programs."""
    found = {
        left: math.prod(mesh[axis][1] for axis in digits if axis not in left)
        for count in range(len(digits), 0, -1)
        for left in itertools.combinations(digits, count)
    }
    return sorted((left for left in found if found[left] <= _MOST), key=found.__getitem__)


def _quotient(capture: Capture, mesh: tuple[tuple[str, int], ...], digits: Coordinates) -> Quotient:
    others = tuple(axis for axis in range(len(mesh)) if axis not in digits)
    members: dict[int, list[int]] = {}
    for rank in range(len(capture.ranks)):
        members.setdefault(program_of(mesh, others, rank), []).append(rank)
    grouping = Grouping(mesh, digits, others)
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
    known: set[tuple[int, int]] = set()
    for number, graph in enumerate(graphs):
        alike = firsts.setdefault((len(graph.nodes), tuple(node.op for node in graph.nodes)), [])
        found = next((first for first in alike if _alike(graphs[first], graph, known)), None)
        if found is None:
            alike.append(number)
        kinds.append(number if found is None else found)
    return kinds


def _alike(first: Graph, other: Graph, known: set[tuple[int, int]]) -> bool:
    """Whether two graphs make the same tensors from the same leaves by calls of the same operators, and give the same outputs.

    ``known`` are the objects of which that was seen: ranks that were foretold share theirs.
    """
    if first is other:
        return True
    if first.symbols or other.symbols or len(first.nodes) != len(other.nodes):
        return False
    if first.inputs != other.inputs or first.outputs.keys() != other.outputs.keys():
        return False
    if list(first.constants) != list(other.constants) or not _seen(known, first.types, other.types, eq):
        return False
    return all(_seen(known, one, two, _same_call) for one, two in zip(first.nodes, other.nodes, strict=True))


def _seen(known: set[tuple[int, int]], one: T, two: T, are_same: Callable[[T, T], bool]) -> bool:
    pair = (id(one), id(two))
    if one is two or pair in known:
        return True
    same = are_same(one, two)
    if same:
        known.add(pair)
    return same


def _same_call(one: Node, other: Node) -> bool:
    """Whether two calls differ in their positional arguments at most, and there in no more than numbers, lists and tensors."""
    return (
        one.op == other.op
        and one.outs == other.outs
        and one.phase == other.phase
        and one.draw == other.draw
        and (one.kwargs is other.kwargs or same_argument(tuple(one.kwargs.items()), tuple(other.kwargs.items())))
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
    return (isinstance(one, int | Var) and not isinstance(one, bool)) or same_argument(one, other)


def _program(graphs: Sequence[Graph], grouping: Grouping, place: Coordinates, ranks: Sequence[int]) -> Program:
    own = [graphs[rank] for rank in ranks]
    first = own[0]
    unlike: dict[int, tuple[Node, ...]] = {}
    spans: dict[int, Span] = {}
    for index, node in enumerate(first.nodes):
        calls = tuple(graph.nodes[index] for graph in own)
        if node.op in COLLECTIVES:
            spans[index] = grouping.span(ranks, calls)
            if any(call.reads != node.reads for call in calls[1:]):
                unlike[index] = calls
        elif any(not same_argument(call.args, node.args) for call in {id(call): call for call in calls}.values()):
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
