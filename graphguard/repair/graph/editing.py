"""What each change of a rank's graph does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.ir.validity import reads_ahead
from graphguard.ops import aten, gg
from graphguard.repair.graph.edits import (
    Accumulate,
    AddAfterReduction,
    Bypass,
    ChangeCall,
    Edit,
    InsertCall,
    InsertGather,
    InsertReduction,
    Mask,
    MoveDiagonal,
    MoveReduction,
    MoveSlice,
    OtherCalls,
    OtherPart,
    OwnPlace,
    ReduceToAll,
    Reread,
    Scale,
    SetArgument,
    Shift,
    SwapTensors,
    diagonal_of,
    group_of,
)
from graphguard.repair.graph.places import graph_of_place
from graphguard.repair.graph.retyping import CASTS, computed_in_type_of
from graphguard.repair.graph.slices import LAYOUT

_BY_RANK = ("readers", "position", "addition", "calls", "tensors")
"""What edits call that which they change on every rank: the first of these that an edit has."""


def apply(edit: Edit, capture: Capture) -> Capture:
    """The capture after an edit; raises ``KeyError`` or ``IndexError`` where a rank lacks what the edit names, or it has no meaning there."""
    graphs = list(capture.ranks)
    for rank in range(len(graphs)) if isinstance(edit, OwnPlace) else _ranks(edit):
        graphs[rank] = _apply(edit, capture, rank)
    if any(reads_ahead(graph) for graph, before in zip(graphs, capture.ranks, strict=True) if graph is not before):
        raise KeyError("an edit reads what nothing before it makes")
    return replace(capture, ranks=tuple(graphs))


def _ranks(edit: Edit) -> tuple[int, ...]:
    return tuple(next(getattr(edit, name) for name in _BY_RANK if hasattr(edit, name)))


def _apply(edit: Edit, capture: Capture, rank: int) -> Graph:
    graph = capture.ranks[rank]
    match edit:
        case InsertReduction(tensors, axis, reduce):
            group = group_of(capture, rank, axis)
            var, at = tensors[rank], _where_all_meet(capture, tensors, rank)
            return _insert(graph, var, gg.all_reduce, (var, reduce, group), graph.types[var], at)
        case InsertGather(tensors, axis, dim):
            at = _where_all_meet(capture, tensors, rank)
            return _insert_gather(graph, tensors[rank], group_of(capture, rank, axis), dim, at)
        case Scale(tensors, factor):
            return _scaled(graph, tensors[rank], factor)
        case Bypass(position, kept):
            node = graph.nodes[position[rank]]
            bypassed = _bypass(graph, position[rank], kept, rank)
            return (
                computed_in_type_of(bypassed, node.reads[0], graph.types[node.outs[0]].dtype)
                if node.op in CASTS
                else bypassed
            )
        case InsertCall() | ChangeCall() | SwapTensors() | Accumulate() | Mask() | Reread():
            return _apply_guided(edit, graph, rank)
        case ReduceToAll(position):
            node = graph.nodes[position[rank]]
            args = (node.args[0], *node.args[2:])
            return with_nodes(graph, {position[rank]: (replace(node, op=gg.all_reduce, args=args),)})
        case SetArgument(position, index, values, _):
            node = graph.nodes[position[rank]]
            args = (*node.args[:index], values[rank], *node.args[index + 1 :])
            return with_nodes(graph, {position[rank]: (replace(node, args=args),)})
        case AddAfterReduction(addition, reduction, moved):
            return _move_addition(graph, addition[rank], reduction[rank], moved)
        case MoveReduction(tensors, axis, reduction):
            var, reduced = tensors[rank], _bypass(graph, reduction[rank], 0, rank)
            return _insert(reduced, var, gg.all_reduce, (var, "sum", group_of(capture, rank, axis)), graph.types[var])
        case OtherCalls(calls, types):
            return with_nodes(graph, dict(calls[rank]), dict(types[rank]))
        case MoveSlice() | Shift() | MoveDiagonal() | OtherPart() | OwnPlace():
            return _apply_place(edit, capture, rank)


def _apply_place(edit: MoveSlice | Shift | MoveDiagonal | OtherPart | OwnPlace, capture: Capture, rank: int) -> Graph:
    """Edits that let a rank work on another part, or by other numbers."""
    graph = capture.ranks[rank]
    match edit:
        case MoveSlice(position, starts, _):
            return with_nodes(graph, {position[rank]: (_moved(graph, graph.nodes[position[rank]], starts[rank]),)})
        case Shift(tensors, offsets, _):
            var = tensors[rank]
            return _insert(graph, var, aten.add.Tensor, (var, offsets[rank]), graph.types[var])
        case MoveDiagonal(position, offsets):
            node = graph.nodes[position[rank]]
            moved = replace(node, args=(node.args[0], diagonal_of(node) + offsets[rank]), kwargs={})
            return with_nodes(graph, {position[rank]: (moved,)})
        case OtherPart(position, axis):
            return _other_part(graph, position[rank], capture.coordinates(rank)[axis])
        case OwnPlace(_, axis):
            return graph_of_place(capture, rank, axis) or graph


def _apply_guided(
    edit: InsertCall | ChangeCall | SwapTensors | Accumulate | Mask | Reread, graph: Graph, rank: int
) -> Graph:
    match edit:
        case Accumulate(tensors, earlier):
            for other in earlier[rank]:
                graph = _insert_call(graph, tensors[rank], aten.add.Tensor, (tensors[rank], other), {})
            return graph
        case Mask(tensors, masks, shape):
            return _masked(graph, tensors[rank], masks[rank], shape)
        case Reread(readers, argument, steps, tensors):
            return _reread(graph, readers[rank], argument, steps, tensors[rank])
        case InsertCall(tensors, call):
            return _insert_call(graph, tensors[rank], call.op, call.args[rank], dict(call.kwargs), call.further)
        case ChangeCall(position, call):
            node = replace(graph.nodes[position[rank]], op=call.op, args=call.args[rank], kwargs=dict(call.kwargs))
            return with_nodes(graph, {position[rank]: (node,)})
        case SwapTensors(tensors, others):
            return _swapped(graph, tensors[rank], others[rank])


def fresh(graph: Graph) -> int:
    """The least number that no variable has."""
    return 1 + max((var.id for var in graph.types), default=0)


def substituted(arg: Arg, names: Mapping[Var, Var]) -> Arg:
    """An argument that names other variables."""
    if isinstance(arg, Var):
        return names.get(arg, arg)
    if isinstance(arg, tuple):
        return tuple(substituted(item, names) for item in arg)
    return arg


def renamed(node: Node, names: Mapping[Var, Var]) -> Node:
    """A node that reads other variables; the very same one where it reads none of them."""
    if names.keys().isdisjoint(node.reads):
        return node
    return replace(
        node,
        args=tuple(substituted(arg, names) for arg in node.args),
        kwargs={key: substituted(arg, names) for key, arg in node.kwargs.items()},
    )


def with_nodes(graph: Graph, changed: dict[int, tuple[Node, ...]], types: dict[Var, TensorType] | None = None) -> Graph:
    """The graph with others in place of some nodes, by index."""
    nodes = list(graph.nodes)
    for index in sorted(changed, reverse=True):
        nodes[index : index + 1] = changed[index]
    return replace(graph, nodes=tuple(nodes), types=graph.types if types is None else {**graph.types, **types})


def _where_all_meet(capture: Capture, tensors: Mapping[int, Var], rank: int) -> int | None:
    """Where a rank makes a tensor, for a collective that it calls there with the others: none may call it only at its end where another reads the result."""
    read = any(_is_read(capture.ranks[each], var) for each, var in tensors.items())
    return capture.ranks[rank].producers().get(tensors[rank], -1) if read else None


def _is_read(graph: Graph, var: Var) -> bool:
    return any(var in node.reads for node in graph.nodes)


def _insert(graph: Graph, var: Var, op: str, args: tuple[Arg, ...], kind: TensorType, at: int | None = None) -> Graph:
    """Call an operator on a variable where it is defined; later readers and outputs see the result."""
    new = Var(fresh(graph))
    return _spliced(graph, var, (Node(op, args, {}, (new,)),), {new: kind}, new, at)


def _scaled(graph: Graph, var: Var, factor: Fraction) -> Graph:
    """Multiply a variable by a ratio: by its numerator, and divide by its denominator, for a third is no number of a float type."""
    kind = graph.types[var]
    if factor.denominator == 1:
        return _insert(graph, var, aten.mul.Scalar, (var, int(factor)), kind)
    if factor.numerator == 1:
        return _insert(graph, var, aten.div.Scalar, (var, factor.denominator), kind)
    first = fresh(graph)
    between, new = Var(first), Var(first + 1)
    nodes = (
        Node(aten.mul.Scalar, (var, factor.numerator), {}, (between,)),
        Node(aten.div.Scalar, (between, factor.denominator), {}, (new,)),
    )
    return _spliced(graph, var, nodes, {between: kind, new: kind}, new)


def _insert_call(
    graph: Graph, var: Var, op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg], further: tuple[TensorType, ...] = ()
) -> Graph:
    """Call an operator where its last operand is defined; later readers of ``var`` and outputs see its first result."""
    first, producers, kind = fresh(graph), graph.producers(), graph.types[var]
    new, *others = (Var(first + place) for place in range(1 + len(further)))
    types = {new: kind, **{other: like(each, kind) for other, each in zip(others, further, strict=True)}}
    node = Node(op, args, kwargs, (new, *others))
    last = max(node.operands(), key=lambda operand: producers.get(operand, -1))
    return _spliced(graph, var, (node,), types, new, producers.get(last, -1))


def like(statistic: TensorType, whole: TensorType) -> TensorType:
    """The type of a statistic of a rank's part, which has one element where it is one number for several of the specification's."""
    if len(statistic.shape) != len(whole.shape):
        return statistic
    sizes = (1 if size == 1 else own for size, own in zip(statistic.shape, whole.shape, strict=True))
    return replace(statistic, shape=tuple(sizes))


def _masked(graph: Graph, var: Var, mask: Var, shape: tuple[int, ...]) -> Graph:
    """Later readers of ``var`` see zeros in it where a mask holds."""
    first, producers = fresh(graph), graph.producers()
    viewed, new = Var(first), Var(first + 1)
    nodes = (
        Node(aten.view.default, (mask, shape), {}, (viewed,)),
        Node(aten.masked_fill.Scalar, (var, viewed, 0.0), {}, (new,)),
    )
    types = {viewed: replace(graph.types[mask], shape=shape), new: graph.types[var]}
    return _spliced(graph, var, nodes, types, new, max(producers.get(var, -1), producers.get(mask, -1)))


def _reread(graph: Graph, reader: Var, argument: int, steps: int, start: Var) -> Graph:
    """One node reads what the rearrangements before its operand make of ``start``.

    Raises ``IndexError`` where that comes too late, or where this rank has no such rearrangements.
    """
    producers = graph.producers()
    index = producers[reader]
    node = graph.nodes[index]
    if producers.get(start, -1) >= index:
        raise IndexError("the tensor does not exist yet")
    chain: list[Node] = []
    var = node.args[argument]
    for _ in range(steps):
        if not isinstance(var, Var) or graph.nodes[producers[var]].op not in LAYOUT:
            raise IndexError("the operand is made in another way")
        chain.append(graph.nodes[producers[var]])
        var = next(chain[-1].operands())
    if not isinstance(var, Var):
        raise IndexError("the operand is a number")
    names, following, copies = {var: start}, fresh(graph), []
    types: dict[Var, TensorType] = {}
    for each in reversed(chain):
        outs = tuple(Var(following + place) for place in range(len(each.outs)))
        following += len(outs)
        copies.append(replace(renamed(each, names), outs=outs))
        names.update(zip(each.outs, outs, strict=True))
        types.update((out, graph.types[old]) for old, out in zip(each.outs, outs, strict=True))
    read = node.args[argument]
    args = (*node.args[:argument], substituted(read, names), *node.args[argument + 1 :])
    return with_nodes(graph, {index: (*copies, replace(node, args=args))}, types)


def _swapped(graph: Graph, first: Var, second: Var) -> Graph:
    """Everything but what makes the two tensors reads one for the other; calls move behind what they read then."""
    own = _behind(graph, (first, second))
    names = {first: second, second: first}
    nodes = [node if index in own else renamed(node, names) for index, node in enumerate(graph.nodes)]
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    return replace(graph, nodes=_ordered(nodes), outputs=outputs)


def _behind(graph: Graph, variables: tuple[Var, ...]) -> set[int]:
    """The calls that tensors rest on."""
    producers, found, waiting = graph.producers(), set[int](), list(variables)
    while waiting:
        index = producers.get(waiting.pop())
        if index is not None and index not in found:
            found.add(index)
            waiting.extend(graph.nodes[index].operands())
    return found


def _ordered(nodes: list[Node]) -> tuple[Node, ...]:
    """Calls in their order, except that each comes after what it reads."""
    producers = {out: index for index, node in enumerate(nodes) for out in node.outs}
    waits = [{producers[operand] for operand in node.operands() if operand in producers} for node in nodes]
    readers: dict[int, list[int]] = {}
    for index, before in enumerate(waits):
        for producer in before:
            readers.setdefault(producer, []).append(index)
    ready = [index for index, before in enumerate(waits) if not before]
    found: list[Node] = []
    while ready:
        index = heappop(ready)
        found.append(nodes[index])
        for reader in readers.get(index, ()):
            waits[reader].discard(index)
            if not waits[reader]:
                heappush(ready, reader)
    if len(found) != len(nodes):
        raise IndexError("one of the tensors rests on the other")
    return tuple(found)


def _insert_gather(graph: Graph, var: Var, group: tuple[int, ...], dim: int, at: int | None) -> Graph:
    first, kind = fresh(graph), graph.types[var]
    parts = tuple(Var(first + offset) for offset in range(len(group)))
    whole = Var(first + len(group))
    size = kind.shape[dim]
    if not isinstance(size, int):
        raise IndexError("parts as large as the data decides, which need not be equal on all ranks")
    shape = (*kind.shape[:dim], size * len(group), *kind.shape[dim + 1 :])
    nodes = (Node(gg.all_gather, (var, group), {}, parts), Node(aten.cat.default, (parts, dim), {}, (whole,)))
    return _spliced(graph, var, nodes, {**dict.fromkeys(parts, kind), whole: replace(kind, shape=shape)}, whole, at)


def _spliced(
    graph: Graph, var: Var, new: tuple[Node, ...], types: dict[Var, TensorType], result: Var, at: int | None = None
) -> Graph:
    """New nodes behind node ``at``, else behind the one that gives ``var``; what follows reads ``result`` in its place.

    What only the outputs read is changed at the end, where the ranks meet whatever they did before.
    """
    made = graph.producers().get(var, -1)
    if at is None:
        at = made if _is_read(graph, var) else len(graph.nodes) - 1
    template = graph.nodes[made] if made >= 0 else None
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
    if node.op == gg.reduce_scatter:
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
    if node.op == aten.select.int:
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
    bias, first, second = fused.args[:3]
    partial = Var(fresh(graph))
    kind = graph.types[reduce.outs[0]]
    product_only = replace(fused, op=aten.mm.default, args=(first, second), kwargs={})
    reduced = replace(reduce, outs=(partial,))
    added = replace(reduce, op=aten.add.Tensor, args=(partial, bias), kwargs={}, outs=reduce.outs)
    return with_nodes(graph, {product: (product_only,), reduction: (reduced, added)}, {partial: kind})


def _move_addition(graph: Graph, addition: int, reduction: int, moved: int) -> Graph:
    """``all_reduce(a + b)`` becomes ``all_reduce(a) + b``; ``moved`` is the argument of the addition that goes behind.

    Where the addition stood ``a`` is passed on, so that other edits find their calls up to the reduction under the same index.
    """
    if graph.nodes[addition].op == aten.addmm.default:
        return _split_bias(graph, addition, reduction)
    if graph.nodes[addition].op != aten.add.Tensor:
        raise IndexError("this rank adds nothing there")
    add, reduced = graph.nodes[addition], graph.nodes[reduction].outs[0]
    whole = Var(fresh(graph))
    behind = replace(
        graph.nodes[reduction],
        op=add.op,
        args=tuple(reduced if place == 1 - moved else arg for place, arg in enumerate(add.args)),
        kwargs=add.kwargs,
        outs=(whole,),
    )
    kept = replace(add, op=aten.alias.default, args=(add.args[1 - moved],), kwargs={})
    nodes: list[Node] = []
    names: dict[Var, Var] = {}
    for index, node in enumerate(graph.nodes):
        nodes.append(kept if index == addition else renamed(node, names))
        if index == reduction:
            nodes.append(behind)
            names = {reduced: whole}
    outputs = {name: names.get(out, out) for name, out in graph.outputs.items()}
    types = {**graph.types, whole: graph.types[reduced]}
    return replace(graph, nodes=tuple(nodes), types=types, outputs=outputs)
