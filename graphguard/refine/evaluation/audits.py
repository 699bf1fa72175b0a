"""Audited proofs: a capture is proved anew, without anything that is remembered, every step of rewriting is written down, and read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from graphguard.relations.audit.log import Audit, StepLog, audited
from graphguard.relations.terms.kernels import Universe

_LOGS: Final[ContextVar[list[tuple[Universe, StepLog]] | None]] = ContextVar("logs", default=None)


@dataclass(frozen=True, slots=True)
class Audited:
    """Whether the proof came out again; how many of its steps hold, of how many rules; those that could not be read again; the rules of those that are wrong."""

    proved: bool
    steps: int
    rules: int
    unread: int
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        if not self.proved:
            return "the proof did not come out again when it was made without what is remembered"
        if self.wrong:
            return f"steps that do not hold, by these rules: {', '.join(self.wrong)}"
        left = f"; {self.unread:,} are too large to be read" if self.unread else ""
        return f"{self.steps:,} steps of {self.rules} rules hold when they are read again{left}"


@contextmanager
def logged() -> Iterator[list[tuple[Universe, StepLog]]]:
    """All universes that are made meanwhile, each with the log of its rewritings."""
    logs: list[tuple[Universe, StepLog]] = []
    token = _LOGS.set(logs)
    try:
        yield logs
    finally:
        _LOGS.reset(token)


def observed(universe: Universe) -> Universe:
    """The same universe, its rewritings written down where somebody wants them."""
    logs = _LOGS.get()
    if logs is not None:
        universe.log = StepLog()
        logs.append((universe, universe.log))
    return universe


def summed(logs: list[tuple[Universe, StepLog]], *, proved: bool) -> Audited:
    """What an audit of some logs finds."""
    whole = Audit()
    for universe, log in logs:
        universe.log = None
        whole.add(audited(universe, log))
    wrong = tuple(sorted({name for name, _ in whole.wrong}))
    return Audited(proved, sum(whole.checked.values()), len(whole.checked), sum(whole.unread.values()), wrong)
