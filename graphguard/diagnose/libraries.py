"""Findings whose cause lies in a library: told at the user's own line, and shown where the library computes it as well."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from graphguard.ir import Graph, Node
from graphguard.refine.finding import Finding, Related
from graphguard.repair.text.frames import Sources

_INSTALLED = ("site-packages", "dist-packages")


def with_library(finding: Finding, graph: Graph, node: Node, sources: Sources) -> Finding:
    """The finding, with the innermost line of the library that makes the call it is about, or of which that is the gradient, and the line in the function that the user's code calls.

    As it is where the user's own code makes the call.
    """
    stack = graph.stack_of(node.forward if node.forward >= 0 else node.stack)
    frames = list(itertools.takewhile(lambda frame: not sources.in_project(frame.span.file), stack))
    library = _library(frames[0].span.file) if frames else ""
    if not library:
        return finding
    inner = frames[0]
    named = [one for one in frames if _library(one.span.file) == library and "<locals>" not in one.function]
    entered = (named or [inner])[-1]  # functions in functions are decorators' mostly
    places = [
        Related(inner.span, f'it is computed here, in {library}; sources = ["{library}"] counts that as your own')
    ]
    if entered.span != inner.span:
        places.append(Related(entered.span, f"called in {entered.function}"))
    return replace(finding, related=(*finding.related, *places))


def _library(file: str) -> str:
    """The installed package that a file belongs to; empty for other files."""
    parts = Path(file).with_suffix("").parts
    start = max((place for place, part in enumerate(parts) if part in _INSTALLED), default=len(parts))
    return next(iter(parts[start + 1 :]), "")
