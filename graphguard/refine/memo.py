"""What proofs remember of each other: the results of stages, by content.

A key is a stage's rows (:mod:`graphguard.refine.spelling`) and the stage of the same region that went before; equal keys are equal problems up to a
renaming.  Keys are compared, not only hashed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphguard.refine.spelling import Row
from graphguard.refine.windows import Windowed

if TYPE_CHECKING:
    from graphguard.refine.regions import Universes

_ROWS: Final = 400_000  # rows that are kept, in all
_STATES: Final = 64  # evaluated regions that are kept

Key = tuple[int, tuple[Row, ...]]


@dataclass(frozen=True, slots=True)
class Result:
    """What was proved of a stage, in terms of its numbers.

    ``windows`` are the ranks' tensors of the cut after it.  ``found`` are texts, one a promise, in which a NUL stands for the output's name.  ``facts`` are
    ranges of leaves that its look-ups state; ``late`` that one was stated after it had been used.  ``open`` says that the cut after it is none: a rank's tensor
    is not known to be a window of the specification's.  Where ``failure`` is not empty nothing was proved.
    """

    windows: tuple[Windowed, ...] = ()
    found: tuple[str, ...] = ()
    facts: tuple[tuple[int, int, int], ...] = ()
    assumed: tuple[str, ...] = ()
    late: bool = False
    open: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A result, and the number by which the next stage of the region speaks of this one."""

    token: int
    result: Result


class Memo:
    """Results of stages, and the last evaluated regions; the stages used longest ago are forgotten first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, Remembered] = OrderedDict()
        self._states: OrderedDict[int, Universes] = OrderedDict()
        self._rows = 0
        self._tokens = 0

    def get(self, key: Key) -> Remembered | None:
        """What is remembered of a stage."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Key, result: Result, state: Universes) -> Remembered:
        """Remember a result, and the evaluated region for what comes after."""
        self._tokens += 1
        if not result.failure:
            self.keep(self._tokens, state)
        entry = self._entries[key] = Remembered(self._tokens, result)
        self._rows += len(key[1])
        while self._rows > _ROWS and len(self._entries) > 1:
            (_, rows), _ = self._entries.popitem(last=False)
            self._rows -= len(rows)
        return entry

    def state(self, token: int) -> Universes | None:
        """The evaluated region that ended with a stage, if it is still there."""
        found = self._states.get(token)
        if found is not None:
            self._states.move_to_end(token)
        return found

    def take(self, token: int) -> Universes | None:
        """The same, to be gone on with: it is no longer kept under that stage."""
        return self._states.pop(token, None)

    def keep(self, token: int, state: Universes) -> None:
        """Keep an evaluated region."""
        self._states[token] = state
        while len(self._states) > _STATES:
            self._states.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._states.clear()
        self._rows = 0
