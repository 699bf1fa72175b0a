"""Verdict against truth, and the few cases in which gloo's numbers are not the whole truth, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.trust.world.product import Said
from benchmarks.trust.world.program import Program
from benchmarks.trust.world.real import Truth

AGREE = "agree"
WRONG_REFINES = "WRONG REFINES"
FALSE_BROKEN = "FALSE BROKEN"
CRASH = "CRASH"
UNKNOWN = "unknown"
NOT_RUN = "could not run"
UNSOUND = (WRONG_REFINES, FALSE_BROKEN, CRASH)


@dataclass(frozen=True, slots=True)
class Judged:
    """A program with what was said of it and what happens."""

    program: Program
    said: Said
    truth: Truth
    outcome: str


def judged(program: Program, said: Said, truth: Truth) -> Judged:
    """A program with its outcome."""
    return Judged(program, said, truth, _outcome(program, said, truth))


def _outcome(program: Program, said: Said, truth: Truth) -> str:
    if said.verdict == "crash":
        return CRASH
    right = truth.kind == "equal"
    if said.verdict == "refines":
        # A collective that is late is no chance of this run: `truth` is of every schedule that was tried (see `late`).
        # Tensors of other shapes than those that are gathered: gloo raises, and says so, where NCCL counts elements.
        gloo_alone = truth.kind == "raises" and "ProcessGroupGloo" in truth.text and "invalid tensor size" in truth.text
        return AGREE if right or gloo_alone else WRONG_REFINES
    if said.verdict == "broken":
        # Memory with gaps: gloo takes what lies there, which may be right by chance, and NCCL raises. Either way the line is to be mended.
        # Collectives of one group that overtake each other on gloo and nowhere else: either verdict is right, as a proof lists what it assumes.
        # What is read before it was waited for is a race even where no output comes of it; programs that wait at once have none.
        race = said.rule == "missing-wait" and not {"missing wait", "late wait"}.isdisjoint(program.kinds)
        return FALSE_BROKEN if right and not (truth.not_dense or truth.unordered or race) else AGREE
    if said.verdict == "not run":
        # What raises for real has no verdict, whoever notices first.
        refused = right and truth.not_dense
        return AGREE if refused or truth.kind in ("raises", "no specification") else NOT_RUN
    return UNKNOWN


def settled(first: Judged, second: Judged) -> Judged:
    """A disagreement that was looked at again, with other hash seeds, on more inputs, and with more patience.

    What one run refutes is refuted; but ranks that seem to hang may only have been slow.
    """
    if first.outcome == WRONG_REFINES and first.truth.kind != "hangs" and second.said.verdict == "refines":
        return first
    return second
