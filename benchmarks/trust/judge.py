"""Every mutant's verdict against numbers: what is proved must be equal, what is refuted must differ."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.trust.mutants import mutants
from graphguard.confirm.check import compare
from graphguard.ir import Capture
from graphguard.ir.fuel import SECOND
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove

_PATIENCE = 600 * SECOND
# What a pair of answers (proved, numbers) is called.
_NAMES = {
    (True, "equal"): "refines, equal",
    (True, "differs"): "WRONG PROOF",
    (True, "not-run"): "refines, no numbers",
    (False, "equal"): "unknown, equal",
    (False, "differs"): "broken",
    (False, "not-run"): "unknown, no numbers",
}


@dataclass(slots=True)
class Tally:
    """Counts by outcome; ``wrong`` and ``unknown`` name the mutants concerned, ``left_out`` the programs that are not proved themselves."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def mutants(self) -> int:
        """How many were judged."""
        return sum(self.counts.values())

    @property
    def share_unknown(self) -> float:
        """The part of equal or different mutants without a verdict."""
        judged = self.mutants - self.counts["refines, no numbers"] - self.counts["unknown, no numbers"]
        return self.counts["unknown, equal"] / max(judged, 1)

    def lines(self) -> list[str]:
        """A report."""
        rows = [f"{count:6}  {name}" for name, count in sorted(self.counts.items())]
        rate = self.mutants / max(self.seconds, 1e-9)
        return [
            *rows,
            f"{self.mutants} mutants in {self.seconds:.1f} s ({rate:.0f} a second), {self.share_unknown:.1%} unknown",
        ]


def _differ(capture: Capture, memo: Memo) -> bool:
    """Whether a proof with a memo and one without still say different things where time is no matter: a busy machine leaves some unproved."""
    return prove(capture, memo, _PATIENCE).outcome.proved != prove(capture, None, _PATIENCE).outcome.proved


def judge(captures: Iterable[tuple[str, Capture]], count: int, seed: int, tally: Tally | None = None) -> Tally:
    """Judge ``count`` mutants of every capture; captures that are not proved themselves are left out.

    Every mutant is proved once by itself and once with what the proofs before it left in a memo, as an edit is: both must say the same.
    """
    tally = tally or Tally()
    started = time.perf_counter()
    memo = Memo()
    for name, capture in captures:
        if not prove(capture, memo).outcome.proved:
            tally.left_out.append(name)
            continue
        rng = random.Random(f"{seed} {name}")
        for mutant in mutants(capture, rng, count):
            said = compare(mutant.capture, steps=5 * SECOND)
            proved = prove(mutant.capture).outcome.proved
            outcome = _NAMES[proved, said.status]
            tally.counts[outcome] += 1
            if prove(mutant.capture, memo).outcome.proved != proved and _differ(mutant.capture, memo):
                tally.wrong.append(f"{name}: {mutant.change}: proved {proved}, with a memo {not proved}")
            if outcome == "WRONG PROOF":
                tally.wrong.append(f"{name}: {mutant.change}: {said.differing}")
            elif outcome == "unknown, equal":
                tally.unknown.append(f"{name}: {mutant.change}")
    tally.seconds += time.perf_counter() - started
    return tally
