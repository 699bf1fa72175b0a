"""Changes of the ranks' graphs that a repair would amount to, as data, and what each does to a graph.

An edit touches the same position on every rank.  It says nothing about source code: ``repair.source`` turns it into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.repair.alignment import Position

Tensors = dict[int, Var]
"""One tensor per rank."""


@dataclass(frozen=True, slots=True)
class InsertReduction:
    """Reduce a tensor over a mesh axis as soon as it exists; everything after reads the reduced one."""

    tensors: Tensors
    axis: str
    reduce: str = "sum"


@dataclass(frozen=True, slots=True)
class InsertGather:
    """Gather a tensor's shards over a mesh axis along a dim."""

    tensors: Tensors
    axis: str
    dim: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply a tensor by a number."""

    tensors: Tensors
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Bypass:
    """Take a node out: everything reads its first tensor operand instead."""

    position: Position


@dataclass(frozen=True, slots=True)
class SetArgument:
    """Give a node another argument, per rank; ``index`` is a position in ``args``."""

    position: Position
    index: int
    values: Mapping[int, Arg]
    what: str


@dataclass(frozen=True, slots=True)
class AddAfterReduction:
    """Move an addition (a bias) from before an all-reduce to behind it."""

    addition: Position
    reduction: Position
    moved: int


Edit = InsertReduction | InsertGather | Scale | Bypass | SetArgument | AddAfterReduction


def apply(edit: Edit, capture: Capture) -> Capture:
    """The capture after an edit; raises ``KeyError`` where a rank lacks what the edit names."""
    graphs = list(capture.ranks)
    for rank in _ranks(edit):
        graphs[rank] = _apply(edit, capture, rank)
    return replace(capture, ranks=tuple(graphs))


def group_of(capture: Capture, rank: int, axis: str) -> tuple[int, ...]:
    """The ranks that differ from ``rank`` along one mesh axis only, in order of that axis."""
    here = capture.coordinates(rank)
    return tuple(
        other
        for other in range(capture.world_size)
        if all(value == here[name] for name, value in capture.coordinates(other).items() if name != axis)
    )


def _ranks(edit: Edit) -> tuple[int, ...]:
    match edit:
        case InsertReduction(tensors=tensors) | InsertGather(tensors=tensors) | Scale(tensors=tensors):
            return tuple(tensors)
        case Bypass(position=position) | SetArgument(position=position):
            return tuple(position)
        case AddAfterReduction(addition=position):
            return tuple(position)


def _apply(edit: Edit, capture: Capture, rank: int) -> Graph:
    graph = capture.ranks[rank]
    match edit:
        case InsertReduction(tensors, axis, reduce):
            group = group_of(capture, rank, axis)
            return _insert(
                graph, tensors[rank], "gg.all_reduce", (tensors[rank], reduce, group), graph.types[tensors[rank]]
            )
        case InsertGather(tensors, axis, dim):
            return _insert_gather(graph, tensors[rank], group_of(capture, rank, axis), dim)
        case Scale(tensors, factor):
            kind = graph.types[tensors[rank]]
            number: Arg = int(factor) if factor.denominator == 1 else factor.numerator / factor.denominator
            return _insert(graph, tensors[rank], "aten.mul.Scalar", (tensors[rank], number), kind)
        case Bypass(position):
            return _bypass(graph, position[rank])
        case SetArgument(position, index, values, _):
            node = graph.nodes[position[rank]]
            args = (*node.args[:index], values[rank], *node.args[index + 1 :])
            return _with_nodes(graph, {position[rank]: (replace(node, args=args),)})
        case AddAfterReduction(addition, reduction, moved):
            return _move_addition(graph, addition[rank], reduction[rank], moved)


def _fresh(graph: Graph) -> int:
    return 1 + max((var.id for var in graph.types), default=0)


def _substitute(arg: Arg, names: dict[Var, Var]) -> Arg:
    if isinstance(arg, Var):
        return names.get(arg, arg)
    if isinstance(arg, tuple):
        return tuple(_substitute(item, names) for item in arg)
    return arg


def renamed(node: Node, names: dict[Var, Var]) -> Node:
    """A node that reads other variables."""
    return replace(
        node,
        args=tuple(_substitute(arg, names) for arg in node.args),
        kwargs={key: _substitute(arg, names) for key, arg in node.kwargs.items()},
    )


def _with_nodes(
    graph: Graph, changed: dict[int, tuple[Node, ...]], types: dict[Var, TensorType] | None = None
) -> Graph:
    nodes = tuple(new for index, node in enumerate(graph.nodes) for new in changed.get(index, (node,)))
    return replace(graph, nodes=nodes, types=graph.types if types is None else {**graph.types, **types})


def _insert(graph: Graph, var: Var, op: str, args: tuple[Arg, ...], kind: TensorType) -> Graph:
    """Call an operator on a variable where it is defined; later readers and outputs see the result."""
    new = Var(_fresh(graph))
    return _spliced(graph, var, (Node(op, args, {}, (new,)),), {new: kind}, new)


def _insert_gather(graph: Graph, var: Var, group: tuple[int, ...], dim: int) -> Graph:
    first, kind = _fresh(graph), graph.types[var]
    parts = tuple(Var(first + offset) for offset in range(len(group)))
    whole = Var(first + len(group))
    size = kind.shape[dim]
    assert isinstance(size, int)
    shape = (*kind.shape[:dim], size * len(group), *kind.shape[dim + 1 :])
    nodes = (Node("gg.all_gather", (var, group), {}, parts), Node("aten.cat.default", (parts, dim), {}, (whole,)))
    return _spliced(graph, var, nodes, {**dict.fromkeys(parts, kind), whole: replace(kind, shape=shape)}, whole)


def _spliced(graph: Graph, var: Var, new: tuple[Node, ...], types: dict[Var, TensorType], result: Var) -> Graph:
    at = graph.producers().get(var, -1)
    template = graph.nodes[at] if at >= 0 else None
    if template is not None:
        new = tuple(
            replace(node, stack=template.stack, forward=template.forward, phase=template.phase, module=template.module)
            for node in new
        )
    before = graph.nodes[: at + 1]
    after = tuple(renamed(node, {var: result}) for node in graph.nodes[at + 1 :])
    outputs = {name: result if out == var else out for name, out in graph.outputs.items()}
    return replace(graph, nodes=(*before, *new, *after), types={**graph.types, **types}, outputs=outputs)


def _bypass(graph: Graph, index: int) -> Graph:
    node = graph.nodes[index]
    operand = next(node.operands())
    names = dict.fromkeys(node.outs, operand)
    nodes = tuple(renamed(other, names) for position, other in enumerate(graph.nodes) if position != index)
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    return replace(graph, nodes=nodes, outputs=outputs)


def _move_addition(graph: Graph, addition: int, reduction: int, moved: int) -> Graph:
    """``all_reduce(a + b)`` becomes ``all_reduce(a) + b``; ``moved`` is the argument of the addition that goes behind."""
    add, reduce = graph.nodes[addition], graph.nodes[reduction]
    kept = add.args[1 - moved]
    partial = Var(_fresh(graph))
    first = replace(reduce, args=(kept, *reduce.args[1:]), outs=(partial,))
    args = tuple(partial if place == 1 - moved else arg for place, arg in enumerate(add.args))
    second = replace(add, args=args, outs=reduce.outs)
    kind = graph.types[reduce.outs[0]]
    return _with_nodes(graph, {reduction: (first, second)}, {partial: kind})
