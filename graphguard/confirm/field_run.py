"""Programs evaluated over finite fields, operator by operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphguard.confirm.fields import Fields
from graphguard.confirm.ranges import IndexRange, index_ranges
from graphguard.confirm.residues import Residues
from graphguard.ir import Capture, Constant, Graph, Leaf, Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import JoinedCall
from graphguard.relations.algebra import Unsupported
from graphguard.rules import combine, evaluate_node, kind_of, parse_traits


class FieldRun:
    """Both programs over the fields; ``literal`` gives the elements of constants.  All raise :class:`Unsupported`."""

    def __init__(self, capture: Capture, fields: Fields, literal: Callable[[Constant], np.ndarray]) -> None:
        self.capture = capture
        self.fields = fields
        self.elements = literal
        self.traits = parse_traits(capture.traits)
        spans = index_ranges(capture)
        self.leaves = {leaf.name: self._leaf(leaf, spans.get(leaf.name)) for leaf in capture.leaves}

    def _leaf(self, leaf: Leaf, span: IndexRange | None) -> Residues:
        if leaf.value is not None:
            return self._literal(leaf.value)
        low, high = (span.low, span.high) if span is not None else (None, None)
        return self.fields.leaf(leaf.name, _shape(leaf.type.shape), kind_of(leaf.type.dtype), low, high)

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
            results = evaluate_node(self.fields, node, graph, values, traits=self.traits)
        except Unsupported:
            raise
        except Exception as error:  # a defect of a rule costs this opinion, not the verdict
            raise Unsupported(f"the rule of {node.op} failed: {type(error).__name__} {error}") from error
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
                for rank, results in self._exchange(step, values).items():
                    values[rank].update(zip(graphs[rank].nodes[step.nodes[rank]].outs, results, strict=True))
            elif graphs[step[0]].nodes[step[1]].op not in COLLECTIVES:
                self.run(graphs[step[0]].nodes[step[1]], graphs[step[0]], values[step[0]])
        return values

    def _exchange(self, call: JoinedCall, values: list[dict[Var, Residues]]) -> dict[int, list[Residues]]:
        members = call.group
        nodes = {rank: self.capture.ranks[rank].nodes[index] for rank, index in call.nodes.items()}
        given = {rank: [values[rank][var] for var in node.operands()] for rank, node in nodes.items()}
        first = nodes[members[0]]
        match call.kind:
            case "gg.barrier":
                return {rank: [] for rank in members}
            case "gg.send":
                source, destination = members
                return {source: [], destination: given[source]}
            case "gg.all_reduce":
                total = combine(self.fields, str(first.args[1]), [given[rank][0] for rank in members])
                return {rank: [total] for rank in members}
            case "gg.all_gather":
                return {rank: [given[other][0] for other in members] for rank in members}
            case "gg.all_to_all":
                return {rank: [given[other][place] for other in members] for place, rank in enumerate(members)}
            case "gg.reduce_scatter":
                columns = enumerate(members)
                how = str(first.args[1])
                return {
                    rank: [combine(self.fields, how, [given[o][place] for o in members])] for place, rank in columns
                }
            case "gg.broadcast" if isinstance(first.args[1], int):
                return dict.fromkeys(members, given[first.args[1]])
            case _:
                raise Unsupported(f"a collective of kind {call.kind}")


def _shape(sizes: tuple[object, ...]) -> tuple[int, ...]:
    shape = tuple(size for size in sizes if isinstance(size, int))
    if len(shape) != len(sizes):
        raise Unsupported("a size known only when the program runs")
    return shape
