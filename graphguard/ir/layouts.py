"""Collectives exchange memory: where the members' tensors are not alike, in shape or in the order of their elements there, they are spelled out as flat.

A recording notes at a collective how its tensors lie (:data:`ORDERS`), where that is not row by row.  Once all ranks are there the notes go: where all that meets lies alike nothing
changes, and elsewhere every member gives its elements one after the other and lays out what it gets again.  Everything downstream knows of values alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, TypeAlias

from graphguard.ir.graph import COMMUNICATOR, Graph, Node, TensorType, Var
from graphguard.ops import COLLECTIVE, MESSAGES, aten, gg, linked
from graphguard.ops.collectives import Place

ORDERS: Final = "orders"
"""The keyword of a collective that says, for its operands and for its results, the dims in the order of memory; empty for row by row."""
SUMMED: Final = "summed"
"""The keyword of a ``gg.reduce_scatter`` that adds its operands up as one tensor: the shape of that tensor, and its dims in the order of memory."""
Order: TypeAlias = tuple[int, ...]
_NOTES: Final = (ORDERS, SUMMED)


@dataclass(frozen=True, slots=True)
class Unlike:
    """A collective whose tensors lie in memory in different orders: by member, the node and the orders of its operands and results."""

    kind: str
    nodes: dict[int, int]
    orders: dict[int, tuple[tuple[Order, ...], tuple[Order, ...]]]


def laid_out(ranks: tuple[Graph, ...]) -> tuple[tuple[Graph, ...], tuple[Unlike, ...]]:
    """The ranks' graphs without notes, exchanging values, and the collectives (as they were) for which that took more than leaving out the notes.

    What does not fit together at all stays as it is, for :func:`~graphguard.ir.joining.join` to report.
    """
    places: list[dict[int, bool]] = [{} for _ in ranks]  # by node, whether it is summed up as a whole
    unlike = []
    noted = False
    for nodes, indices in _met(ranks):
        orders = {rank: _orders(node) for rank, node in nodes.items() if not node.kwargs.keys().isdisjoint(_NOTES)}
        noted |= bool(orders)
        if _differ(nodes, ranks):
            as_whole = any(SUMMED in node.kwargs for node in nodes.values())
            for rank, index in indices.items():
                places[rank][index] = as_whole
            if orders:
                kind = next(iter(nodes.values())).op.removeprefix("gg.")
                unlike.append(Unlike(kind, indices, {rank: _orders(node) for rank, node in nodes.items()}))
    if not noted and not any(places):
        return ranks, ()
    written = (_spelled(graph, rank, found) for rank, (graph, found) in enumerate(zip(ranks, places, strict=True)))
    return tuple(written), tuple(unlike)


def _met(ranks: tuple[Graph, ...]) -> Iterator[tuple[dict[int, Node], dict[int, int]]]:
    """The calls that meet, by rank: the first of a group on every member, the second, and so on; messages by what they go through."""
    queues: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, graph in enumerate(ranks):
        for index, node in enumerate(graph.nodes):
            if node.op in COLLECTIVE and node.op != gg.barrier:
                queues[_meeting(rank, node)][rank].append(index)
    for queue in queues.values():
        for indices in zip(*queue.values(), strict=False):
            calls = dict(zip(queue, indices, strict=True))
            nodes = {rank: ranks[rank].nodes[index] for rank, index in calls.items()}
            if _is_whole(nodes):
                yield nodes, calls


def _meeting(rank: int, node: Node) -> Any:
    which = node.kwargs.get(COMMUNICATOR)
    if node.op == gg.send:
        return rank, *node.args[1:], which
    if node.op == gg.recv:
        return node.args[0], rank, *node.args[1:], which
    return node.args[-1], which


def _is_whole(nodes: dict[int, Node]) -> bool:
    """Whether these calls are one collective of all its members, or a message with both its sides."""
    first, *rest = nodes.values()
    if first.op in MESSAGES:
        return {first.op, *(node.op for node in rest)} == MESSAGES
    return all(node.op == first.op for node in rest) and set(_group(first)) == set(nodes)


def _group(node: Node) -> tuple[int, ...]:
    group = node.args[-1]
    assert isinstance(group, tuple)
    return tuple(member for member in group if isinstance(member, int))


def _differ(nodes: dict[int, Node], ranks: Sequence[Graph]) -> bool:
    """Whether what meets lies in different shapes, or orders, and fits together as memory."""
    found = len({node.kwargs.get(SUMMED) for node in nodes.values()}) > 1
    members = _members(nodes)
    first = nodes[members[0]]
    collective = COLLECTIVE[first.op]
    for pair in linked(first.op, len(members), collective.root(first.args, members)):
        given, taken = (_tensor(place, members[place.member], nodes, ranks) for place in pair)
        if given is None or taken is None:
            return False
        (one, its_order), (other, their_order) = given, taken
        if one != other and not (collective.counts and _are_equally_many(one, other)):
            return False
        found |= one != other or its_order != their_order
    return found


def _tensor(place: Place, rank: int, nodes: dict[int, Node], ranks: Sequence[Graph]) -> tuple[TensorType, Order] | None:
    """A tensor's type and order; None where a call has none at this place, as what does not fit together has not."""
    try:
        var = place.of(nodes[rank])
    except IndexError:
        return None
    return ranks[rank].types[var], _orders(nodes[rank])[place.taken][place.position]


def _orders(node: Node) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
    summed: Any = node.kwargs.get(SUMMED)
    if summed is not None:
        return (summed[1],) * len(node.reads), ((),)
    noted: Any = node.kwargs.get(ORDERS)
    return (((),) * len(node.reads), ((),) * len(node.outs)) if noted is None else noted


def _are_equally_many(one: TensorType, other: TensorType) -> bool:
    sizes = [[size for size in kind.shape if isinstance(size, int)] for kind in (one, other)]
    known = len(sizes[0]) == len(one.shape) and len(sizes[1]) == len(other.shape)
    return known and one.dtype == other.dtype and prod(sizes[0]) == prod(sizes[1])


def _members(nodes: dict[int, Node]) -> tuple[int, ...]:
    """Who takes part, in the order in which the collective counts them."""
    first = next(iter(nodes.values()))
    if first.op in MESSAGES:
        return tuple(sorted(nodes, key=lambda rank: nodes[rank].op != gg.send))
    return _group(first)


# -- writing it down ---------------------------------------------------------------------------------------------------
def _spelled(graph: Graph, rank: int, unlike: dict[int, bool]) -> Graph:
    """A rank's graph with the calls at these places exchanging flat tensors, or summing them up whole (true), and no notes."""
    writer = _Writer(graph)
    for index, node in enumerate(graph.nodes):
        plain = replace(node, kwargs={key: arg for key, arg in node.kwargs.items() if key not in _NOTES})
        if index not in unlike:
            writer.nodes.append(plain if len(plain.kwargs) < len(node.kwargs) else node)
        elif unlike[index]:
            writer.sum_up(plain, rank, node.kwargs.get(SUMMED))
        else:
            writer.spell(plain, *_orders(node))
    return replace(graph, nodes=tuple(writer.nodes), types=writer.types)


class _Writer:
    """A graph with further nodes."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.types = dict(graph.types)
        self._next = max((var.id for var in graph.types), default=-1) + 1

    def spell(self, node: Node, given: tuple[Order, ...], taken: tuple[Order, ...]) -> None:
        """The call on its operands one element after the other, and its results laid out as they are."""
        flat = iter([self._flat(node, var, order) for var, order in zip(node.reads, given, strict=True)])
        results = tuple(self._new((_elements(self.types[out]),), self.types[out].dtype) for out in node.outs)
        self.nodes.append(replace(node, args=_with(node.args, flat), outs=results))
        for result, out, order in zip(results, node.outs, taken, strict=True):
            self._lay_out(node, result, out, order)

    def sum_up(self, node: Node, rank: int, summed: Any) -> None:
        """A reduce-scatter as the sum of whole operands, as they lie in memory, of which a rank takes its part."""
        (out,), group = node.outs, _group(node)
        kind = self.types[out]
        part = _elements(kind)
        parts = tuple(self._flat(node, var, ()) for var in node.reads)
        shape, order = summed or ((part * len(parts),), ())
        given = self._one(node, aten.cat.default, (parts, 0), self._new((part * len(parts),), kind.dtype))
        given = self._one(node, aten.view.default, (given, shape), self._new(shape, kind.dtype))
        given = self._flat(node, given, order)
        total = self._new((part * len(parts),), kind.dtype)
        self.nodes.append(replace(node, op=gg.all_reduce, args=(given, *node.args[1:]), outs=(total,)))
        whole = self._new(shape, kind.dtype)
        self._lay_out(node, total, whole, order)
        start = group.index(rank) * part
        whole = self._flat(node, whole, ())
        mine = self._one(node, aten.slice.Tensor, (whole, 0, start, start + part), self._new((part,), kind.dtype))
        self._one(node, aten.view.default, (mine, kind.shape), out)

    def _flat(self, node: Node, var: Var, order: Order) -> Var:
        kind = self.types[var]
        if order:
            sizes = tuple(kind.shape[dim] for dim in order)
            var = self._one(node, aten.permute.default, (var, order), self._new(sizes, kind.dtype))
        count = _elements(kind)
        return self._one(node, aten.view.default, (var, (count,)), self._new((count,), kind.dtype))

    def _lay_out(self, node: Node, result: Var, out: Var, order: Order) -> None:
        kind = self.types[out]
        sizes = tuple(kind.shape[dim] for dim in order) if order else kind.shape
        lying = self._new(sizes, kind.dtype) if order else out
        self._one(node, aten.view.default, (result, sizes), lying)
        if order:
            back = tuple(order.index(dim) for dim in range(len(order)))
            self._one(node, aten.permute.default, (lying, back), out)

    def _new(self, shape: tuple[Any, ...], dtype: str) -> Var:
        var = Var(self._next)
        self._next += 1
        self.types[var] = TensorType(shape, dtype)
        return var

    def _one(self, node: Node, op: str, args: tuple[Any, ...], out: Var) -> Var:
        self.nodes.append(replace(node, op=op, args=args, kwargs={}, outs=(out,), draw=None))
        return out


def _with(args: tuple[Any, ...], operands: Iterator[Var]) -> tuple[Any, ...]:
    """Arguments with other tensors, in their order."""
    return tuple(
        next(operands) if isinstance(arg, Var) else _with(arg, operands) if isinstance(arg, tuple) else arg
        for arg in args
    )


def _elements(kind: TensorType) -> int:
    return prod(size for size in kind.shape if isinstance(size, int))
