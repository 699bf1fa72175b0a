"""Copies of segments as values: the nodes of a segment are made once, and again under other names.

That is right where the memory that goes in is in the same state: the same tensors of it are known already.  A copy that finds another state is translated call by
call, as if it had been recorded so, and the next one may be like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graphguard.ir.graph import Var
from graphguard.trace.calls.segments import Copy
from graphguard.trace.graph.builder import Builder
from graphguard.trace.graph.memory import Memory, Storage
from graphguard.trace.graph.patterns import Pattern, Place, pattern_of
from graphguard.trace.pure.harmless import identity


@dataclass(frozen=True, slots=True)
class _Translated:
    """What became of a copy: the states of its inputs before, and what was made; ``places`` are the pattern's in terms of the segment."""

    places: tuple[Place, ...]
    before: tuple[Storage | None, ...]
    after: tuple[tuple[int, Storage], ...]
    pattern: Pattern


class Renaming:
    """Copies that were translated, and those that need not be.  ``is_plain`` says of a variable that nothing but its type is known of it."""

    def __init__(self, builder: Builder, memory: Memory, is_plain: Callable[[Var], bool]) -> None:
        self._builder = builder
        self._memory = memory
        self._is_plain = is_plain
        self._translated: dict[int, list[_Translated]] = {}

    def renamed(self, copy: Copy) -> bool:
        """Make the nodes of a copy from those of an earlier one; False, and nothing is made, where there is none like it."""
        translated = self._translated.get(identity(copy.segment), [])
        for index, known in enumerate(translated):
            table = self._table(known, copy)
            if table is not None:
                self._make(known, copy, table)
                translated.insert(0, translated.pop(index))  # the next is like this one, most likely
                return True
        return False

    @contextmanager
    def learning(self, copy: Copy) -> Iterator[None]:
        """A copy is translated call by call inside."""
        builder = self._builder
        before = tuple(self._states(copy))
        start, first = len(builder.nodes), builder.count
        declared = self._declared()
        yield
        made = builder.count - first
        if self._declared() != declared or not all(self._is_plain(Var(first + number)) for number in range(made)):
            return
        after = tuple(self._left(copy, before))
        left = [var.id for _, state in after for var in state.values()]
        pattern = pattern_of(builder.nodes[start:], first, made, builder.types, left)
        found = _Translated(_places(pattern, copy), before, after, pattern)
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
        types, is_plain = self._builder.types, self._is_plain
        for old, new in before.pairs(state):
            known = table.setdefault(old.id, new)
            if known is not new and known != new:
                return False
            if types[old] is not types[new] or not is_plain(old) or not is_plain(new):
                return False
        return True

    def _make(self, known: _Translated, copy: Copy, table: dict[int, Var]) -> None:
        stacks, forwards = copy.stacks, copy.forwards
        places = [(stacks.get(s, s), forwards.get(f, f), copy.module(path)) for s, f, path in known.places]
        self._builder.add(known.pattern, table, places)
        for number, state in known.after:
            self._memory.put(copy.storage(number), state.renamed(table))


def _places(pattern: Pattern, copy: Copy) -> tuple[Place, ...]:
    """Where the calls of a pattern, which are those of a copy, are in its segment."""
    events = copy.segment.events
    found = {
        (copy.stacks.get(e.stack, e.stack), copy.forwards.get(e.forward, e.forward), copy.module(e.module)): e
        for e in events
    }
    return tuple((found[place].stack, found[place].forward, found[place].module) for place in pattern.places)
