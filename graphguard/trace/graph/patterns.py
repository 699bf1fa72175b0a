"""Nodes that are to be made again with other variables, places and modules: what is the same each time is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from graphguard.ir.graph import Arg, Node, TensorType, Var
from graphguard.trace.graph.liveness import Liveness

Place: TypeAlias = tuple[int, int, str]
"""The stack of a call, that of its forward call, and its module."""
Fetch: TypeAlias = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Some of the values, as a tuple."""


_Call: TypeAlias = tuple[str, Fetch, dict[str, Arg], Fetch, int, str, tuple[str, int] | None]
"""A node to make again: operator, what fetches its arguments, keywords, what fetches its results, its place, phase and draw."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Nodes, without those that nothing can ever read: their variables from ``first`` on are made anew each time, ``made`` of them.

    ``numbers`` are those of the nodes that are left, of ``types``; ``outside`` are the variables from before.  ``open`` are the calls that only what follows may need; ``reads``
    are the variables from before that the others read.  ``nested`` are the calls with variables in lists or keywords.
    """

    first: int
    made: int
    numbers: tuple[int, ...]
    types: tuple[TensorType, ...]
    outside: tuple[int, ...]
    constants: tuple[Any, ...]
    places: tuple[Place, ...]
    calls: tuple[_Call, ...]
    nested: tuple[tuple[int, Node], ...]
    open: tuple[int, ...]
    reads: tuple[int, ...]

    def nodes(self, table: Mapping[int, Var], own: Sequence[Var], places: Sequence[Place]) -> list[Node]:
        """The nodes again: ``table`` has the variable in the place of every one, ``own`` those of ``numbers``; ``places`` stand for the pattern's."""
        values = (*own, *[table[number] for number in self.outside], *self.constants)
        made = [
            Node(op, args(values), kwargs, outs(values), *places[place], phase, draw)
            for op, args, kwargs, outs, place, phase, draw in self.calls
        ]
        for at, node in self.nested:
            kwargs = {key: _renamed(value, table) for key, value in node.kwargs.items()}
            place = made[at].stack, made[at].forward, made[at].module
            args = _renamed(node.args, table)
            made[at] = Node(node.op, args, kwargs, made[at].outs, *place, node.phase, node.draw)
        return made


def pattern_of(
    nodes: Sequence[Node], first: int, made: int, types: Mapping[Var, TensorType], left: Iterable[int]
) -> Pattern:
    """The pattern of nodes that made the variables from ``first`` on; ``left`` are the variables, by number, that something later may read."""
    inner = Liveness(nodes, (), ())
    needed = set(map(id, inner.kept(())))
    kept = Liveness(nodes, left, ()).kept(())
    numbers = tuple(out.id for node in kept for out in node.outs)
    sure = [node for node in kept if id(node) in needed]
    outside = tuple(dict.fromkeys(var.id for node in kept for var in node.reads if var.id < first))
    index = _Index((*numbers, *outside))
    places = tuple(dict.fromkeys(_place(node) for node in kept))
    calls = tuple(_call(node, index, places.index(_place(node))) for node in kept)
    return Pattern(
        first,
        made,
        numbers,
        tuple(types[Var(number)] for number in numbers),
        outside,
        tuple(index.constants),
        places,
        calls,
        tuple((at, node) for at, node in enumerate(kept) if _is_nested(node)),
        tuple(place for place, node in enumerate(kept) if id(node) not in needed),
        tuple(dict.fromkeys(var.id for node in sure for var in node.reads if var.id < first)),
    )


class _Index:
    """Where a value stands among all values."""

    def __init__(self, variables: Sequence[int]) -> None:
        self._variables = {number: place for place, number in enumerate(variables)}
        self.constants: list[Any] = []

    def of(self, value: Any) -> int:
        """The place of an argument."""
        if isinstance(value, Var):
            return self._variables[value.id]
        self.constants.append(value)
        return len(self._variables) + len(self.constants) - 1


def _place(node: Node) -> Place:
    return node.stack, node.forward, node.module


def _call(node: Node, index: _Index, place: int) -> _Call:
    args = () if _is_nested(node) else node.args
    fetched = [_fetch([index.of(value) for value in values]) for values in (args, node.outs)]
    return node.op, fetched[0], node.kwargs, fetched[1], place, node.phase, node.draw


def _is_nested(node: Node) -> bool:
    return _holds(tuple(node.kwargs.values())) or any(isinstance(arg, tuple) and _holds(arg) for arg in node.args)


def _fetch(places: Sequence[int]) -> Fetch:
    if len(places) > 1:
        return itemgetter(*places)
    start = places[0] if places else 0
    return itemgetter(slice(start, start + len(places)))


def _holds(value: Sequence[Any]) -> bool:
    return any(isinstance(item, Var) or (isinstance(item, tuple) and _holds(item)) for item in value)


def _renamed(value: Any, table: Mapping[int, Var]) -> Any:
    if isinstance(value, Var):
        return table[value.id]
    return tuple(_renamed(item, table) for item in value) if isinstance(value, tuple) else value
