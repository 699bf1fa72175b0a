"""A program up to the first of its training steps that goes wrong: what the later ones do wrong follows from that.

Parameters that a program hands out have a history: what the forward passes read, step by step, until they are handed out.  Where these are wrong after an earlier step already,
that step is what is to be explained, in a program that ends with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.joining import JoinedCall, join
from graphguard.ir.pruning import prune_to_outputs
from graphguard.ir.validity import well_formed
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove

_STEPS = 64  # operators between a gradient and what it changes, at most


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
    programs = [_Program(graph) for graph in (spec, *capture.ranks)]
    histories = {name: found for name in failing if (found := _histories(programs, name)) is not None}
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
        return Earlier(before, proof, numbers, tuple(dict.fromkeys(_following(capture, failing, ends))))
    return None


def _histories(programs: Sequence[_Program], name: str) -> list[list[Var]] | None:
    """For every program, what forward passes read of the parameter that is handed out under a name, behind the first; None where they do not correspond."""
    found = [each.history(name) for each in programs]
    lengths = {len(mine) for each, mine in zip(programs, found, strict=True) if name in each.graph.outputs}
    return found if found[0] and len(lengths) == 1 else None


class _Program:
    """One graph, and what is asked of it for every output."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._producers = graph.producers()
        self._read: dict[Var, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            for var in node.reads if node.phase == "forward" else ():
                self._read.setdefault(var, []).append(index)

    def history(self, name: str) -> list[Var]:
        """The values of a parameter between the first and the last that forward passes read, the earliest first."""
        if name not in self.graph.outputs:
            return []
        chain = self._chain(self.graph.outputs[name])
        updated = {self._producers[var] for var in chain if var in self._producers}
        found, is_learned = [], False
        for before, var in pairwise(reversed(chain)):
            is_learned = is_learned or self._adds_gradient(before, var)
            if is_learned and var != chain[0] and any(index not in updated for index in self._read.get(var, ())):
                found.append(var)
                is_learned = False
        return found

    def _chain(self, last: Var) -> list[Var]:
        """The values from a parameter's last one back to what it was at first: an update makes a value of the one before, as it is or of the same shape; nothing where it cannot be followed."""
        chain, seen = [last], {last}
        while not self._is_first(chain[-1]):
            before = next(
                (each for each in self._alike(chain[-1]) if each not in seen and self._is_followed(each)), None
            )
            if before is None:
                return []
            chain.append(before)
            seen.add(before)
        return chain

    def _node(self, var: Var) -> Node | None:
        index = self._producers.get(var)
        return None if index is None else self.graph.nodes[index]

    def _alike(self, var: Var) -> list[Var]:
        """What a value is computed of that has its type."""
        node, types = self._node(var), self.graph.types
        return [] if node is None else [each for each in node.reads if types[each] == types[var]]

    def _is_first(self, var: Var) -> bool:
        """Whether a value is what a parameter was at first: a leaf, or a rank's part of one."""
        node = self._node(var)
        return var in self.graph.inputs or (node is not None and node.phase == "prelude")

    def _is_followed(self, var: Var) -> bool:
        """Whether a value can be followed to a leaf by the first operands of its type: no gradient is."""
        for _ in range(len(self.graph.nodes)):
            if self._is_first(var):
                return True
            node, alike = self._node(var), self._alike(var)
            if node is None or node.phase == "backward" or not alike:
                return False
            var = alike[0]
        return False

    def _adds_gradient(self, before: Var, var: Var) -> bool:
        """Whether a value is made of the one before it and of what comes of a gradient as large as it: what no activation is."""
        waiting = [each for each in self._alike(var) if each != before]
        for each in waiting:
            node = self._node(each)
            if node is not None and node.phase == "backward":
                return True
            waiting += [one for one in self._alike(each) if one not in waiting and len(waiting) < _STEPS]
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
    reached = [{each[place] for each in ends.values()} for place in range(1, len(capture.ranks) + 1)]
    for step in join(capture.ranks).order:
        calls = step.nodes.items() if isinstance(step, JoinedCall) else (step,)
        nodes = [(rank, capture.ranks[rank].nodes[index]) for rank, index in calls]
        if any(not reached[rank].isdisjoint(node.reads) for rank, node in nodes):
            for rank, node in nodes:
                reached[rank].update(node.outs)
    for graph, own in zip(capture.ranks, reached, strict=True):
        yield from (name for name in failing if graph.outputs.get(name) in own)
