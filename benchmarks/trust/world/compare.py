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
_OF_GLOO_ALONE = (
    "ProcessGroupGloo::allgather: invalid tensor size",
    "ProcessGroupGloo::alltoall: input and output tensors must have the same size",
    "outputShape[0] * worldSize == inputShape[0]",
)
UNSOUND = (WRONG_REFINES, FALSE_BROKEN, CRASH)


@dataclass(frozen=True, slots=True)
class Judged:
    """A program with what was said of it and what happens."""

    program: Program
    said: Said
    truth: Truth
    outcome: str


# What takes a wait away: of all ranks, or of all but the one that still runs its line.
_TAKES_A_WAIT = frozenset(("missing wait", "late wait", "line out", "line rank", "line swap"))


def judged(program: Program, said: Said, truth: Truth) -> Judged:
    """A program with its outcome."""
    return Judged(program, said, truth, _outcome(program, said, truth))


def _outcome(program: Program, said: Said, truth: Truth) -> str:
    if said.verdict == "crash":
        return CRASH
    right = truth.kind == "equal"
    if said.verdict == "refines":
        # A collective that is late is no chance of this run: `truth` is of every schedule that was tried (see `late`).
        # Tensors of other shapes than those that are gathered or scattered: gloo raises, and says so, where NCCL counts elements.
        gloo_alone = truth.kind == "raises" and any(words in truth.text for words in _OF_GLOO_ALONE)
        return AGREE if right or gloo_alone or _refused_for_strides_of_one(program, truth) else WRONG_REFINES
    if said.verdict == "broken":
        # Memory with gaps: gloo takes what lies there, which may be right by chance, and NCCL raises. Either way the line is to be mended.
        # Collectives of one group that overtake each other on gloo and nowhere else: either verdict is right, as a proof lists what it assumes.
        told = _is_race(program, said) or _is_overlap(program, said) or _is_call_of_some(said)
        return FALSE_BROKEN if right and not (truth.not_dense or truth.unordered or told) else AGREE
    if said.verdict == "not run":
        # What raises for real has no verdict, whoever notices first.
        refused = right and truth.not_dense
        return AGREE if refused or truth.kind in ("raises", "no specification") else NOT_RUN
    return UNKNOWN


def _is_race(program: Program, said: Said) -> bool:
    """Whether memory is used that nobody waited for: a race even where no output comes of it, as in ``x - x``; programs that wait at once have none."""
    return said.rule == "missing-wait" and not _TAKES_A_WAIT.isdisjoint(program.kinds)


def _is_overlap(program: Program, said: Said) -> bool:
    """Whether a line reads elements that it wrote: what it gives depends on the order of a loop, even where no output comes of it."""
    return "overlap" in program.kinds and "elements that it has written before" in said.text


def _is_call_of_some(said: Said) -> bool:
    """Whether a group is made by some processes, or a message is sent that nobody receives: PyTorch asks either of all, gloo notices where the group is used, or the send waited for."""
    mismatch = said.rule == "collective-mismatch"
    return mismatch and ("calls new_group" in said.headline or "which never receives it" in said.headline)


def _refused_for_strides_of_one(program: Program, truth: Truth) -> bool:
    """Whether PyTorch may have refused a call for the strides of dims of one element.

    Whether two views of one memory are the same one it decides by all strides, also by those that no element depends on, and which tensors without elements do not keep:
    ``torch.mul(t, -1, out=t.reshape(t.shape))`` raises where t has a dim of one element.  It raises at once, on every rank.
    """
    refused = truth.kind == "raises" and "single memory location" in truth.text
    return refused and any(word in program.text for word in ("keepdim=True", "unsqueeze", "(1,", ", 1)"))


def settled(first: Judged, second: Judged) -> Judged:
    """A disagreement that was looked at again, with other hash seeds, on more inputs, and with more patience.

    What one run refutes is refuted; but ranks that seem to hang may only have been slow.
    """
    if first.outcome == WRONG_REFINES and first.truth.kind != "hangs" and second.said.verdict == "refines":
        return first
    return second
