"""Programs evaluated over finite fields, operator by operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphguard.confirm.fields.fields import Fields
from graphguard.confirm.fields.point_run import PointRun, RuleFailedError
from graphguard.confirm.fields.residues import Residues
from graphguard.confirm.run.ranges import IndexRange, index_ranges
from graphguard.ir import Capture, Constant, Graph, Leaf, Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import JoinedCall
from graphguard.ir.strict import STRICT
from graphguard.relations.algebra import Unsupported
from graphguard.rules import kind_of, parse_traits


class FieldRun:
    """Both programs over the fields; ``literal`` gives the elements of constants.  All raise :class:`Unsupported`."""

    def __init__(self, capture: Capture, fields: Fields, literal: Callable[[Constant], np.ndarray]) -> None:
        self.capture = capture
        self.fields = fields
        self.elements = literal
        self._calls = PointRun(fields, parse_traits(capture.traits))
        spans = index_ranges(capture)
        self.leaves = {leaf.name: self._leaf(leaf, spans.get(leaf.name)) for leaf in capture.leaves}

    def _leaf(self, leaf: Leaf, span: IndexRange | None) -> Residues:
        if leaf.value is not None:
            return self._literal(leaf.value)
        low, high = (span.low, span.high) if span is not None else (None, None)
        value = self.fields.leaf(leaf.name, _shape(leaf.type.shape), kind_of(leaf.type.dtype), low, high)
        self.fields.hold(value, leaf.type.dtype)
        return value

    def _literal(self, constant: Constant) -> Residues:
        if constant.data is None:
            return self.fields.leaf(
                f"literal {constant.digest}", _shape(constant.type.shape), kind_of(constant.type.dtype)
            )
        return self.fields.literal(self.elements(constant))

    def _start(self, graph: Graph) -> dict[Var, Residues]:
        values = {var: self.leaves[name] for var, name in graph.inputs.items()}
        values.update((var, self._literal(constant)) for var, constant in graph.constants.items())
        return values

    def run(self, node: Node, graph: Graph, values: dict[Var, Residues]) -> None:
        """Add what a node gives to the values that are known."""
        try:
            results = self._calls.results(node, graph, values)
        except RuleFailedError as error:
            if STRICT and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        values.update(zip(node.outs, results, strict=True))

    def specification(self, graph: Graph) -> dict[Var, Residues]:
        """All that the specification computes."""
        values = self._start(graph)
        for node in graph.nodes:
            self.run(node, graph, values)
        return values

    def ranks(self, order: tuple[tuple[int, int] | JoinedCall, ...]) -> list[dict[Var, Residues]]:
        """All that every rank computes."""
        graphs = self.capture.ranks
        values = [self._start(graph) for graph in graphs]
        for step in order:
            if isinstance(step, JoinedCall):
                for rank, results in self._calls.exchange(step, graphs, values).items():
                    values[rank].update(zip(graphs[rank].nodes[step.nodes[rank]].outs, results, strict=True))
            elif graphs[step[0]].nodes[step[1]].op not in COLLECTIVES:
                self.run(graphs[step[0]].nodes[step[1]], graphs[step[0]], values[step[0]])
        return values


def _shape(sizes: tuple[object, ...]) -> tuple[int, ...]:
    shape = tuple(size for size in sizes if isinstance(size, int))
    if len(shape) != len(sizes):
        raise Unsupported("a size known only when the program runs")
    return shape
