"""Changes of the ranks' graphs that a repair would amount to, as data, and what each does to a graph.

An edit touches the same position on every rank.  It says nothing about source code: ``repair.source`` turns it into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
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
    """Take a node out: everything reads one of its tensor operands instead, the first unless said otherwise."""

    position: Position
    kept: int = 0


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


@dataclass(frozen=True, slots=True)
class BiasAfterReduction:
    """Take the bias out of a fused product (``addmm``) and add it behind an all-reduce."""

    product: Position
    reduction: Position


@dataclass(frozen=True, slots=True)
class MoveReduction:
    """Reduce a tensor over an axis instead of what is computed from it: a reduction moves before a non-linear operator."""

    tensors: Tensors
    axis: str
    reduction: Position


@dataclass(frozen=True, slots=True)
class MoveSlice:
    """Let a slice or a selection start elsewhere on every rank; its length stays."""

    position: Position
    starts: Mapping[int, int]
    axis: str


@dataclass(frozen=True, slots=True)
class OtherPart:
    """Let a rank read another one of the parts that a split made: the one of its place along an axis."""

    position: Position
    axis: str


@dataclass(frozen=True, slots=True)
class Shift:
    """Add a number, another one on every rank: the offset of positions along an axis."""

    tensors: Tensors
    offsets: Mapping[int, int]
    axis: str


@dataclass(frozen=True, slots=True)
class ReduceToAll:
    """Give the result of a reduction to one rank to every rank of its group."""

    position: Position


@dataclass(frozen=True, slots=True)
class InsertCall:
    """Apply an operator to a tensor as soon as all its operands exist; what comes after reads the result."""

    tensors: Tensors
    op: str
    args: Mapping[int, tuple[Arg, ...]]
    kwargs: Mapping[str, Arg]
    expression: Span | None = None


@dataclass(frozen=True, slots=True)
class ChangeCall:
    """Let a node compute something else of the same operands."""

    position: Position
    op: str
    args: Mapping[int, tuple[Arg, ...]]
    kwargs: Mapping[str, Arg]
    expression: Span | None = None


@dataclass(frozen=True, slots=True)
class SwapTensors:
    """Two tensors change places for everything that comes after both."""

    tensors: Tensors
    others: Tensors


Edit = (
    InsertCall
    | ChangeCall
    | SwapTensors
    | Shift
    | ReduceToAll
    | InsertReduction
    | InsertGather
    | Scale
    | Bypass
    | SetArgument
    | AddAfterReduction
    | BiasAfterReduction
    | MoveReduction
    | MoveSlice
    | OtherPart
)


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
        case MoveReduction(tensors=tensors) | Shift(tensors=tensors):
            return tuple(tensors)
        case InsertCall(tensors=tensors) | SwapTensors(tensors=tensors):
            return tuple(tensors)
        case ChangeCall(position=position):
            return tuple(position)
        case Bypass(position=position) | SetArgument(position=position):
            return tuple(position)
        case MoveSlice(position=position) | OtherPart(position=position) | ReduceToAll(position=position):
            return tuple(position)
        case AddAfterReduction(addition=position) | BiasAfterReduction(product=position):
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
        case Bypass(position, kept):
            return _bypass(graph, position[rank], kept, rank)
        case InsertCall() | ChangeCall() | SwapTensors():
            return _apply_guided(edit, graph, rank)
        case ReduceToAll(position):
            node = graph.nodes[position[rank]]
            args = (node.args[0], *node.args[2:])
            return _with_nodes(graph, {position[rank]: (replace(node, op="gg.all_reduce", args=args),)})
        case SetArgument(position, index, values, _):
            node = graph.nodes[position[rank]]
            args = (*node.args[:index], values[rank], *node.args[index + 1 :])
            return _with_nodes(graph, {position[rank]: (replace(node, args=args),)})
        case AddAfterReduction(addition, reduction, moved):
            return _move_addition(graph, addition[rank], reduction[rank], moved)
        case BiasAfterReduction(product, reduction):
            return _split_bias(graph, product[rank], reduction[rank])
        case MoveReduction(tensors, axis, reduction):
            var, reduced = tensors[rank], _bypass(graph, reduction[rank], 0, rank)
            return _insert(reduced, var, "gg.all_reduce", (var, "sum", group_of(capture, rank, axis)), graph.types[var])
        case MoveSlice(position, starts, _):
            return _with_nodes(graph, {position[rank]: (_moved(graph, graph.nodes[position[rank]], starts[rank]),)})
        case Shift(tensors, offsets, _):
            var = tensors[rank]
            return _insert(graph, var, "aten.add.Tensor", (var, offsets[rank]), graph.types[var])
        case OtherPart(position, axis):
            return _other_part(graph, position[rank], capture.coordinates(rank)[axis])


def _apply_guided(edit: InsertCall | ChangeCall | SwapTensors, graph: Graph, rank: int) -> Graph:
    match edit:
        case InsertCall(tensors, op, calls, kwargs):
            return _insert_call(graph, tensors[rank], op, calls[rank], dict(kwargs))
        case ChangeCall(position, op, calls, kwargs):
            node = replace(graph.nodes[position[rank]], op=op, args=calls[rank], kwargs=dict(kwargs))
            return _with_nodes(graph, {position[rank]: (node,)})
        case SwapTensors(tensors, others):
            return _swapped(graph, tensors[rank], others[rank])


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


def _insert_call(graph: Graph, var: Var, op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg]) -> Graph:
    """Call an operator where its last operand is defined; later readers of ``var`` and outputs see the result."""
    new, producers = Var(_fresh(graph)), graph.producers()
    node = Node(op, args, kwargs, (new,))
    last = max(node.operands(), key=lambda operand: producers.get(operand, -1))
    return _spliced(graph, var, (node,), {new: graph.types[var]}, new, producers.get(last, -1))


def _swapped(graph: Graph, first: Var, second: Var) -> Graph:
    producers = graph.producers()
    start = max(producers.get(first, -1), producers.get(second, -1)) + 1
    names = {first: second, second: first}
    nodes = (*graph.nodes[:start], *(renamed(node, names) for node in graph.nodes[start:]))
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    return replace(graph, nodes=nodes, outputs=outputs)


def _insert_gather(graph: Graph, var: Var, group: tuple[int, ...], dim: int) -> Graph:
    first, kind = _fresh(graph), graph.types[var]
    parts = tuple(Var(first + offset) for offset in range(len(group)))
    whole = Var(first + len(group))
    size = kind.shape[dim]
    assert isinstance(size, int)
    shape = (*kind.shape[:dim], size * len(group), *kind.shape[dim + 1 :])
    nodes = (Node("gg.all_gather", (var, group), {}, parts), Node("aten.cat.default", (parts, dim), {}, (whole,)))
    return _spliced(graph, var, nodes, {**dict.fromkeys(parts, kind), whole: replace(kind, shape=shape)}, whole)


def _spliced(
    graph: Graph, var: Var, new: tuple[Node, ...], types: dict[Var, TensorType], result: Var, at: int | None = None
) -> Graph:
    """New nodes behind node ``at``, else behind the one that gives ``var``; what follows reads ``result`` in its place."""
    at = graph.producers().get(var, -1) if at is None else at
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


def _bypass(graph: Graph, index: int, kept: int, rank: int) -> Graph:
    """Take a node out; of a reduce-scatter the rank keeps its own part."""
    node = graph.nodes[index]
    operand = tuple(node.operands())[kept]
    if node.op == "gg.reduce_scatter":
        parts, group = node.args[0], node.args[2]
        assert isinstance(parts, tuple)
        assert isinstance(group, tuple)
        own = parts[group.index(rank)]
        assert isinstance(own, Var)
        operand = own
    names = dict.fromkeys(node.outs, operand)
    nodes = tuple(renamed(other, names) for position, other in enumerate(graph.nodes) if position != index)
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    return replace(graph, nodes=nodes, outputs=outputs)


def _moved(graph: Graph, node: Node, start: int) -> Node:
    if node.op == "aten.select.int":
        return replace(node, args=(*node.args[:2], start))
    dim = node.args[1] if len(node.args) > 1 else 0
    assert isinstance(dim, int)
    length = graph.types[node.outs[0]].shape[dim]
    assert isinstance(length, int)
    return replace(node, args=(node.args[0], dim, start, start + length))


def _other_part(graph: Graph, index: int, place: int) -> Graph:
    """Readers of the only part that is used read the one at ``place``; raises ``IndexError`` where there is none."""
    node = graph.nodes[index]
    used = {operand for other in graph.nodes for operand in other.operands()} | set(graph.outputs.values())
    read = [out for out in node.outs if out in used]
    if len(read) != 1 or graph.types[read[0]] != graph.types[node.outs[place]]:
        raise IndexError("the parts of the split are not alike, or several are used")
    names = {read[0]: node.outs[place]}
    nodes = tuple(renamed(other, names) for other in graph.nodes)
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    return replace(graph, nodes=nodes, outputs=outputs)


def _split_bias(graph: Graph, product: int, reduction: int) -> Graph:
    """``all_reduce(view(addmm(b, x, w)))`` becomes ``all_reduce(view(mm(x, w))) + b``."""
    fused, reduce = graph.nodes[product], graph.nodes[reduction]
    if fused.op != "aten.addmm.default":
        raise IndexError("this rank adds no bias")
    bias, first, second = fused.args[:3]
    partial = Var(_fresh(graph))
    kind = graph.types[reduce.outs[0]]
    product_only = replace(fused, op="aten.mm.default", args=(first, second), kwargs={})
    reduced = replace(reduce, outs=(partial,))
    added = replace(reduce, op="aten.add.Tensor", args=(partial, bias), kwargs={}, outs=reduce.outs)
    return _with_nodes(graph, {product: (product_only,), reduction: (reduced, added)}, {partial: kind})


def _move_addition(graph: Graph, addition: int, reduction: int, moved: int) -> Graph:
    """``all_reduce(a + b)`` becomes ``all_reduce(a) + b``; ``moved`` is the argument of the addition that goes behind."""
    add, reduced = graph.nodes[addition], graph.nodes[reduction].outs[0]
    whole = Var(_fresh(graph))
    behind = replace(
        graph.nodes[reduction],
        op=add.op,
        args=tuple(reduced if place == 1 - moved else arg for place, arg in enumerate(add.args)),
        kwargs=add.kwargs,
        outs=(whole,),
    )
    kept = add.args[1 - moved]
    assert isinstance(kept, Var)
    nodes: list[Node] = []
    names = {add.outs[0]: kept}
    for index, node in enumerate(graph.nodes):
        if index == addition:
            continue
        nodes.append(renamed(node, names))
        if index == reduction:
            nodes.append(behind)
            names = {**names, reduced: whole}
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    types = {**graph.types, whole: graph.types[reduced]}
    return replace(graph, nodes=tuple(nodes), types=types, outputs=outputs)
