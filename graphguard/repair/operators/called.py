"""Functions of the project that are called once too often, or not of a tensor of which they are called as of one like it: keys that are rotated twice, or not as queries are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Frame, Graph, Node, Span, TensorType, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.meanings import Called
from graphguard.repair.graph.neighbours import Guess, Neighbours

_SPARE = "'{name}' is computed once too often: the specification goes on with what it is computed of"
_LACKING = "'{name}' is read as it is, although {sibling} is computed of a tensor like it"
_DROPPED, _MADE = 3, 5  # what the guesses cost
_MOST = 24  # guesses that something should be computed first


@dataclass(frozen=True, slots=True)
class _Call:
    """The nodes that one call of a function makes, the only tensor that is read of them, and what they read."""

    span: Span
    function: str
    first: int
    last: int
    result: Var
    reads: tuple[Var, ...]


def called(around: Neighbours) -> Iterator[Guess]:
    """Guesses about calls of functions: each is left out, and each is made of other tensors of its operand's type."""
    rows = [_calls(graph, around.capture) for graph in around.capture.ranks]
    shared = [key for key in rows[0] if all(key in row for row in rows)] if rows else []
    numbers = {(rank, index): number for number, site in around.sites.items() for rank, index in site.position.items()}
    made = 0
    for key in shared:
        calls = {rank: row[key] for rank, row in enumerate(rows)}
        site = around.sites.get(numbers.get((0, _maker(around, 0, calls[0].result)), -1))
        if site is None:
            continue
        for place in _operands(calls, around.capture):
            operands = {rank: call.reads[place] for rank, call in calls.items()}
            if site.number in around.exposed:
                again = any(
                    each.result == operands[0] and each.function == calls[0].function for each in rows[0].values()
                )
                yield "wrong-relation", _left_out(around.capture, calls, operands), site, _DROPPED + (not again)
            for guess in _made(around, calls, operands) if made < _MOST else ():
                made += 1
                yield guess


def _calls(graph: Graph, capture: Capture) -> dict[object, _Call]:
    """The calls of functions of the project in the forward pass, by where they are made and how often that was done before, that give one tensor and exchange nothing."""
    found: dict[object, _Call] = {}
    stacks = [graph.stack_of(index) for index in range(len(graph.stacks))]
    runs: dict[tuple[Frame, ...], list[tuple[int, int]]] = {}
    last_read: dict[Var, int] = dict.fromkeys(graph.outputs.values(), len(graph.nodes))
    for index, node in enumerate(graph.nodes):
        if node.stack < 0 or node.phase != "forward":
            continue
        last_read |= {var: max(index, last_read.get(var, 0)) for var in node.reads}
        frames = stacks[node.stack]
        for outer in (frames[start:] for start in range(1, len(frames))):
            known = runs.setdefault(outer, [])
            first = known.pop()[0] if known and known[-1][1] == index - 1 else index
            known.append((first, index))
    for outer, spans in runs.items():
        for times, (first, last) in enumerate(spans):
            inner = stacks[graph.nodes[first].stack][-len(outer) - 1]
            single = last > first and _in_project(outer[0].span, capture)
            call = _single(graph, outer[0].span, inner.function, (first, last), last_read) if single else None
            if call is not None:
                found[outer, times] = call
    return found


def _in_project(span: Span, capture: Capture) -> bool:
    return span.file in capture.sources or span.file == capture.check.span.file


def _single(
    graph: Graph, span: Span, function: str, places: tuple[int, int], last_read: Mapping[Var, int]
) -> _Call | None:
    """The nodes of a call, where one tensor alone is read of them and they exchange nothing."""
    first, last = places
    nodes = graph.nodes[first : last + 1]
    if any(node.op in COLLECTIVES for node in nodes):
        return None
    made = {out for node in nodes for out in node.outs}
    given = [out for out in made if last_read.get(out, 0) > last]
    if len(given) != 1:
        return None
    reads = dict.fromkeys(var for node in nodes for var in node.reads if var not in made)
    return _Call(span, function, first, last, given[0], tuple(reads))


def _maker(around: Neighbours, rank: int, var: Var) -> int:
    return around.producers[rank].get(var, -1)


def _operands(calls: Mapping[int, _Call], capture: Capture) -> Iterator[int]:
    """Which of the tensors that a call reads are of the type of what it gives, on every rank."""
    for place in range(min(len(call.reads) for call in calls.values())):
        types = ((capture.ranks[rank].types, call) for rank, call in calls.items())
        if all(known[call.reads[place]] == known[call.result] for known, call in types):
            yield place


def _left_out(capture: Capture, calls: Mapping[int, _Call], operands: Tensors) -> OtherCalls:
    """What comes behind a call reads what the call read."""
    edited: dict[int, dict[int, tuple[Node, ...]]] = {}
    for rank, call in calls.items():
        names = {call.result: operands[rank]}
        edited[rank] = _renamed_behind(capture.ranks[rank], call.last, names)
    return OtherCalls(edited, {rank: {} for rank in calls}, _SPARE, Called(calls[min(calls)].span, None))


def _renamed_behind(graph: Graph, place: int, names: dict[Var, Var]) -> dict[int, tuple[Node, ...]]:
    """The nodes of the forward pass behind a place that read other variables."""
    rows = enumerate(graph.nodes[place + 1 :], place + 1)
    return {
        index: (renamed(node, names),)
        for index, node in rows
        if node.phase == "forward" and not names.keys().isdisjoint(node.reads)
    }


def _made(around: Neighbours, calls: Mapping[int, _Call], operands: Tensors) -> Iterator[Guess]:
    """The call is made of each tensor that is of the type of what it reads."""
    graphs, tried = around.capture.ranks, {operands[0], calls[0].result}
    for site in around.sites.values():
        if len(site.position) < len(graphs) or site.node.phase != "forward":
            continue
        rows = {rank: graphs[rank].nodes[index].reads for rank, index in site.position.items()}
        for place in range(min(map(len, rows.values()))):
            tensors = {rank: row[place] for rank, row in rows.items()}
            kinds = (graphs[rank].types[var] == graphs[rank].types[operands[rank]] for rank, var in tensors.items())
            if tensors[0] in tried or not all(kinds):
                continue
            tried.add(tensors[0])
            edit = _again(around, calls, operands, tensors)
            if edit is not None:
                yield "wrong-relation", edit, site, _MADE


def _again(around: Neighbours, calls: Mapping[int, _Call], operands: Tensors, tensors: Tensors) -> OtherCalls | None:
    """The call once more, of other tensors, as soon as all that it reads exists."""
    edited: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for rank, call in calls.items():
        graph, var = around.capture.ranks[rank], tensors[rank]
        others = [each for each in call.reads if each != operands[rank]]
        at = max(_maker(around, rank, each) for each in (var, *others))
        inside = range(call.first, call.last + 1)
        if at < 0 or at in inside or any(var in node.reads for node in graph.nodes[:at] if node.phase == "forward"):
            return None
        own = types.setdefault(rank, {})
        names, start, copy = {operands[rank]: var}, fresh(graph), []
        for index in inside:
            node = graph.nodes[index]
            outs = tuple(Var(start + place) for place in range(len(node.outs)))
            start += len(outs)
            own |= {new: graph.types[out] for new, out in zip(outs, node.outs, strict=True)}
            copy.append(replace(renamed(node, names), outs=outs))
            names |= dict(zip(node.outs, outs, strict=True))
        behind = _renamed_behind(graph, at, {var: names[call.result]})
        edited[rank] = {**behind, at: (*behind.get(at, (graph.nodes[at],)), *copy)}
    return OtherCalls(edited, types, _LACKING, Called(calls[min(calls)].span, tensors))
