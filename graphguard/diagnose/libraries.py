"""Findings whose cause lies in a library: told at the user's own line, and shown where the library computes it as well, and where the user's code came into it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from graphguard.ir import Frame, Graph, Node, Span
from graphguard.refine.finding import Finding, Related
from graphguard.repair.backward.anew import applied_for
from graphguard.repair.text.frames import Sources

_INSTALLED = ("site-packages", "dist-packages")


def with_library(finding: Finding, graph: Graph, node: Node, sources: Sources) -> Finding:
    """The finding, with the innermost line of the library that makes the call it is about, or of which that is the gradient, and the line in the function that the user's code calls.

    Where the library calls code of the user's in between, or computes anew what a forward call did, both lines are told of that call as well.
    As it is where the user's own code makes the call.
    """
    stack = graph.stack_of(node.forward if node.forward >= 0 else node.stack)
    inner = _outside(stack, sources)
    library = library_of(inner[0].span.file) if inner else ""
    if not library:
        return finding
    text = f'it is computed here, in {library}; sources = ["{library}"] counts that as your own'
    applied = applied_for(graph, node)
    way = _way_in(graph.stack_of(min(applied)) if len(applied) == 1 else stack, finding.span, sources)
    through = library_of(way[-1].span.file) if way else ""
    places = {place.span: place for place in finding.related}
    told = [*_told(inner, library, text), *(_told(way, through, f"and for this call, in {through}") if through else ())]
    for one in told:
        places.setdefault(one.span, one)
    return replace(finding, related=tuple(places.values()))


def library_of(file: str) -> str:
    """The installed package that a file belongs to; empty for other files."""
    parts = Path(file).with_suffix("").parts
    start = max((place for place, part in enumerate(parts) if part in _INSTALLED), default=len(parts))
    return next(iter(parts[start + 1 :]), "")


def _told(frames: Iterable[Frame], library: str, text: str) -> Iterator[Related]:
    """The innermost frame of a library, and its function that is called from outside."""
    own = [frame for frame in frames if library_of(frame.span.file) == library]
    named = [frame for frame in own if "<locals>" not in frame.function]
    entered = (named or own)[-1]  # functions in functions are decorators' mostly
    yield Related(own[0].span, text)
    if entered.span != own[0].span:
        yield Related(entered.span, f"called in {entered.function}")


def _way_in(stack: Sequence[Frame], told: Span | None, sources: Sources) -> tuple[Frame, ...]:
    """The frames of libraries that the line told leads to at once; those that the outermost line of the user's does, where it is on another stack."""
    spans = [frame.span for frame in stack]
    within = stack[: spans.index(told)] if told in spans else stack
    outermost = itertools.dropwhile(lambda frame: sources.in_project(frame.span.file), reversed(within))
    return _outside(outermost, sources)[::-1]


def _outside(frames: Iterable[Frame], sources: Sources) -> tuple[Frame, ...]:
    return tuple(itertools.takewhile(lambda frame: not sources.in_project(frame.span.file), frames))
