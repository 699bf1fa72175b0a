"""Other programs that may mend a finding, recorded some at once: numbers refute most of them, one attempt proves those that are easy, and of what is left a few are proved patiently."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from graphguard.checks.judging.mends import Broken, Effort, mended_by
from graphguard.checks.judging.requests import CROSS_CHECK, Captured, Step, confirming
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.plain import from_plain
from graphguard.refine.finding import Finding

AT_ONCE: Final = min(8, max(2, os.cpu_count() or 2))  # programs that are recorded beside one another
PATIENTLY: Final = 3  # programs that are proved again: so many

Row = dict[str, Any]


class Mending(NamedTuple):
    """A row that mends a finding, as far as it does, the promises that are broken still, and how many calls it changes."""

    row: Row
    finding: Finding
    left: frozenset[str]
    changed: int


@dataclass(slots=True)
class Trials:
    """Rows in their order, each a program that ``record`` makes, some of them at once; those are ``waiting`` that numbers do not refute, with whether they ran."""

    broken: Broken
    finding: Finding
    rows: Sequence[Row]
    record: Callable[[Sequence[Row]], Generator[Any, Any, Sequence[Captured]]]
    at_once: int
    even_unrun: bool  # programs are proved that numbers cannot run
    at: int = 0
    waiting: deque[tuple[Row, Captured, bool]] = field(default_factory=deque)
    doubted: list[tuple[Row, Captured]] = field(default_factory=list)
    parts: list[tuple[Row, Captured, Finding]] = field(default_factory=list)

    def next(self) -> Generator[Step | tuple[Step, ...], Any, Mending | None]:
        """The next row that mends the finding; None where there is none."""
        while self.waiting or self.at < len(self.rows):
            if not self.waiting:
                yield from self._fill()
            elif (found := (yield from self._hastily())) is not None:
                return found
        while self.doubted:
            found = yield from self._mending(*self.doubted.pop(0), self.finding, "patient")
            if found is not None:
                return found
        return None

    def in_part(self) -> Generator[Step, Any, Mending | None]:
        """The row that mends most of what the finding spoils, half of it at least, where none mends all: it is several defects, then."""
        most = sorted(self.parts, key=lambda one: -len(one[2].promises))
        for row, captured, finding in most[:PATIENTLY]:
            found = yield from self._mending(row, captured, finding, "hasty")
            if found is not None:
                return found
        return None

    def as_likely(self, cost: int) -> Generator[Step, Any, list[Mending]]:
        """Those of the rows that are recorded, and cost no more, that mend it as well."""
        found = []
        while self.waiting and self.waiting[0][0]["cost"] <= cost:
            one = yield from self._hastily()
            found += [one] if one is not None else []
        return found

    def _fill(self) -> Generator[Step | tuple[Step, ...], Any, None]:
        ahead = self.rows[self.at : self.at + self.at_once]
        self.at += len(ahead)
        captures = yield from self.record(ahead)
        recorded = [one for one in zip(ahead, captures, strict=True) if not one[1].troubles]
        if not recorded:
            return
        answers = yield tuple(confirming(each, CROSS_CHECK, explained=False) for _, each in recorded)
        numbers = [from_plain(Confirmation, answer) for answer in answers]
        for (row, captured), said in zip(recorded, numbers, strict=True):
            if said.status == "not-run" and not self.even_unrun:
                continue
            if self._may_mend(said):
                self.waiting.append((row, captured, said.status != "not-run"))
            elif (part := self._part(said)) is not None:
                self.parts.append((row, captured, part))

    def _may_mend(self, numbers: Confirmation) -> bool:
        """Whether numbers refute nothing that the finding spoils, and nothing that was right."""
        kept = self.broken.spoiled - set(self.finding.promises)
        return numbers.status != "differs" or bool(self.finding.regains) or kept.issuperset(numbers.differing)

    def _part(self, numbers: Confirmation) -> Finding | None:
        """The finding as far as numbers do not refute it, where that is half of it, and nothing that was right is refuted."""
        promises = tuple(name for name in self.finding.promises if name not in numbers.differing)
        enough = promises and 2 * len(promises) >= len(self.finding.promises)
        return (
            replace(self.finding, promises=promises)
            if enough and self.broken.spoiled.issuperset(numbers.differing)
            else None
        )

    def _hastily(self) -> Generator[Step, Any, Mending | None]:
        row, captured, agrees = self.waiting.popleft()
        found = yield from self._mending(row, captured, self.finding, "hasty")
        if found is None and agrees and len(self.doubted) < PATIENTLY:
            self.doubted.append((row, captured))
        return found

    def _mending(
        self, row: Row, captured: Captured, finding: Finding, effort: Effort
    ) -> Generator[Step, Any, Mending | None]:
        mended = yield from mended_by(self.broken, finding, captured, effort)
        if mended is None:
            return None
        proofs = {"proof": self.broken.report.proof, "other": mended[0]}
        if not (yield Step("prover", "same_question", proofs)):
            return None
        return Mending(row, finding, mended[1], (yield Step("prover", "calls_between", proofs)))
