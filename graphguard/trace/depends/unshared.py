"""What the processes of one job do not share: who this process is among them, and what the program asked of it that others answer otherwise.

Each program of a check is recorded in a fork of one process.  The ranks of a job are started one by one: they have other hash seeds, other numbers from the system, other clocks.
What depends on these is different here in every program, the same at every recording, and noted with its line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Literal, TypeAlias

from graphguard.ir import Span, Trouble
from graphguard.trace.source.sources import is_own_code, is_standard

_MOST_NOTES: Final = 20
# Up to this many bytes Python takes memory from pools, of one size each, that are so far apart.
_SMALL: Final = 512
_STEP: Final = 16
_LONGEST: Final = 20  # tuples shorter than this are kept by length for the next one
_PROCESSES: Final = 61  # so many lie in different places
_OF_EACH: Final = 3  # some of it may be what this itself has just let go of
# Whose functions answer in the place of Python's.
_HERE: Final = ("chance.py", "number_calls.py", "orders.py", "unshared.py")


RULE: Final = "process-dependent"


#: What processes are told that those of a job do not share: each something else (``apart``); all the same (``alike``); or the first, but the specification's as the other half of the ranks (``turned``).
Processes: TypeAlias = Literal["apart", "alike", "turned"]


class Process:
    """One process of a job: ``number`` is its rank, or -1 for that of the specification."""

    def __init__(self, number: int, processes: Processes = "apart") -> None:
        self.number = number
        self.alike, self.turned = processes == "alike", processes == "turned"
        self.asked: dict[tuple[Span | None, str], Trouble] = {}
        self.places: dict[
            int, int
        ] = {}  # of objects in memory, which programs that are alike are told in the order of asking
        self.made = 0  # how often it was asked for something that is another each time

    @property
    def side(self) -> int:
        """One of two: that of a rank is another than that of its neighbours along every axis whose size and whose strides are powers of two; the specification's is that of half of the ranks."""
        if self.alike:
            return 0
        return int(not self.turned) if self.number < 0 else self.number.bit_count() % 2

    @property
    def salt(self) -> int:
        """What texts are hashed with: the side, or of the specification a number that no rank has."""
        return self.side if self.alike or self.number >= 0 else 2

    def note_at(self, span: Span | None, what: str, fix: str) -> None:
        """The program asks, there, for what differs between processes."""
        if len(self.asked) < _MOST_NOTES:
            self.asked.setdefault((span, what), Trouble(RULE, f"{what}\nfix: {fix}", span))


def memory_in_use(process: Process) -> list[object]:
    """Memory of every small size, of each process another amount, for as long as the result lives: what is made then lies elsewhere in each."""
    if process.alike:
        return []
    kinds: tuple[Callable[[], object], ...] = (object, list, dict, set, lambda: float("1.5"))
    sizes, lengths = range(0, _SMALL, _STEP), range(1, _LONGEST)
    return [
        [make() for make in kinds] + [bytes(size) for size in sizes] + [tuple(range(length)) for length in lengths]
        for _ in range(_OF_EACH * (1 + process.number % _PROCESSES))
    ]


class _Current:
    process: Process | None = None
    imports = False
    asked_while_imported = False


def current() -> Process | None:
    """The process of a job that this one stands for, if any."""
    return _Current.process


def is_of_interest() -> bool:
    """Whether it matters who asks for what differs between processes."""
    return _Current.process is not None or _Current.imports


@contextmanager
def standing_for(process: Process) -> Iterator[Process]:
    """Inside, this process is that one of a job."""
    before, _Current.process = _Current.process, process
    try:
        yield process
    finally:
        _Current.process = before


@contextmanager
def importing() -> Iterator[None]:
    """Inside, files are imported for all processes of a job at once."""
    _Current.imports, _Current.asked_while_imported = True, False
    try:
        yield
    finally:
        _Current.imports = False


def asked_while_imported() -> bool:
    """Whether the user's files asked, while they were imported for all processes, for what differs between these."""
    return _Current.asked_while_imported


def asks(what: str, fix: str, depth: int = 2) -> Process | None:
    """Note that the caller's caller, or one beyond, asks for something; the process that answers it, None where it is nobody's, or not the user's code that asks."""
    process = _Current.process
    if process is None and not _Current.imports:
        return None
    frame = _asker(sys._getframe(depth))  # noqa: SLF001 - who asks is what counts
    if frame is None:
        return None
    if process is None:
        _Current.asked_while_imported = True
    else:
        from graphguard.trace.source.provenance import frame_at  # it needs torch, which an interpreter may lack

        process.note_at(frame_at(frame.f_code, frame.f_lasti).span, what, fix)
    return process


def _asker(frame: FrameType | None) -> FrameType | None:
    """The user's frame that asks, by way of the standard library or not; None where a library does, or an import."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_standard(file) and os.path.basename(file) not in _HERE:
            return frame if is_own_code(file) else None
        frame = frame.f_back
    return None
