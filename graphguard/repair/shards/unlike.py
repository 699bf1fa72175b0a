"""Ranks that read different tensors at one place: some a tensor that was reduced, others their own summand."""

from __future__ import annotations

from collections.abc import Iterator

from graphguard.ir import Capture, Node, Var
from graphguard.ir.ranks import ranks_text
from graphguard.ops import REDUCTIONS
from graphguard.repair.graph.edits import SetArgument, Tensors
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site

_DEPTH = 8  # operators between two tensors of which one may be the reduced other


def unlike(around: Neighbours) -> Iterator[Guess]:
    """A guess for each argument that ranks make in different places, for each of these that all ranks have."""
    numbers = {(rank, index): number for number, site in around.sites.items() for rank, index in site.position.items()}
    for site in around.sites.values():
        for place in range(len(site.node.args)):
            read = _read(site, place, around)
            made = {rank: numbers.get((rank, around.producers[rank].get(var, -1)), -1) for rank, var in read.items()}
            for number in sorted(set(made.values()) - {-1}) if len(set(made.values())) > 1 else ():
                tensors = _everywhere(around.sites[number], read, site, around)
                if tensors is not None:
                    rule = _rule(tensors, read, site, around)
                    yield rule, SetArgument(site.position, place, dict(tensors), "operand"), site, 1


def _read(site: Site, place: int, around: Neighbours) -> Tensors:
    """What the ranks read as one argument; empty where it is no tensor on each of them."""
    found: Tensors = {}
    for rank, index in site.position.items():
        args = around.capture.ranks[rank].nodes[index].args
        given = args[place] if place < len(args) else None
        if not isinstance(given, Var):
            return {}
        found[rank] = given
    return found


def _everywhere(made: Site, read: Tensors, reader: Site, around: Neighbours) -> Tensors | None:
    """The tensors of a site, where every rank that reads has one of the type that it reads, in time."""
    graphs = around.capture.ranks
    for rank, var in read.items():
        if rank not in made.tensors or graphs[rank].types[made.tensors[rank]] != graphs[rank].types[var]:
            return None
        if made.position[rank] >= reader.position[rank] or _is_made_of(rank, var, made.tensors[rank], around):
            return None  # in the second case what those ranks do to it is one too many
    return {rank: made.tensors[rank] for rank in read}


def _is_made_of(rank: int, var: Var, other: Var, around: Neighbours) -> bool:
    """Whether a tensor is what one operator makes of another."""
    index = around.producers[rank].get(var)
    return index is not None and other in around.capture.ranks[rank].nodes[index].operands()


def _rule(tensors: Tensors, read: Tensors, reader: Site, around: Neighbours) -> str:
    """What it is to read others than these: not to reduce what these are the sum of, or simply another tensor."""
    rank = next(rank for rank in sorted(read) if read[rank] != tensors[rank])
    graph, producers = around.capture.ranks[rank], around.producers[rank]
    edge, reduced = [tensors[rank]], False
    for _ in range(_DEPTH):
        nodes: list[Node] = [graph.nodes[producers[var]] for var in edge if var in producers]
        reduced = reduced or any(node.op in REDUCTIONS for node in nodes)
        edge = [var for node in nodes for var in node.operands()]
        if read[rank] in edge:
            break
    if not reduced or read[rank] not in edge:
        return "wrong-relation"
    return "gradient-not-reduced" if reader.node.phase == "backward" else "missing-reduction"


def misreading(edit: SetArgument, capture: Capture) -> list[int]:
    """The ranks that read another tensor than they should, where others read the right one; empty where none does."""
    nodes = {rank: capture.ranks[rank].nodes[index] for rank, index in edit.position.items()}
    wrong = [rank for rank, node in sorted(nodes.items()) if node.args[edit.index] != edit.values[rank]]
    return wrong if len(wrong) < len(nodes) else []


def misread_text(ranks: list[int], name: str, meant: str) -> str:
    """That only some ranks read the tensor that is meant."""
    shown = ranks_text(ranks, " and ")
    what = f"'{meant}'" if meant else "that of the others"
    return f"'{name}' is computed from another tensor on {shown} than on the others: {what} is meant on every rank"
