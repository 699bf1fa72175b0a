"""Drafts for a guess: at its primary place, then wherever else of the project it goes through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from graphguard.ir import Capture, Span
from graphguard.refine.outcome import Location
from graphguard.repair.backward.asked import forward_place
from graphguard.repair.backward.lost_gradients import gathered
from graphguard.repair.drafting.edit_source import drafts_at
from graphguard.repair.graph.edits import (
    AddAfterReduction,
    Bypass,
    InsertReduction,
    MoveSlice,
    Scale,
)
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import size_expressions
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.writing import idioms, source
from graphguard.repair.writing.dead import dead_reduction, use_result
from graphguard.repair.writing.gathers import differentiable
from graphguard.repair.writing.kept_source import of_kept_numbers
from graphguard.repair.writing.meeting import meeting_place
from graphguard.repair.writing.passed import given_instead, passed
from graphguard.repair.writing.source import Draft


def drafts_of(capture: Capture, guess: Hypothesis, sources: Sources) -> Iterator[tuple[Span, Draft]]:
    """Drafts at the primary place of a guess, then at the other frames of the project."""
    rank = min(guess.site.position)
    graph, node = capture.ranks[rank], guess.site.node
    dead = dead_reduction(capture, rank, node) if isinstance(guess.edit, InsertReduction) else None
    unused = None if dead is None else sources.place(graph, dead)
    if dead is not None and unused is not None:
        for program, span in _readable(sources, sources.places(graph, dead)):
            yield from ((unused, draft) for draft in use_result(program, span))
    yield from _elsewhere(capture, guess, rank, sources)
    yield from _passed(capture, guess, rank, sources)
    for program, span in _readable(sources, _places(capture, guess, rank, sources)):
        for draft in drafts_at(capture, guess, rank, program, span, sources):
            yield unused or span, draft if unused is None else replace(draft, place=unused)
    if guess.rule == "wrong-scale" and node.phase == "forward" and node.op in SCALING:
        for program, span in _readable(sources, sources.places(graph, node)):
            yield from ((span, draft) for draft in of_kept_numbers(program, span, capture))


def _readable(sources: Sources, spans: Iterable[Span]) -> Iterator[tuple[Program, Span]]:
    """The places whose files can be read, with these."""
    for span in spans:
        if (program := sources.program(span.file)) is not None:
            yield program, span


def _places(capture: Capture, guess: Hypothesis, rank: int, sources: Sources) -> list[Span]:
    """Where an edit may be written, the most likely place first."""
    graph, node = capture.ranks[rank], guess.site.node
    numbers = sources.numbers(graph, node) if isinstance(guess.edit, Scale | MoveSlice | Bypass) else []
    within = forward_place(graph, node, guess.edit, sources)
    called = sources.forward_call(graph, node) if guess.own_pass else None
    knowing = sources.knowing_place(graph, node) if isinstance(guess.edit, InsertReduction) else None
    first = [place for place in (called, within, knowing) if place is not None]
    others = _shared(capture, guess, rank, sources.places(graph, node), sources)
    return [*(numbers if guess.others else ()), *dict.fromkeys([*first, *others]), *numbers]


def _elsewhere(capture: Capture, guess: Hypothesis, rank: int, sources: Sources) -> Iterator[tuple[Span, Draft]]:
    """Drafts at a place that the guess's own calls do not go through: a gather that passes no gradient, the call whose backward is asked for, where ranks meet."""
    if guess.rule == "gradient-not-reduced" and (gather := gathered(capture, _where(guess), sources)) is not None:
        for program, span in _readable(sources, [gather]):
            yield from ((span, draft) for draft in differentiable(program, span))
    called = sources.forward_call(capture.ranks[rank], guess.site.node) if guess.own_pass else None
    for program, span in _readable(sources, [] if called is None else [called]):
        yield from ((span, draft) for draft in idioms.flip_arguments(program, span, sources.programs()))
    met = meeting_place(capture, guess.edit, sources)
    for program, span in _readable(sources, [] if met is None else [met]):
        assert isinstance(guess.edit, InsertReduction)
        yield from ((span, draft) for draft in source.insert_reduction(program, span, guess.edit, capture))


def _passed(capture: Capture, guess: Hypothesis, rank: int, sources: Sources) -> Iterator[tuple[Span, Draft]]:
    """Drafts for a factor that a function is given, where it is given."""
    node, edit = guess.site.node, guess.edit
    if node.op not in SCALING or not isinstance(edit, Bypass | Scale):
        return
    for span, neutral in passed(capture.ranks[rank], node, sources):
        program = sources.program(span.file)
        if program is None:
            continue
        if isinstance(edit, Bypass):
            yield from ((span, draft) for draft in given_instead(program, span, neutral))
        else:
            value = program.expression(span)
            sizes = size_expressions(program, value, edit.factor, capture) if value is not None else []
            for by in (1 / edit.factor, edit.factor) if ".div" in node.op else (edit.factor, 1 / edit.factor):
                yield from ((span, replace(draft, place=span)) for draft in source.scale(program, span, by, sizes))


def _where(guess: Hypothesis) -> Location:
    """The node of the first rank that a guess is about."""
    rank = min(guess.site.position)
    return Location(rank, guess.site.position[rank])


def _shared(capture: Capture, guess: Hypothesis, rank: int, places: list[Span], sources: Sources) -> list[Span]:
    """Of the places of a guess those through which all that it changes goes: a change at another one makes only some of its edits."""
    if not guess.others or not isinstance(guess.edit, InsertReduction | AddAfterReduction):
        return places
    graph = capture.ranks[rank]
    producers = graph.producers()
    for other in guess.others:
        match other:
            case InsertReduction(tensors=tensors):
                node = producers.get(tensors[rank]) if rank in tensors else None
            case AddAfterReduction(addition=position):
                node = position.get(rank)
            case _:
                node = None
        if node is None:
            return places
        mine = sources.places(graph, graph.nodes[node])
        places = [place for place in places if place in mine] or places
    return places
