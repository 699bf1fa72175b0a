"""Whole programs by content: one that was proved before, as it is or under another layout of its source, is known after one walk over its calls.

A program is spelt like a stage (:mod:`graphguard.refine.stages.spelling`), with everything that texts are made of beside it: names of leaves, outputs and promises.  So what
is remembered is what was found, word for word.  Programs that cannot be cut profit as well, in another process, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from graphguard.ir import Capture, Graph
from graphguard.ir.fuel import burnt
from graphguard.refine.found.frontiers import cautions_of
from graphguard.refine.found.promises import needed_by
from graphguard.refine.outcome import Outcome, PromiseOutcome
from graphguard.refine.proving.memo import Memo, Program, Waiting
from graphguard.refine.stages.calls import Row, Unspelt
from graphguard.refine.stages.cuts import Division, Stage
from graphguard.refine.stages.flow import labelled
from graphguard.refine.stages.spelling import Speller
from graphguard.refine.stages.twins import Programs

_LARGEST: Final = 50_000  # calls; a larger program is only known stage by stage
_SMALL: Final = (
    5_000  # calls; a program with cuts, of which one layer may be edited, is known as a whole up to this size
)
_PHASE: Final = attrgetter("phase")


def recalled(capture: Capture, memo: Memo, started: float) -> tuple[Outcome | None, Spelling | None]:
    """The outcome of a program that was proved before, and the program's spelling where it was needed to know.

    In memory only programs of one size are spelt, and only when a second one comes: a program that is proved once is walked over once less.
    """
    size = capture.calls
    for other in memo.waiting(size):
        spelling = spelt(other.capture, memo)
        if spelling is not None:
            spelling.learn(other.outcome, cut=other.cut)
    if not memo.may_know(size):
        return None, None
    spelling = spelt(capture, memo)
    known = None if spelling is None else spelling.known()
    return None if spelling is None or known is None else spelling.outcome(known, started), spelling


def is_like_one_known(capture: Capture, memo: Memo) -> bool:
    """Whether memory has a program of as many calls."""
    return capture.spec is not None and memo.has_one_of(capture.calls)


def remember(capture: Capture, memo: Memo, outcome: Outcome, spelling: Spelling | None, *, cut: bool) -> None:
    """Remember a proof, now or when a program of its size comes again; a program that is ``cut`` is known by its stages already."""
    if spelling is not None:
        spelling.learn(outcome, cut=cut)
    elif capture.calls <= (_SMALL if cut else _LARGEST):
        memo.wait(capture.calls, Waiting(capture, outcome, cut))


@dataclass(frozen=True, slots=True)
class Spelling:
    """A capture's rows, by which a memo knows it."""

    capture: Capture
    memo: Memo
    rows: tuple[Row, ...]

    def outcome(self, known: Program, started: float) -> Outcome:
        """What is known, told of this capture."""
        promises = tuple(
            PromiseOutcome(promise.name, True, needed_by(promise, self.capture), found)
            for promise, found in zip(self.capture.promises, known.found, strict=True)
        )
        fuel = burnt() - started
        return Outcome(True, promises, assumed=known.assumed, cautions=cautions_of(self.capture), fuel=fuel)

    def known(self) -> Program | None:
        """What the memo knows of the program."""
        known = self.memo.program(self.rows)
        return known if known is not None and len(known.found) == len(self.capture.promises) else None

    def learn(self, outcome: Outcome, *, cut: bool) -> None:
        """Remember a proof."""
        self.memo.learn(
            self.capture.calls,
            self.rows,
            Program(tuple(promise.found for promise in outcome.promises), outcome.assumed),
            cut=cut,
        )


def spelt(capture: Capture, memo: Memo) -> Spelling | None:
    """The spelling of a capture; None where it has none, or is too large to be kept."""
    assert capture.spec is not None
    graphs = (capture.spec, *capture.ranks)
    if capture.calls > _LARGEST:
        return None
    try:
        speller = Speller(_undivided(capture, graphs), {leaf.name: leaf for leaf in capture.leaves}, {})
        whole = speller.division.stages[0]
        rows = [*speller.stage(whole, {}).rows, *speller.promised(whole)[0].rows]
    except Unspelt:
        return None
    named = (_named(graph, speller, place) for place, graph in enumerate(graphs))
    return Spelling(capture, memo, (*_words(capture), *named, *rows))


def _undivided(capture: Capture, graphs: tuple[Graph, ...]) -> Division:
    """The capture as one stage that makes every tensor; raises ``Unspelt``."""
    programs = Programs.of(graphs)
    every = tuple(range(len(graph.nodes)) for graph in graphs)
    home = tuple(dict.fromkeys(said.kinds, 0) for said in programs.calls)
    return Division(
        stages=(Stage(0, every, capture.promises),),
        cuts=(),
        graphs=graphs,
        home=home,
        made=home,
        early=tuple(set() for _ in graphs),
        own=every,
        programs=programs,
        labelled=tuple(map(labelled, graphs[1:])),
    )


def _words(capture: Capture) -> Iterator[Row]:
    """What the outcome of a proof depends on or speaks of beside the calls."""
    yield (
        "job",
        tuple(capture.mesh.items()),
        len(capture.ranks),
        tuple(sorted(capture.traits.items())),
        capture.assumed,
    )
    for leaf in capture.leaves:
        value = None if leaf.value is None else leaf.value.digest
        yield ("leaf", leaf.name, leaf.kind, leaf.type.shape, leaf.type.dtype, leaf.low, leaf.high, leaf.ignored, value)
    for promise in capture.promises:
        yield ("promise", promise.name, repr(promise.wanted))


def _named(graph: Graph, speller: Speller, place: int) -> Row:
    """A graph's outputs, inputs and labels by number, and where its phases begin and end."""
    tables = (graph.outputs.items(), ((name, var) for var, name in (*graph.inputs.items(), *graph.labels.items())))
    names = tuple((name, speller.number(place, var.id)) for table in tables for name, var in table)
    return ("named", names, tuple((phase, sum(1 for _ in run)) for phase, run in groupby(map(_PHASE, graph.nodes))))
