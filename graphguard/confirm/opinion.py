"""A second opinion on a capture from finite fields: is the engine incomplete, or the program wrong?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch

from graphguard.confirm.draws import index_ranges
from graphguard.confirm.elements import DTYPES, UnrunnableError
from graphguard.confirm.fields import Fields, P, Residues
from graphguard.confirm.promises import Comparison, comparisons, copied_axes, held_values, preludes_of
from graphguard.confirm.replay import Values, constant_value
from graphguard.confirm.shrink import shrunk
from graphguard.ir import Capture, Constant, Graph, Leaf, Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import JoinedCall, join
from graphguard.relations.algebra import Unsupported
from graphguard.rules import combine, evaluate_node, kind_of, parse_traits

ELEMENTS: Final = 200_000  # of one tensor; integers have no fast products


@dataclass(frozen=True, slots=True)
class Opinion:
    """What finite fields say.

    ``equal``: every promise holds at a random point, so the programs are very likely equal.  ``differs``: the promises in ``differing`` fail and nothing on the
    way was guessed.  ``unsure``: they fail, but functions without a meaning in a field (``guessed``) may be why; or it could not be run (``reason``).
    """

    status: Literal["equal", "differs", "unsure"]
    differing: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    reason: str = ""


def second_opinion(capture: Capture, points: int = 3) -> Opinion:
    """Evaluate both programs at random points of a pair of finite fields, at reduced extents where they are large."""
    capture = shrunk(capture) or capture if _elements(capture) > ELEMENTS else capture
    if capture.spec is None or _elements(capture) > ELEMENTS:
        return Opinion("unsure", reason="too large for finite fields")
    # One point may be on the side of a comparison where both programs agree.
    for seed in range(points):
        opinion = _at_point(capture, seed)
        if opinion.status != "equal":
            break
    return opinion


def _at_point(capture: Capture, seed: int) -> Opinion:
    assert capture.spec is not None
    joined = join(capture.ranks)
    if joined.mismatches:
        return Opinion("unsure", reason=joined.mismatches[0].message.splitlines()[0])
    run = _Run(capture, Fields(seed))
    try:
        spec = run.specification(capture.spec)
        ranks = run.ranks(joined.order)
        preludes = preludes_of(capture)
        differing = [
            promise.name
            for promise in capture.promises
            if _fails(comparisons(capture, promise, spec, ranks, preludes, _summed(capture, promise.name, ranks)))
        ]
    except (Unsupported, UnrunnableError) as error:
        return Opinion("unsure", reason=str(error))
    guessed = tuple(sorted(run.fields.guessed))
    if not differing:
        return Opinion("equal", guessed=guessed)
    return Opinion("unsure" if guessed else "differs", tuple(differing), guessed)


def _summed(capture: Capture, name: str, ranks: list[Values]) -> list[str]:
    """The axes along which ranks may hold parts of a sum; equal residues at a random point are copies."""
    copied = copied_axes(capture, held_values(capture, name, ranks))
    return [axis for axis in capture.mesh if axis not in copied]


def _elements(capture: Capture) -> int:
    graphs = [graph for graph in (capture.spec, *capture.ranks) if graph is not None]
    sizes = (
        math.prod(n for n in kind.shape if isinstance(n, int)) for graph in graphs for kind in graph.types.values()
    )
    return max(sizes, default=0)


def _fails(alternatives: list[list[Comparison]]) -> bool:
    return all(any(_differ(comparison) for comparison in option) for option in alternatives)


def _differ(comparison: Comparison) -> bool:
    if not comparison.shaped:
        return True
    if comparison.expected.dtype == torch.bool:
        return bool((comparison.expected != comparison.found).any())
    # Residues: a sum over ranks has not been reduced yet.
    return bool(((comparison.expected - comparison.found) % P != 0).any())


class _Run:
    """Both programs over the fields; residues modulo p go out as tensors, for the promises to be compared like numbers."""

    def __init__(self, capture: Capture, fields: Fields) -> None:
        self.capture = capture
        self.fields = fields
        self.traits = parse_traits(capture.traits)
        spans = index_ranges(capture)
        self.leaves = {leaf.name: self._leaf(leaf, spans.get(leaf.name)) for leaf in capture.leaves}

    def _leaf(self, leaf: Leaf, span: tuple[int, int] | None) -> Residues:
        if leaf.value is not None:
            return self._literal(leaf.value)
        low, high = span if span is not None else (None, None)
        return self.fields.leaf(leaf.name, _shape(leaf.type.shape), kind_of(leaf.type.dtype), low, high)

    def _literal(self, constant: Constant) -> Residues:
        if constant.data is None:
            return self.fields.leaf(
                f"literal {constant.digest}", _shape(constant.type.shape), kind_of(constant.type.dtype)
            )
        if DTYPES.get(constant.type.dtype, torch.complex64).is_complex:
            raise Unsupported("complex literals")
        return self.fields.literal(constant_value(constant).numpy())

    def _start(self, graph: Graph) -> dict[Var, Residues]:
        values = {var: self.leaves[name] for var, name in graph.inputs.items()}
        values.update((var, self._literal(constant)) for var, constant in graph.constants.items())
        return values

    def _node(self, node: Node, graph: Graph, values: dict[Var, Residues]) -> None:
        try:
            results = evaluate_node(self.fields, node, graph, values, traits=self.traits)
        except Unsupported:
            raise
        except Exception as error:  # a defect of a rule costs this opinion, not the verdict
            raise Unsupported(f"the rule of {node.op} failed: {type(error).__name__} {error}") from error
        values.update(zip(node.outs, results, strict=True))

    def specification(self, graph: Graph) -> Values:
        """The specification's outputs."""
        values = self._start(graph)
        for node in graph.nodes:
            self._node(node, graph, values)
        return _outputs(graph, values)

    def ranks(self, order: tuple[tuple[int, int] | JoinedCall, ...]) -> list[Values]:
        """Every rank's outputs."""
        graphs = self.capture.ranks
        values = [self._start(graph) for graph in graphs]
        for step in order:
            if isinstance(step, JoinedCall):
                for rank, results in self._exchange(step, values).items():
                    values[rank].update(zip(graphs[rank].nodes[step.nodes[rank]].outs, results, strict=True))
            elif graphs[step[0]].nodes[step[1]].op not in COLLECTIVES:
                self._node(graphs[step[0]].nodes[step[1]], graphs[step[0]], values[step[0]])
        return [_outputs(graph, mine) for graph, mine in zip(graphs, values, strict=True)]

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


def _outputs(graph: Graph, values: Mapping[Var, Residues]) -> Values:
    return {var: _tensor(values[var]) for var in graph.outputs.values()}


def _tensor(value: Residues) -> torch.Tensor:
    array = value.plain if value.plain is not None else value.p
    assert array is not None
    return torch.from_numpy(np.ascontiguousarray(array))


def _shape(sizes: tuple[object, ...]) -> tuple[int, ...]:
    shape = tuple(size for size in sizes if isinstance(size, int))
    if len(shape) != len(sizes):
        raise Unsupported("a size known only when the program runs")
    return shape
