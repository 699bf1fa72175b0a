"""How much a search for fixes may take: proofs, and calls that are recorded, are counted, so that every machine gives up at the same edit; an edit that makes a program hang is stopped by the clock."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from graphguard.checks.judging.requests import Step
from graphguard.ir.fuel import SECOND

SEARCH: Final = 30 * SECOND
"""Steps of one search: of edits of most programs a hundred proofs, of one that is hardly proved itself two or three."""

RECORDED: Final = 8
"""What a call of an operator counts that is recorded anew, and then run on numbers."""

HANG: Final = SEARCH / 2
"""What a recording counts that the clock had to stop."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Allowance:
    """What is left of the steps that all edited programs may take together; ``whole``: of which this is a part."""

    left: float = SEARCH
    whole: Allowance | None = None

    @property
    def spent(self) -> bool:
        """Whether no other edit is tried."""
        return self.left <= 0

    def half(self) -> Allowance:
        """Half of what is left, for one of several things: what it takes is taken from here as well."""
        return Allowance(self.left / 2, self)

    def take(self, steps: float) -> None:
        """Count what was done."""
        self.left -= steps
        if self.whole is not None:
            self.whole.take(steps)


def bounded(steps: Generator[Any, Any, _Found], allowed: Allowance, otherwise: _Found) -> Generator[Any, Any, _Found]:
    """What steps come to; ``otherwise`` where they would take more than is left."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            found: _Found = end.value
            return found
        if allowed.spent:
            steps.close()
            return otherwise
        began = time.perf_counter()
        answer = yield step
        waited = time.perf_counter() - began
        asked = zip(step, answer, strict=True) if isinstance(step, tuple) else ((step, answer),)
        for one, said in asked:
            if isinstance(one, Step) and one.method in ("prove", "finish"):
                allowed.take(said.get("burnt", 0))
            elif isinstance(one, Step) and one.method == "capture":
                hung = said["summary"].get("troubles") and waited >= one.params["timeout"]
                allowed.take(HANG if hung else RECORDED * sum(said["summary"].get("operators", {}).values()))
