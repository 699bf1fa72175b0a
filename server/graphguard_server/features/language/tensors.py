"""What is said of the tensors under the cursor: one line for what all ranks have, in the words of layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir.spans import Span
from graphguard.relations.layouts import layout_of
from graphguard_server.texts.places import Place

MOST_OPERANDS: Final = 4
_ORDER: Final = ("forward", "step", "backward")


@dataclass(frozen=True, slots=True)
class Line:
    """A tensor of one program, or of both: whose, its shape (such as ``2×5×8``), what it is, and what it was made of."""

    whose: str
    shape: str
    words: str
    made_of: tuple[str, ...] = ()


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
