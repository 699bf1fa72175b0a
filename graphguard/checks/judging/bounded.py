"""How much a search for fixes may take: proofs are counted, so that every machine gives up at the same edit, and an edit that makes a program hang is stopped by the clock."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from graphguard.checks.judging.requests import Step
from graphguard.ir.fuel import SECOND

PROOFS: Final = 30 * SECOND
"""Steps of all proofs of one search: of edits of most programs a hundred proofs, of one that is hardly proved itself two or three."""

HANG: Final = PROOFS / 2
"""What a recording counts that the clock had to stop."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Allowance:
    """What is left of the steps that all edited programs may take together."""

    left: float = PROOFS

    @property
    def spent(self) -> bool:
        """Whether no other edit is proved."""
        return self.left <= 0


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
                allowed.left -= said.get("burnt", 0)
            elif isinstance(one, Step) and one.method == "capture" and said["summary"].get("troubles"):
                allowed.left -= HANG * (waited >= one.params["timeout"])
