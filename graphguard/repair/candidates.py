"""From a repair of the graphs to edited sources worth tracing, best first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphguard.ir import Capture, Span
from graphguard.repair import gradients, source
from graphguard.repair.diagnosis import Diagnosis
from graphguard.repair.edits import AddAfterReduction, Bypass, InsertReduction, Scale, SetArgument
from graphguard.repair.frames import Read, Sources
from graphguard.repair.hypotheses import Hypothesis
from graphguard.repair.program import Program, parse
from graphguard.repair.source import Draft
from graphguard.repair.vocabulary import group_expressions
from graphguard.report.diagnostics import Fix, TextEdit

ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fix that is not proved yet, and the texts of the files after it."""

    fix: Fix
    texts: dict[str, str]


def candidates(capture: Capture, diagnosis: Diagnosis, index: int, read: Read) -> list[Candidate]:
    """Edited sources for a finding: first for the repair that was confirmed, then for those that mend as much."""
    repair = diagnosis.repairs[index]
    if repair is None:
        return []
    sources = Sources.of(capture, read)
    found: dict[tuple[TextEdit, ...], Candidate] = {}
    for guess in (repair.hypothesis, *repair.alternatives):
        for draft in _drafts(capture, guess, sources):
            texts = _applied(draft, sources)
            if texts is not None and draft.edits not in found:
                fix = Fix(draft.title, draft.edits, proved=False, bytes_moved=_bytes(capture, guess))
                found[draft.edits] = Candidate(fix, texts)
    return list(found.values())


def _drafts(capture: Capture, guess: Hypothesis, sources: Sources) -> Iterator[Draft]:
    rank = min(guess.site.position)
    span = sources.place(capture.ranks[rank], guess.site.node)
    program = sources.program(span.file) if span is not None else None
    if span is None or program is None:
        return
    match guess.edit:
        case InsertReduction(axis=axis) if guess.site.node.phase == "backward":
            yield from _gradient(capture, program, span, axis)
        case InsertReduction() as edit:
            yield from source.insert_reduction(program, span, edit, capture)
        case Bypass():
            yield from source.remove_call(program, span)
        case Scale(factor=factor):
            yield from source.divide_after(program, span, factor)
            yield from source.scale(program, span, factor)
        case SetArgument(what="reduce", values=values):
            yield from source.change_reduce(program, span, str(values[rank]))
        case SetArgument(what=axis) if guess.rule == "wrong-group":
            yield from source.change_group(program, span, axis, capture)
        case AddAfterReduction(reduction=position):
            reduction = sources.place(capture.ranks[rank], capture.ranks[rank].nodes[position[rank]])
            if reduction is not None:
                yield from source.add_after_reduction(program, span, reduction)


def _gradient(capture: Capture, program: Program, span: Span, axis: str) -> Iterator[Draft]:
    call = program.expression(span)
    if call is None:
        return
    groups = group_expressions(program, call, axis)
    if capture.mesh[axis] == capture.world_size:
        groups.append("")
    yield from gradients.in_backward(program, span, axis)
    yield from gradients.wrapped_operand(program, span, axis, groups)


def _applied(draft: Draft, sources: Sources) -> dict[str, str] | None:
    """The texts after a draft, or None where they would not parse."""
    by_file: dict[str, list[TextEdit]] = {}
    for edit in draft.edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    texts: dict[str, str] = {}
    for file, edits in by_file.items():
        text = sources.read(file)
        if text is None:
            return None
        texts[file] = edited(text, edits)
        if parse(file, texts[file]) is None:
            return None
    return texts


def edited(text: str, edits: list[TextEdit]) -> str:
    """A text after edits that do not overlap; line ends stay as they are."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return min(starts[min(line - 1, len(lines))] + column - 1, len(text))

    newline = "\r\n" if "\r\n" in text else "\n"
    places: Mapping[TextEdit, tuple[int, int]] = {
        edit: (offset(edit.span.line, edit.span.column), offset(edit.span.end_line, edit.span.end_column))
        for edit in edits
    }
    for edit in sorted(edits, key=lambda item: places[item], reverse=True):
        start, stop = places[edit]
        text = text[:start] + edit.text.replace("\n", newline) + text[stop:]
    return text


def _bytes(capture: Capture, guess: Hypothesis) -> int:
    """Bytes that a repair sends per rank: the size of the tensor that it reduces."""
    if not isinstance(guess.edit, InsertReduction):
        return 0
    rank, var = next(iter(guess.edit.tensors.items()))
    kind = capture.ranks[rank].types[var]
    sizes = [size for size in kind.shape if isinstance(size, int)]
    return math.prod(sizes) * ELEMENT_BYTES.get(kind.dtype, 4)
