"""From a repair of the graphs to edited sources worth tracing, best first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.refine.finding import Finding
from graphguard.repair.backward.lost_gradients import switched_on
from graphguard.repair.backward.stopped import attached
from graphguard.repair.drafting.bypassed import through_wrapper
from graphguard.repair.drafting.drafted import drafts_of
from graphguard.repair.graph.edits import InsertReduction, Scale
from graphguard.repair.text.frames import Read, Sources
from graphguard.repair.trying.alike import EVERYTHING
from graphguard.repair.trying.diagnosed import Diagnosis
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.writing.applied import apart, applied, renamed
from graphguard.repair.writing.gathers import differentiable
from graphguard.repair.writing.losses import passed_losses, scaled_losses
from graphguard.repair.writing.packed_source import cut_by_parts
from graphguard.repair.writing.source import Draft
from graphguard.repair.writing.words import factor_text
from graphguard.report.diagnostics import Fix, TextEdit

_REDUCES = "reduce the gradient of "  # what the titles of such drafts begin with
ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fix that is not proved yet, and the texts of the files after it; ``headline`` says what is wrong where it is another thing than was found first."""

    fix: Fix
    texts: dict[str, str]
    headline: str = ""


def candidates(
    capture: Capture, diagnosis: Diagnosis, index: int, read: Read, before: tuple[TextEdit, ...] = ()
) -> list[Candidate]:
    """Edited sources for a finding: first for the repair that was confirmed, then for those that mend as much.

    ``before`` are the edits of other findings' fixes, which the texts have as well.
    """
    repair, sources = diagnosis.repairs[index], Sources.of(capture, read)
    if repair is None:
        return _by_place(diagnosis.findings[index].span, sources, before)
    wrapped = through_wrapper(capture, repair, sources) if not before else ()
    capture = repair.before
    found = {each.fix.edits: each for each in _of_losses(capture, diagnosis, index, sources, before)}
    for each in _of_passes(capture, repair.hypothesis, sources, before):
        found.setdefault(each.fix.edits, each)
    for draft in wrapped:
        if (texts := applied(draft.edits, sources)) is not None:
            found[draft.edits] = Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts)
    for guess in (repair.hypothesis, *repair.alternatives):
        for place, draft in named_first(drafts_of(capture, guess, sources), diagnosis.findings[index]):
            draft = renamed(draft, before)
            texts = applied((*before, *draft.edits), sources) if apart(before, draft.edits) else None
            if texts is not None and draft.edits not in found:
                moved = _bytes(capture, guess)
                told = (draft.place or place) if guess is repair.hypothesis else None
                fix = Fix(draft.title, draft.edits, proved=False, bytes_moved=moved, place=told)
                found[draft.edits] = Candidate(fix, texts)
    return list(found.values())


def named_first(drafts: Iterable[tuple[Span, Draft]], finding: Finding) -> list[tuple[Span, Draft]]:
    """Drafts that reduce the gradient of another tensor than the one that was found come last: the call around it gives another."""
    named, other = f"{_REDUCES}{finding.tensor} ", _REDUCES if finding.tensor else "\n"
    return sorted(drafts, key=lambda row: row[1].title.startswith(other) and not row[1].title.startswith(named))


def _of_losses(
    capture: Capture, diagnosis: Diagnosis, index: int, sources: Sources, before: tuple[TextEdit, ...]
) -> Iterator[Candidate]:
    """Scaled losses, where all that is wrong is wrong by the same factor and several findings say so."""
    alike = diagnosis.findings[index].alike
    if before or not alike.startswith(EVERYTHING) or sum(other.alike == alike for other in diagnosis.findings) < 2:
        return
    factor = 1 / Fraction(alike.removeprefix(EVERYTHING))
    for program in sources.programs():
        for draft in scaled_losses(program, factor, capture):
            if (texts := applied(draft.edits, sources)) is not None:
                name = sources.tensor_at(draft.place)
                told = f"'{name}' is {factor_text(1 / factor, capture)} times what the specification computes, and so is all that is computed of it"
                yield Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts, told)


def _of_passes(
    capture: Capture, guess: Hypothesis, sources: Sources, before: tuple[TextEdit, ...]
) -> Iterator[Candidate]:
    """Scaled losses of a loop, where a gradient is so many times too large as the loop is passed."""
    if not isinstance(guess.edit, Scale) or guess.edit.factor.numerator != 1 or guess.edit.factor == 1:
        return
    times = guess.edit.factor.denominator
    graph = capture.ranks[min(guess.site.position)]

    def passes(place: Span) -> int:
        stacks = [graph.stack_of(node.stack) for node in graph.nodes if node.phase == "forward" and node.stack >= 0]
        made = Counter(stack for stack in stacks if any(frame.span == place for frame in stack))
        return min(made.values(), default=0)

    for program in sources.programs():
        for draft in passed_losses(program, times, passes, capture):
            edits = (*before, *draft.edits)
            texts = applied(edits, sources) if apart(before, draft.edits) else None
            if texts is not None:
                name = sources.tensor_at(draft.place)
                told = (
                    f"'{name}' is that of one of {times} passes of the loop, which are added up where their mean is needed:"
                    f" what comes of it is {times} times too large"
                )
                yield Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts, told)


def _by_place(span: Span | None, sources: Sources, before: tuple[TextEdit, ...]) -> list[Candidate]:
    """Edits that the place alone suggests, where no edit of the graphs was confirmed."""
    program = sources.program(span.file) if span is not None else None
    found = []
    drafts = (
        (
            *attached(program, span),
            *differentiable(program, span),
            *switched_on(program, span),
            *cut_by_parts(program, span),
        )
        if program is not None and span is not None
        else ()
    )
    for draft in drafts:
        texts = applied((*before, *draft.edits), sources) if apart(before, draft.edits) else None
        if texts is not None:
            found.append(Candidate(Fix(draft.title, draft.edits, proved=False, place=span), texts))
    return found


def _bytes(capture: Capture, guess: Hypothesis) -> int:
    """Bytes that a repair sends per rank: the sizes of the tensors that it reduces."""
    reduced = [next(iter(edit.tensors.items())) for edit in guess.edits if isinstance(edit, InsertReduction)]
    kinds = [capture.ranks[rank].types[var] for rank, var in reduced]
    return sum(
        math.prod(n for n in kind.shape if isinstance(n, int)) * ELEMENT_BYTES.get(kind.dtype, 4) for kind in kinds
    )
