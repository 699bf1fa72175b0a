"""Findings whose cause lies in a library: told at the user's own line, and shown where the library computes it as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphguard.ir import Graph, Node
from graphguard.refine.finding import Finding, Related
from graphguard.repair.text.frames import Sources

_INSTALLED = ("site-packages", "dist-packages")


def with_library(finding: Finding, graph: Graph, node: Node, sources: Sources) -> Finding:
    """The finding, with the innermost line of the library that makes the call it is about, or of which that is the gradient; as it is where the user's own code makes it."""
    inner = next((frame for frame in graph.stack_of(node.forward if node.forward >= 0 else node.stack)), None)
    if inner is None or sources.in_project(inner.span.file):
        return finding
    library = _library(inner.span.file)
    if not library:
        return finding
    place = Related(inner.span, f'it is computed here, in {library}; sources = ["{library}"] counts that as your own')
    return replace(finding, related=(*finding.related, place))


def _library(file: str) -> str:
    """The installed package that a file belongs to; empty for other files."""
    parts = Path(file).with_suffix("").parts
    start = max((place for place, part in enumerate(parts) if part in _INSTALLED), default=len(parts))
    return next(iter(parts[start + 1 :]), "")
