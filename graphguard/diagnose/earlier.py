"""A program up to the first of its training steps that goes wrong: what the later ones do wrong follows from that.

Parameters that a program hands out have a history: what the forward passes read, step by step, until they are handed out.  Where these are wrong after an earlier step already,
that step is what is to be explained, in a program that ends with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.pruning import prune_to_outputs
from graphguard.ir.validity import well_formed
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove

_STEPS = 64  # operators of an update, at most, from one value of a parameter to the next


@dataclass(frozen=True, slots=True)
class Earlier:
    """A capture that ends with its first wrong step, why it is wrong, and the outputs of the whole one that follow from what it has."""

    capture: Capture
    proof: Proof
    numbers: Confirmation
    follow: tuple[str, ...]


def earlier(capture: Capture, failing: Sequence[str]) -> Earlier | None:
    """The capture up to the first step behind which parameters are wrong; None where that is the last one, or no step is seen."""
    from graphguard.confirm.check import compare  # which imports torch: where nothing is wrong nobody waits for it

    spec = capture.spec
    if spec is None:
        return None
    graphs = (spec, *capture.ranks)
    histories = {name: found for name in failing if (found := _histories(graphs, name)) is not None}
    for step in range(max((len(found[0]) for found in histories.values()), default=0)):
        ends = {
            name: [each[step] if each else None for each in found]
            for name, found in histories.items()
            if step < len(found[0])
        }
        before = _ending(capture, ends)
        numbers = compare(before)
        if numbers.status != "differs":
            continue
        proof = prove(before)
        if proof.outcome.proved or not proof.outcome.failing:
            continue
        numbers = replace(numbers, differing=proof.outcome.failing)  # one step of Adam hardly shows what is wrong
        return Earlier(before, proof, numbers, tuple(_following(capture, failing, ends)))
    return None


def _histories(graphs: Sequence[Graph], name: str) -> list[list[Var]] | None:
    """For every graph, what forward passes read of the parameter that is handed out under a name, behind the first; None where they do not correspond."""
    found = [_history(graph, graph.outputs[name]) if name in graph.outputs else [] for graph in graphs]
    lengths = {len(each) for graph, each in zip(graphs, found, strict=True) if name in graph.outputs}
    return found if found[0] and len(lengths) == 1 else None


def _history(graph: Graph, last: Var) -> list[Var]:
    """The values of a parameter between the first and the last that forward passes read, the earliest first."""
    producers = graph.producers()
    chain = _chain(graph, producers, last)
    if not chain:
        return []
    updated = {producers[var] for var in chain if var in producers}
    read = {
        var
        for index, node in enumerate(graph.nodes)
        if node.phase == "forward" and index not in updated
        for var in node.reads
    }
    return [var for var in reversed(chain[1:-1]) if var in read]


def _chain(graph: Graph, producers: dict[Var, int], last: Var) -> list[Var]:
    """The values from a parameter's last one back to what it was at first: an update makes a value of the one before, as it is or of the same shape; nothing where it cannot be followed."""
    chain, seen = [last], {last}
    while not _is_first(graph, producers, chain[-1]):
        var = chain[-1]
        node = graph.nodes[producers[var]] if var in producers else None
        earlier_ones = () if node is None else (each for each in node.reads if graph.types[each] == graph.types[var])
        before = next(
            (each for each in earlier_ones if each not in seen and _comes_of_leaf(graph, producers, each)), None
        )
        if before is None:
            return []
        chain.append(before)
        seen.add(before)
    return chain


def _is_first(graph: Graph, producers: dict[Var, int], var: Var) -> bool:
    """Whether a value is what a parameter was at first: a leaf, or a rank's part of one."""
    return var in graph.inputs or (var in producers and graph.nodes[producers[var]].phase == "prelude")


def _comes_of_leaf(graph: Graph, producers: dict[Var, int], var: Var) -> bool:
    """Whether a value can be followed to a parameter by the first operands of its type: no gradient is."""
    kind = graph.types[var]
    for _ in range(len(graph.nodes)):
        if _is_first(graph, producers, var):
            return True
        node = graph.nodes[producers[var]] if var in producers else None
        if node is None or node.phase == "backward":
            return False
        following = next((each for each in node.reads if graph.types[each] == kind), None)
        if following is None:
            return False
        var = following
    return False


def _ending(capture: Capture, ends: dict[str, list[Var | None]]) -> Capture:
    """The capture whose outputs are these values, one for every graph that has it."""
    assert capture.spec is not None
    graphs = [
        replace(graph, outputs={name: end for name, each in ends.items() if (end := each[place]) is not None})
        for place, graph in enumerate((capture.spec, *capture.ranks))
    ]
    (spec,), ranks = prune_to_outputs(tuple(graphs[:1])), prune_to_outputs(tuple(graphs[1:]))
    read = {name for graph in (spec, *ranks) for name in graph.inputs.values()}
    promises = tuple(one for one in capture.promises if one.name in ends)
    leaves = tuple(leaf for leaf in capture.leaves if leaf.name in read)
    return well_formed(replace(capture, leaves=leaves, spec=spec, ranks=ranks, promises=promises))


def _following(capture: Capture, failing: Collection[str], ends: dict[str, list[Var | None]]) -> Iterator[str]:
    """The failing outputs that some rank computes of what has gone wrong."""
    known = [{each[place] for each in ends.values()} for place in range(1, len(capture.ranks) + 1)]
    for graph, reached in zip(capture.ranks, known, strict=True):
        for node in graph.nodes:
            if not reached.isdisjoint(node.reads) or (node.op in COLLECTIVES and reached):
                reached.update(node.outs)
        yield from (name for name in failing if graph.outputs.get(name) in reached)
