"""Where ranks lose numbers that the specification has: a division by what is zero on one rank alone, a mean of nothing, an infinity less itself, a look-up outside of its table.

A proof takes it that nothing is divided by zero; numbers show where that is not so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import torch

from graphguard.confirm.run.draws import leaf_values
from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.run.lookups import is_outside
from graphguard.confirm.run.replay import Arithmetic, Values
from graphguard.confirm.trial import Failure, Trial
from graphguard.ir import Graph, Node
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import traits_of

_ELEMENTS: Final = 1 << 24  # of all tensors of all ranks, which are kept


def birth(trial: Trial, failures: Sequence[Failure]) -> tuple[int, int] | None:
    """Rank and node at which numbers are lost, if that is all in which ranks differ; None where anything else differs, or numbers grow too large."""
    if not all(map(_lacks_numbers, failures)) or _elements(trial.capture.ranks) > _ELEMENTS:
        return None
    leaves = leaf_values(trial.capture, failures[0].draw, trial.ranges)
    graphs = trial.capture.ranks
    kept = [[*graph.inputs, *graph.constants, *(out for node in graph.nodes for out in node.outs)] for graph in graphs]
    try:
        found = trial.ranks(leaves, Arithmetic(trial.sharp), keep=kept, fuel=trial.to_explain())
    except UnrunnableError:
        return None
    places: list[tuple[int, int]] = []
    for rank, (graph, values) in enumerate(zip(graphs, found, strict=True)):
        own = list(_births(graph, values))
        if None in own:
            return None
        places += ((index, rank) for index in own if index is not None)
    index, rank = min(places, default=(-1, -1))
    return None if index < 0 else (rank, index)


def _lacks_numbers(failure: Failure) -> bool:
    """Whether a promise fails only where the specification has a number and the ranks have none."""
    for comparison in failure.comparisons:
        if not comparison.shaped or not comparison.expected.dtype.is_floating_point:
            return False
        apart = failure.slack.apart(comparison.expected, comparison.found)
        if not bool((comparison.expected[apart].isfinite() & ~comparison.found[apart].isfinite()).all()):
            return False
    return True


def _births(graph: Graph, values: Values) -> Iterator[int | None]:
    """The nodes that lose numbers which something reads on; None for one whose numbers are merely too large."""
    for index, node in enumerate(graph.nodes):
        if node.op in COLLECTIVES:
            continue
        operands = [values[var] for var in node.operands()]
        results = [values[out] for out in node.outs]
        if not operands or not _has(results, _not_finite) or _has(operands, torch.isnan):
            continue
        if is_outside(node, values, results):
            yield index
            continue
        finite = not _has(operands, _not_finite)
        if traits_of(node.op).poles and finite:
            if _is_read_on(graph, node, values):
                yield index
        elif finite:
            if not _fills_in_infinity(node):
                yield None
        elif _has(results, torch.isnan) and _is_read_on(graph, node, values):
            yield index


def _fills_in_infinity(node: Node) -> bool:
    """Whether an argument says which infinity is meant: masks."""
    return any(isinstance(arg, float) and math.isinf(arg) for arg in (*node.args, *node.kwargs.values()))


def _is_read_on(graph: Graph, node: Node, values: Values) -> bool:
    """Whether what is lost goes on: into an output, a collective, or a result without numbers."""
    outs = set(node.outs)
    if outs & set(graph.outputs.values()):
        return True
    readers = [each for each in graph.nodes if outs.intersection(each.operands())]
    return any(each.op in COLLECTIVES or _has([values[out] for out in each.outs], _not_finite) for each in readers)


def _not_finite(value: torch.Tensor) -> torch.Tensor:
    return ~torch.isfinite(value)


def _has(tensors: Iterable[torch.Tensor], what: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    return any(value.dtype.is_floating_point and bool(what(value).any()) for value in tensors)


def _elements(graphs: Sequence[Graph]) -> int:
    shapes = (kind.shape for graph in graphs for kind in graph.types.values())
    return sum(math.prod(size for size in shape if isinstance(size, int)) for shape in shapes)
