"""What proofs remember of each other: the results of stages, by content.

A key is a stage's rows (:mod:`graphguard.refine.stages.spelling`) and the stage of the same region that went before; or the rows of what is promised of a stage,
and that stage.  Equal keys are equal problems up to a renaming.  In memory keys are compared, not only hashed; a shelf, which outlives the process, is asked by a digest of the whole region so far.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from graphguard.refine.stages.calls import Row
from graphguard.refine.stages.spelling import Number
from graphguard.refine.stages.windows import Windowed

if TYPE_CHECKING:
    from graphguard.ir import Capture
    from graphguard.refine.evaluation.universes import Universes
    from graphguard.refine.outcome import Outcome

_ROWS: Final = 400_000  # rows that are kept, in all
_PROGRAM_ROWS: Final = 200_000  # the same for whole programs
_STATES: Final = 64  # evaluated regions that are kept

Key = tuple[int, tuple[Row, ...]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """What was proved of a stage, in terms of its numbers.

    ``windows`` are the ranks' tensors of the cut after it, ``cut`` the numbers of all its tensors, the specification's first; empty after a last stage.  ``found`` are texts, one a promise, in which a NUL stands for the output's name.  ``facts`` are
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
    cut: tuple[Number | None, ...] = ()

    def and_of_promises(self, other: Result) -> Result:
        """This result of a stage's calls, and another of what is promised of them."""
        facts = tuple(sorted({*self.facts, *other.facts}))
        assumed = tuple(sorted({*self.assumed, *other.assumed}))
        return replace(
            self, found=other.found, facts=facts, assumed=assumed, late=self.late or other.late, failure=other.failure
        )


@dataclass(frozen=True, slots=True)
class Remembered:
    """A result, and the number by which the next stage of the region speaks of this one."""

    token: int
    result: Result


@dataclass(frozen=True, slots=True)
class Program:
    """What was found of every promise of a proved program, in order, and all that was assumed."""

    found: tuple[str, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A proved program that is spelt when another of its size comes; one that is ``cut`` lies on a shelf by its stages."""

    capture: Capture
    outcome: Outcome
    cut: bool


class Shelf(Protocol):
    """Stages (``Result``) and programs (``Program``) that were proved, by digest; what it does not know for certain it does not know."""

    def get(self, digest: str, kind: type[T]) -> T | None:
        """What was put under a digest."""

    def put(self, digest: str, value: Result | Program) -> None:
        """Keep what was proved; never raises."""

    def clear(self) -> None:
        """Forget everything."""


class Memo:
    """Proved programs, results of stages, and the last evaluated regions; those used longest ago are forgotten first.

    With a shelf, what was proved is found there too, whoever proved it.
    """

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf
        self._digests: dict[int, str] = {0: ""}
        self._asked: tuple[Key, str] = ((0, ()), "")  # the last key that a digest was made of
        self._entries: dict[Key, Remembered] = {}
        self._used: OrderedDict[int, Key] = OrderedDict()  # keys by token, as hashing their rows is dear
        self._last: dict[int, Remembered] = {}  # what was last found after a stage, by its token
        self._programs: OrderedDict[tuple[Row, ...], Program] = OrderedDict()
        self._program_rows = 0
        self._sizes: set[int] = set()  # of programs that are known
        self._waiting: OrderedDict[int, list[Waiting]] = OrderedDict()
        self._states: OrderedDict[int, Universes] = OrderedDict()
        self._rows = 0
        self._tokens = 0

    def get(self, key: Key) -> Remembered | None:
        """What is remembered of a stage."""
        last = self._last.get(key[0])  # the layer before is the likeliest, and to compare costs less than to hash
        found = last if last is not None and self._used[last.token] == key else self._entries.get(key)
        if found is not None:
            self._last[key[0]] = found
            self._used.move_to_end(found.token)
            return found
        if self._shelf is None:
            return None
        result = self._shelf.get(self._digest(key), Result)
        return None if result is None else self._enter(key, result)

    def put(self, key: Key, result: Result, state: Universes | None) -> Remembered:
        """Remember a result, and the evaluated region for what comes after, if anything does."""
        entry = self._enter(key, result)
        if not result.failure:
            if state is not None:
                self.keep(entry.token, state)
            if self._shelf is not None:
                self._shelf.put(self._digest(key), result)
        return entry

    def program(self, rows: tuple[Row, ...]) -> Program | None:
        """What is remembered of a whole program."""
        found = self._programs.get(rows)
        if found is None and self._shelf is not None:
            found = self._shelf.get(self._digest((0, rows)), Program)
            if found is not None:
                self._keep_program(rows, found)
        elif found is not None:
            self._programs.move_to_end(rows)
        return found

    def may_know(self, size: int) -> bool:
        """Whether a program of so many calls can be known."""
        return self._shelf is not None or size in self._sizes

    def has_one_of(self, size: int) -> bool:
        """Whether a program of so many calls was proved here as a whole."""
        return size in self._sizes or size in self._waiting

    def wait(self, size: int, program: Waiting) -> None:
        """Put a proved program aside, to be learnt when another of its size comes."""
        self._waiting.setdefault(size, []).append(program)
        if len(self._waiting) > _STATES:
            self._waiting.popitem(last=False)

    def waiting(self, size: int) -> list[Waiting]:
        """The programs of a size that were put aside."""
        return self._waiting.pop(size, [])

    def learn(self, size: int, rows: tuple[Row, ...], program: Program, *, cut: bool) -> None:
        """Remember a program that was proved, and how many calls it has; a shelf has the stages of one that is ``cut``."""
        self._sizes.add(size)
        self._keep_program(rows, program)
        if self._shelf is not None and not cut:
            self._shelf.put(self._digest((0, rows)), program)

    def _keep_program(self, rows: tuple[Row, ...], program: Program) -> None:
        if rows not in self._programs:
            self._program_rows += len(rows)
        self._programs[rows] = program
        while self._program_rows > _PROGRAM_ROWS and len(self._programs) > 1:
            forgotten, _ = self._programs.popitem(last=False)
            self._program_rows -= len(forgotten)

    def _digest(self, key: Key) -> str:
        """A stage and all of its region that went before; rows are strings, integers, None and rows, which ``repr`` tells apart."""
        if self._asked[0] is not key:
            before, rows = key
            self._asked = key, hashlib.sha256(f"{self._digests[before]}{rows!r}".encode()).hexdigest()
        return self._asked[1]

    def _enter(self, key: Key, result: Result) -> Remembered:
        self._tokens += 1
        if self._shelf is not None:
            self._digests[self._tokens] = self._digest(key)
        entry = self._entries[key] = Remembered(self._tokens, result)
        self._used[entry.token] = key
        self._rows += len(key[1])
        while self._rows > _ROWS and len(self._used) > 1:
            _, forgotten = self._used.popitem(last=False)
            del self._entries[forgotten]
            self._last.pop(forgotten[0], None)
            self._rows -= len(forgotten[1])
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
        if self._shelf is not None:
            self._shelf.clear()
        self._entries.clear()
        self._used.clear()
        self._last.clear()
        self._programs.clear()
        self._sizes.clear()
        self._waiting.clear()
        self._program_rows = 0
        self._states.clear()
        self._rows = 0
