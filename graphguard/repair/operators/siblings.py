"""Tensors that stay on their rank although another one like them is exchanged: the values of a ring whose keys go round, tokens that come back from where they were never sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.ops import gg
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.meanings import Sending
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import JOINING, REARRANGING, SPLITS, Site

_COST = 3  # more than that of another part of a tensor: which part of its weights a rank reads is wrong more often than that they should travel
_UNLIKE = 4  # how unlikely it is of a tensor of another type that nothing behind the exchange reads
_TOLD = "'{name}' stays on its rank although {sibling} is exchanged: every rank goes on with its own part of it"


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What one call of the source exchanges between all ranks: by rank its nodes in order, what goes in and what comes out."""

    site: Site
    nodes: Mapping[int, tuple[int, ...]]
    given: Tensors
    result: Tensors


def siblings(around: Neighbours) -> Iterator[Guess]:
    """A guess for each tensor of a size with one that is exchanged: it is exchanged as well, by the same call as often as that is made."""
    chains: dict[int, list[_Exchange]] = {}
    for exchange in _exchanges(around):
        chains.setdefault(exchange.site.node.stack, []).append(exchange)
    for chain in chains.values():
        moved = {var for each in chain for rank in each.nodes for var in (each.given[rank], each.result[rank])}
        tried: set[Var] = set()
        for site in around.sites.values():
            for tensors in _read(site, around):
                var = tensors[min(tensors)]
                if site.node.phase == "forward" and var not in tried | moved and _alike(tensors, chain[0], around):
                    tried.add(var)
                    yield from _sent(tensors, site, chain, around)


def _exchanges(around: Neighbours) -> Iterator[_Exchange]:
    """Every exchange of the forward pass in which all ranks take part, each with a part of its own."""
    for site in around.sites.values():
        if site.node.phase != "forward" or len(site.position) < around.capture.world_size:
            continue
        find = {gg.recv: _passed, gg.all_to_all: _dealt}.get(site.node.op)
        rows = {rank: find(around, rank, index) for rank, index in site.position.items()} if find is not None else {}
        known = {rank: row for rank, row in rows.items() if row is not None}
        if known and len(known) == len(rows):
            nodes, given, result = ({rank: row[part] for rank, row in known.items()} for part in range(3))
            yield _Exchange(site, nodes, given, result)  # type: ignore[arg-type]


def _passed(around: Neighbours, rank: int, index: int) -> tuple[tuple[int, ...], Var, Var] | None:
    """A tensor that is sent where another one of its type is received, by the same call."""
    graph = around.capture.ranks[rank]
    stack = graph.nodes[index].stack
    near = [place for place, node in enumerate(graph.nodes) if node.stack == stack]
    received = [place for place in near if graph.nodes[place].op == gg.recv]
    sent = [place for place in near if graph.nodes[place].op == gg.send]
    if len(sent) != len(received):
        return None
    other = sent[received.index(index)]
    given, result = graph.nodes[other].reads[0], graph.nodes[index].outs[0]
    return (tuple(sorted((other, index))), given, result) if graph.types[given] == graph.types[result] else None


def _dealt(around: Neighbours, rank: int, index: int) -> tuple[tuple[int, ...], Var, Var] | None:
    """A tensor that is split, exchanged and joined again by the same call, along its first dim."""
    graph = around.capture.ranks[rank]
    node = graph.nodes[index]
    split = around.producers[rank].get(node.reads[0], -1)
    joint = next((place for place, each in enumerate(graph.nodes) if each.reads == node.outs), -1)
    if min(split, joint) < 0:
        return None
    before, after = graph.nodes[split], graph.nodes[joint]
    whole = before.op in SPLITS and after.op in JOINING and before.outs == node.reads
    if not whole or {before.stack, after.stack} != {node.stack} or (*before.args[2:], *after.args[1:]) not in _FIRST:
        return None
    return (split, index, joint), before.reads[0], after.outs[0]


_FIRST = ((0, 0), (0,), ())
"""What a split and the joining of its parts say of their dim, where both are along the first."""


def _read(site: Site, around: Neighbours) -> Iterator[Tensors]:
    """What the ranks read at a site, operand by operand, where all of them read as many; and what that is a rearrangement of."""
    graphs = around.capture.ranks
    if len(site.position) < around.capture.world_size:
        return
    rows = {rank: graphs[rank].nodes[index].reads for rank, index in site.position.items()}
    for place in range(min(map(len, rows.values()))):
        tensors = {rank: row[place] for rank, row in rows.items()}
        yield tensors
        while True:
            made = [graphs[rank].nodes[around.producers[rank].get(var, 0)] for rank, var in tensors.items()]
            if any(
                node.op not in REARRANGING or tensors[rank] not in node.outs
                for rank, node in zip(tensors, made, strict=True)
            ):
                break
            tensors = {rank: node.reads[0] for rank, node in zip(tensors, made, strict=True)}
            yield tensors


def _alike(tensors: Tensors, exchange: _Exchange, around: Neighbours) -> bool:
    """Whether tensors have as many rows as what is exchanged, on every rank."""
    for rank, var in tensors.items():
        types = around.capture.ranks[rank].types
        mine, other = types[var].shape, types[exchange.given[rank]].shape
        if not mine or not other or mine[0] != other[0]:
            return False
    return True


def _sent(tensors: Tensors, reader: Site, chain: Sequence[_Exchange], around: Neighbours) -> Iterator[Guess]:
    """Exchange tensors behind each exchange of a chain where they are read after it, else as soon as they are made."""
    graphs, first = around.capture.ranks, chain[0]
    later = all(
        around.producers[rank].get(var, -1) < first.nodes[rank][0]
        and _is_read(graphs[rank], var, first.nodes[rank][-1])
        for rank, var in tensors.items()
    )
    if not later and any(var not in around.producers[rank] for rank, var in tensors.items()):
        return
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for rank, var in tensors.items():
        own: dict[Var, TensorType] = {}
        if later:
            made = _behind(graphs[rank], var, [each.nodes[rank] for each in chain], [e.given[rank] for e in chain], own)
        else:
            made = _at_once(graphs[rank], var, around.producers[rank][var], first.nodes[rank], first.given[rank], own)
        if made is None:
            return
        calls[rank], types[rank] = made, own
    sending = Sending(tensors, first.site.position, later)
    edit = OtherCalls(calls, types, _TOLD, sending)
    same = all(graphs[rank].types[var] == graphs[rank].types[first.given[rank]] for rank, var in tensors.items())
    yield "wrong-shard", edit, first.site if later else reader, _COST if later or same else _UNLIKE


def _is_read(graph: Graph, var: Var, after: int) -> bool:
    """Whether what comes behind a place reads a tensor, or a rearrangement of it that was made before."""
    known = {var, *(node.outs[0] for node in _rearranged(graph, var, after))}
    return any(not known.isdisjoint(node.reads) and node.phase == "forward" for node in graph.nodes[after + 1 :])


def _rearranged(graph: Graph, var: Var, before: int) -> list[Node]:
    """The calls before a place that only rearrange a tensor, one after the other."""
    known, found = {var}, []
    for node in graph.nodes[:before]:
        if node.op in REARRANGING and node.phase == "forward" and node.reads[0] in known and len(node.reads) == 1:
            known.add(node.outs[0])
            found.append(node)
    return found


def _behind(
    graph: Graph, var: Var, chain: Sequence[tuple[int, ...]], given: Sequence[Var], types: dict[Var, TensorType]
) -> dict[int, tuple[Node, ...]] | None:
    """Exchanges of a tensor behind those of another one; what is read behind each of them is what came last."""
    calls: dict[int, tuple[Node, ...]] = {}
    now = var
    again = _rearranged(graph, var, chain[0][0])
    ends = [*(nodes[-1] for nodes in chain[1:]), len(graph.nodes) - 1]
    for nodes, operand, end in zip(chain, given, ends, strict=True):
        copy = _copied(graph, nodes, operand, now, types)
        if copy is None:
            return None
        now = copy[-1].outs[0] if copy[-1].outs else copy[0].outs[0]
        names = {var: now}
        for node in again:
            new = Var(1 + max(fresh(graph) - 1, *(each.id for each in types)))
            types[new] = graph.types[node.outs[0]]
            copy.append(replace(renamed(node, names), outs=(new,)))
            names[node.outs[0]] = new
        last = nodes[-1]
        calls[last] = (*calls.get(last, (graph.nodes[last],)), *copy)
        for index in range(last + 1, end + 1):
            node = graph.nodes[index]
            if node.phase == "forward" and not names.keys().isdisjoint(node.reads):
                calls[index] = (renamed(node, names),)
    return calls


def _at_once(
    graph: Graph, var: Var, made: int, nodes: tuple[int, ...], given: Var, types: dict[Var, TensorType]
) -> dict[int, tuple[Node, ...]] | None:
    """An exchange of a tensor behind the node that makes it: all that is computed of it is computed of what came."""
    node = graph.nodes[made]
    before = Var(fresh(graph))
    types[before] = graph.types[var]
    copy = _copied(graph, nodes, given, before, types)
    if copy is None or made in nodes:
        return None
    result = copy[-1].outs[0] if copy[-1].outs else copy[0].outs[0]
    own = replace(node, outs=tuple(before if out == var else out for out in node.outs))
    exchanged = [replace(each, outs=tuple(var if out == result else out for out in each.outs)) for each in copy]
    return {made: (own, *exchanged)} if graph.types[var] == types.pop(result) else None


def _copied(
    graph: Graph, nodes: tuple[int, ...], given: Var, var: Var, types: dict[Var, TensorType]
) -> list[Node] | None:
    """The calls of an exchange once more, with another tensor that has as many rows; None where that has no meaning."""
    whole, kind = graph.types[given], types.get(var) or graph.types[var]
    names, copy = {given: var}, []
    start = max(fresh(graph), 1 + max((each.id for each in types), default=0))
    for index in nodes:
        node = graph.nodes[index]
        for out in node.outs:
            part = graph.types[out]
            if part.shape[1:] != whole.shape[1:]:
                return None
            names[out] = Var(start)
            types[names[out]] = TensorType((*part.shape[:1], *kind.shape[1:]), kind.dtype)
            start += 1
        copy.append(replace(renamed(node, names), outs=tuple(names[out] for out in node.outs)))
    return copy
