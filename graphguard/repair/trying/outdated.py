"""Gradients that were recorded before a repair put another value in the forward pass: they are those of another program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphguard.ir import Capture, Graph, Var
from graphguard.ops import aten
from graphguard.repair.graph.edits import (
    Bypass,
    ChangeCall,
    Edit,
    InsertCall,
    Mask,
    MoveSlice,
    OtherCalls,
    OtherPart,
    Scale,
    SetArgument,
    SwapTensors,
)
from graphguard.repair.graph.meanings import Called, Sending
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.trying.trials import Repair

_OF_VALUES = frozenset({"wrong-relation", "wrong-shard", "wrong-scale"})
_ADDING = frozenset({aten.add.Tensor, aten.sub.Tensor})


def outdates(repair: Repair) -> bool:
    """Whether a repair makes gradients that are recorded ones of another program: the edited source has others, which tell what else is wrong."""
    guess = repair.hypothesis
    results = any(not name.startswith("grad(") for name in repair.mends)
    return results and guess.site.node.phase == "forward" and guess.rule in _OF_VALUES


def is_stale(guess: Hypothesis) -> bool:
    """Whether an edit computes a gradient otherwise, which tells nothing once gradients are those of another program."""
    return guess.rule in _OF_VALUES and guess.site.node.phase == "backward"


def is_consequence(repair: Repair, broken: tuple[str, ...]) -> bool:
    """Whether a repair rewrites how gradients are computed although a result is wrong that it does not mend: that one spoils them."""
    results = [name for name in broken if not name.startswith("grad(")]
    guess = repair.hypothesis
    return guess.rule == "wrong-relation" and guess.site.node.phase == "backward" and not {*results} <= {*repair.mends}


def outdated(repair: Repair, broken: Iterable[str]) -> frozenset[str]:
    """The promised gradients of what a repaired call is computed from: by the chain rule they go through it, and what was recorded goes through another call.

    No further edit of what was recorded mends them; the edited source computes them anew.
    """
    if not outdates(repair):
        return frozenset()
    leaves: set[str] = set()
    for edit in repair.hypothesis.edits:
        for rank, read in _differentiated(edit, repair.before).items():
            leaves |= _leaves_of(repair.before.ranks[rank], read)
    return frozenset(name for name in broken if name.startswith("grad(") and name[5:-1] in leaves)


def _differentiated(edit: Edit, before: Capture) -> Mapping[int, list[Var]]:
    """By rank, the tensors with respect to which an edit changes the derivative of what it edits; none where that is not known of its kind."""
    match edit:
        case Bypass(position, kept):
            return {rank: _dropped(before.ranks[rank], index, kept) for rank, index in position.items()}
        case ChangeCall(position=position) | MoveSlice(position=position) | OtherPart(position=position):
            return {rank: list(before.ranks[rank].nodes[index].operands()) for rank, index in position.items()}
        case Scale(tensors=tensors) | Mask(tensors=tensors):
            return {rank: [var] for rank, var in tensors.items()}
        case SetArgument(position, index, values, "operand"):
            read = {
                rank: (before.ranks[rank].nodes[place].args[index], values[rank]) for rank, place in position.items()
            }
            return {rank: [each for each in pair if isinstance(each, Var)] for rank, pair in read.items()}
        case OtherCalls(means=Sending(tensors=tensors)):
            return {rank: [var] for rank, var in tensors.items()}
        case OtherCalls(means=Called(tensors=tensors), calls=calls):
            made = tensors or {}
            found = {r: [v for index in own for v in before.ranks[r].nodes[index].reads] for r, own in calls.items()}
            return {rank: [made[rank]] if rank in made else reads for rank, reads in found.items()}
        case SwapTensors(tensors, others):
            return {rank: [var, others[rank]] for rank, var in tensors.items()}
        case InsertCall(tensors, call):
            added = call.op in _ADDING
            return {
                rank: [v for v in _tensors(call.args[rank]) if not added or v != var] for rank, var in tensors.items()
            }
        case _:
            return {}


def _dropped(graph: Graph, index: int, kept: int) -> list[Var]:
    """What a call that is taken out passed a gradient to otherwise than its operand alone does: of a sum, the other operands."""
    node = graph.nodes[index]
    return [var for place, var in enumerate(node.operands()) if node.op not in _ADDING or place != kept]


def _tensors(args: Iterable[object]) -> list[Var]:
    return [arg for arg in args if isinstance(arg, Var)]


def _leaves_of(graph: Graph, variables: Iterable[Var]) -> set[str]:
    """The names of the leaves that tensors are computed from."""
    producers, waiting, seen = graph.producers(), list(variables), set[Var]()
    while waiting:
        var = waiting.pop()
        if var not in seen:
            seen.add(var)
            index = producers.get(var)
            waiting += () if index is None else graph.nodes[index].operands()
    return {name for var, name in graph.inputs.items() if var in seen}
