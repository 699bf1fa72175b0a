"""What is said of the tensors under the cursor: one line for what all ranks have, in the words of layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from graphguard.ir.spans import Span
from graphguard.relations.layouts import layout_of
from graphguard_server.state.checks import Run
from graphguard_server.state.session import Session
from graphguard_server.texts.places import Place, Point, bounds_of_assigned

Bounds: TypeAlias = tuple[Point, Point]
NameEnd: TypeAlias = tuple[str, Point]

MOST_OPERANDS: Final = 4
_ORDER: Final = ("forward", "step", "backward")


@dataclass(frozen=True, slots=True)
class Line:
    """A tensor of one program, or of both: whose, its shape (such as ``2×5×8``), what it is, and what it was made of."""

    whose: str
    shape: str
    words: str
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """A name that a value with a known relation is assigned to: where it ends now (line and column from 0), and the value's places of the forward pass, in order of execution."""

    run: Run
    name: str
    line: int
    column: int
    places: tuple[Place, ...]


def assigned_in(session: Session, path: str) -> Iterator[Assigned]:
    """The assigned names of a file as it stands, those of fresh results first; a stale result tells of the names that still stand where its own do."""
    lines = session.documents.lines(path)
    for run in sorted(session.runs_in(path), key=lambda run: run.stale):
        if run.places is None or path not in run.snapshot:
            continue
        names = bounds_of_assigned(run.snapshot[path])
        move = session.converter.move(run, path)
        for (name, end), places in _by_name(run.places, path, names).items():
            line, column = move(*end)
            if line < len(lines) and lines[line][:column].endswith(name):
                yield Assigned(run, name, line, column, tuple(places))


def _by_name(places: Sequence[Place], path: str, names: Mapping[Bounds, NameEnd]) -> dict[NameEnd, list[Place]]:
    found: dict[NameEnd, list[Place]] = {}
    for place in places:
        span = place.span
        bounds = (span.line - 1, span.column - 1), (span.end_line - 1, span.end_column - 1)
        if span.file == path and place.phase == "forward" and bounds in names:
            found.setdefault(names[bounds], []).append(place)
    return found


def lines_of(places: Sequence[Place], mesh: Mapping[str, int], called: Callable[[Span], str]) -> Iterator[Line]:
    """What places of one source range say, phase by phase; what both programs say alike is said once.

    ``called`` gives what the user calls the value of a span: its name, else the expression; empty where neither is known.
    """
    for phase in sorted({place.phase for place in places}, key=_position):
        here = [place for place in places if place.phase == phase]
        spec = [
            Line("specification", _shape(place), place.layout or place.text, tuple(_read([place], mesh, called)))
            for place in here
            if place.side == "specification"
        ]
        ranks = list(_of_ranks([place for place in here if place.side != "specification"], mesh, called))
        if spec and len(ranks) == 1 and spec[0].words == ranks[0].words:
            shapes = dict.fromkeys((spec[0].shape, ranks[0].shape))
            spec, ranks = [], [Line("", " on each rank ".join(shapes), ranks[0].words, spec[0].made_of)]
        gradient = ("gradient, ", "gradient") if phase == "backward" else ("", "")
        for line in (*spec, *ranks):
            yield replace(line, whose=gradient[0] + line.whose if line.whose else gradient[1])


def _of_ranks(places: Sequence[Place], mesh: Mapping[str, int], called: Callable[[Span], str]) -> Iterator[Line]:
    words = laid_out(places, mesh)
    if words:
        shapes = dict.fromkeys(_shape(place) for place in places)
        yield Line("every rank", " or ".join(shapes), words, tuple(_read(places, mesh, called)))
        return
    for place in places:
        yield Line(_ranks(place.ranks), _shape(place), place.text, tuple(_read([place], mesh, called)))


def laid_out(places: Sequence[Place], mesh: Mapping[str, int]) -> str:
    """The layout that the ranks' tensors of one expression have together; empty where no words say it."""
    known = {place.layout for place in places}
    return (known.pop() if len(known) == 1 else "") or layout_of(
        {rank: place.text for place in places for rank in place.ranks}, mesh
    )


def _read(places: Sequence[Place], mesh: Mapping[str, int], called: Callable[[Span], str]) -> Iterator[str]:
    """What these places read, by the user's expressions and in words where they say it; nothing where ranks read different things."""
    if len({tuple(operand.span or operand.name for operand in place.operands) for place in places}) > 1:
        return
    for column in zip(*(place.operands for place in places), strict=True):
        first = column[0]
        texts = {rank: one.text for place, one in zip(places, column, strict=True) for rank in place.ranks}
        words = first.layout or layout_of(texts, mesh) or first.text
        name = (called(first.span) if first.span is not None else "") or first.name
        yield f"{name}: {words}" if name else words


def _position(phase: str) -> int:
    return _ORDER.index(phase) if phase in _ORDER else len(_ORDER)


def _shape(place: Place) -> str:
    return "×".join(map(str, place.shape)) or "scalar"


def _ranks(ranks: Sequence[int]) -> str:
    if not ranks:
        return "every rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
