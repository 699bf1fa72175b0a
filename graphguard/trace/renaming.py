"""Copies of segments as values: the nodes of a segment are made once, and again under other names.

That is right where the memory that goes in is in the same state: the same tensors of it are known already.  A copy that finds another state is translated call by
call, as if it had been recorded so, and the next one may be like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graphguard.ir.graph import Node, TensorType, Var
from graphguard.trace.builder import Builder
from graphguard.trace.harmless import identity
from graphguard.trace.memory import Memory, Storage
from graphguard.trace.segments import Copy, Segment


@dataclass(frozen=True, slots=True)
class _Call:
    """A node to make again: ``operands`` are the places of its arguments that are variables, ``lists`` of those that hold some."""

    node: Node
    operands: tuple[tuple[int, int], ...]
    lists: tuple[tuple[int, Any], ...]
    keywords: bool


@dataclass(frozen=True, slots=True)
class _Translated:
    """What became of a copy: the states of its inputs before, and what was made; variables from ``first`` on are its own."""

    copy: Copy
    before: tuple[Storage | None, ...]
    after: tuple[tuple[int, Storage], ...]
    calls: tuple[_Call, ...]
    types: tuple[TensorType, ...]
    first: int


class Renaming:
    """Copies that were translated, and those that need not be.  ``is_plain`` says of a variable that nothing but its type is known of it."""

    def __init__(self, builder: Builder, memory: Memory, is_plain: Callable[[Var], bool]) -> None:
        self._builder = builder
        self._memory = memory
        self._is_plain = is_plain
        self._translated: dict[int, list[_Translated]] = {}

    def renamed(self, copy: Copy) -> bool:
        """Make the nodes of a copy from those of an earlier one; False, and nothing is made, where there is none like it."""
        for known in self._translated.get(identity(copy.segment), ()):
            table = self._table(known, copy)
            if table is not None:
                self._make(known, copy, table)
                return True
        return False

    @contextmanager
    def learning(self, copy: Copy) -> Iterator[None]:
        """A copy is translated call by call inside."""
        builder = self._builder
        before = tuple(self._states(copy))
        start, first = len(builder.nodes), len(builder.types)
        declared = self._declared()
        yield
        variables = [Var(number) for number in range(first, len(builder.types))]
        if self._declared() != declared or not all(map(self._is_plain, variables)):
            return
        calls = tuple(map(_call, builder.nodes[start:]))
        types = tuple(builder.types[var] for var in variables)
        found = _Translated(copy, before, tuple(self._left(copy, before)), calls, types, first)
        self._translated.setdefault(identity(copy.segment), []).append(found)

    def _declared(self) -> tuple[int, ...]:
        """How much of a graph there is that is no node."""
        builder = self._builder
        declared = builder.inputs, builder.constants, builder.outputs, builder.labels, builder.symbols
        return tuple(len(each) for each in declared)

    def _states(self, copy: Copy) -> Iterator[Storage | None]:
        for number in copy.segment.inputs:
            state = self._memory.storage(copy.storage(number))
            yield None if state is None else state.copied()

    def _left(self, copy: Copy, before: Sequence[Storage | None]) -> Iterator[tuple[int, Storage]]:
        """What a copy left behind: its inputs, as far as more is known of them, and those of its own storages that something outside reads."""
        known = dict(zip(copy.segment.inputs, before, strict=True))
        for number in (*copy.segment.inputs, *copy.segment.kept):
            state = self._memory.storage(copy.storage(number))
            if state is not None and state != known.get(number):
                yield number, state.copied()

    def _table(self, known: _Translated, copy: Copy) -> dict[int, Var] | None:
        """The variables in the place of those that a translated copy read; None where what goes in is in another state."""
        table: dict[int, Var] = {}
        for before, number in zip(known.before, copy.segment.inputs, strict=True):
            state = self._memory.storage(copy.storage(number))
            if before is None or state is None:
                if before is not state:
                    return None
            elif not before.is_like(state) or not self._paired(before, state, table):
                return None
        return table if len(set(table.values())) == len(table) else None

    def _paired(self, before: Storage, state: Storage, table: dict[int, Var]) -> bool:
        types = self._builder.types
        for old, new in before.pairs(state):
            if table.setdefault(old.id, new) != new or types[old] != types[new]:
                return False
            if not self._is_plain(old) or not self._is_plain(new):
                return False
        return True

    def _make(self, known: _Translated, copy: Copy, table: dict[int, Var]) -> None:
        builder = self._builder
        first = len(builder.types)
        own = [Var(first + i) for i in range(len(known.types))]
        builder.types.update(zip(own, known.types, strict=True))
        table.update(zip(range(known.first, known.first + len(own)), own, strict=True))
        places = _Places(known.copy, copy)
        builder.nodes.extend([_again(call, table, places) for call in known.calls])
        for number, state in known.after:
            self._memory.put(copy.storage(number), state.renamed(table))


class _Places:
    """Stacks and modules of one copy in terms of another of the same segment."""

    def __init__(self, old: Copy, new: Copy) -> None:
        self._stacks = _composed(old.segment, old.stacks, new.stacks)
        self._forwards = _composed(old.segment, old.forwards, new.forwards, forward=True)
        self._modules = {old.module(path): new.module(path) for path in {e.module for e in old.segment.events}}

    def of(self, node: Node) -> tuple[int, int, str]:
        """Where a node's copy comes from."""
        return self._stacks[node.stack], self._forwards[node.forward], self._modules[node.module]


def _composed(segment: Segment, old: Any, new: Any, *, forward: bool = False) -> dict[int, int]:
    places = {event.forward if forward else event.stack for event in segment.events}
    return {old.get(place, place): new.get(place, place) for place in places}


def _call(node: Node) -> _Call:
    operands = tuple((i, arg.id) for i, arg in enumerate(node.args) if isinstance(arg, Var))
    lists = tuple((i, arg) for i, arg in enumerate(node.args) if isinstance(arg, tuple) and _holds(arg))
    return _Call(node, operands, lists, _holds(tuple(node.kwargs.values())))


def _holds(value: Sequence[Any]) -> bool:
    return any(isinstance(item, Var) or (isinstance(item, tuple) and _holds(item)) for item in value)


def _again(call: _Call, table: dict[int, Var], places: _Places) -> Node:
    node = call.node
    args = list(node.args)
    for place, number in call.operands:
        args[place] = table[number]
    for place, items in call.lists:
        args[place] = _renamed(items, table)
    kwargs = {key: _renamed(value, table) for key, value in node.kwargs.items()} if call.keywords else node.kwargs
    outs = tuple([table[out.id] for out in node.outs])
    return Node(node.op, tuple(args), kwargs, outs, *places.of(node), node.phase, node.draw)


def _renamed(value: Any, table: dict[int, Var]) -> Any:
    if isinstance(value, Var):
        return table[value.id]
    return tuple(_renamed(item, table) for item in value) if isinstance(value, tuple) else value
