"""Whether a statement hands on to another one what tensors hold, as the recorded calls say: through names, objects, buffers or views, whatever the text says of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from graphguard.ir import Graph
from graphguard.ir.graph import COLLECTIVES

Line = tuple[str, int]


@dataclass(slots=True)
class Flows:
    """The calls of the ranks by the lines of all functions that were running, each graph with its own."""

    graphs: Iterable[Graph]
    _by_line: list[tuple[Graph, dict[Line, set[int]]]] = field(default_factory=list)

    def between(self, file: str, first: ast.stmt, second: ast.stmt) -> bool:
        """Whether a call that the second of two statements makes reads what one of the first gave or changed, or exchanges what one of the first has read before."""
        for graph, lines in self._lines():
            earlier = [graph.nodes[index] for index in _under(lines, file, first)]
            later = [graph.nodes[index] for index in _under(lines, file, second)] if earlier else []
            given = {out for node in earlier for out in node.outs}
            read = {var for node in earlier for var in node.reads}
            for node in later:
                if not given.isdisjoint(node.reads) or (node.op in COLLECTIVES and not read.isdisjoint(node.reads)):
                    return True
        return False

    def _lines(self) -> list[tuple[Graph, dict[Line, set[int]]]]:
        if not self._by_line:
            self._by_line = [(graph, _by_line(graph)) for graph in self.graphs]
        return self._by_line


def _by_line(graph: Graph) -> dict[Line, set[int]]:
    found: defaultdict[Line, set[int]] = defaultdict(set)
    for index, node in enumerate(graph.nodes):
        for frame in graph.stack_of(node.stack):
            found[frame.span.file, frame.span.line].add(index)
    return dict(found)


def _under(lines: dict[Line, set[int]], file: str, statement: ast.stmt) -> set[int]:
    """The calls that were made while a statement ran."""
    last = statement.end_lineno or statement.lineno
    return set().union(*(lines.get((file, line), ()) for line in range(statement.lineno, last + 1)))
