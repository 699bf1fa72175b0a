"""Calls that give tensors of other shapes, and what that makes of the calls behind them: their types, and the sizes that they name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import JoinedCall, join
from graphguard.ops import COLLECTIVE, aten, operators
from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import DTYPES, Number, Numbers
from graphguard.rules import RULES, find_rule, kind_of
from graphguard.rules.basis.registry import Call
from graphguard.rules.evaluate import bind

Calls = dict[int, dict[int, tuple[Node, ...]]]
"""By rank and index, the calls in place of one."""
Types = dict[int, dict[Var, TensorType]]
Shape = tuple[int, ...]

_ELEMENTS = 1 << 16
_VIEWS = operators(lambda op: op.moves == "view" and op.shape_at == 1)
_RESHAPING = RULES[aten.view.default]
#: Casts, and arithmetic that rounds as one does.
CASTS = operators(lambda op: op.casts)
_STORING = operators(lambda op: op.stores)


def refitted(capture: Capture, calls: Mapping[int, Mapping[int, tuple[Node, ...]]]) -> tuple[Calls, Types] | None:
    """Calls in place of some, with those behind them that other shapes change, and the types of all that these give; None where they do not fit."""
    made: Calls = {rank: dict(own) for rank, own in calls.items()}
    types: Types = {rank: {} for rank in range(len(capture.ranks))}
    for step in join(capture.ranks).order:
        if isinstance(step, JoinedCall):
            if not _exchanged(capture, step, types):
                return None
            continue
        rank, index = step
        graph = capture.ranks[rank]
        own = index in made.get(rank, {})
        for node in made.get(rank, {}).get(index, (graph.nodes[index],)):
            if not own and types[rank].keys().isdisjoint(node.operands()):
                continue
            fitted = node if own else _fitted(node, graph, types[rank])
            shapes = None if fitted is None else shapes_of(fitted, graph, types[rank], own)
            if fitted is None or shapes is None:
                return None
            if fitted is not node:
                made.setdefault(rank, {})[index] = (fitted,)
            _keep(graph, node, shapes, types[rank])
    return made, {rank: own for rank, own in types.items() if rank in made or own}


def computed_in_type_of(graph: Graph, source: Var, narrow: str) -> Graph:
    """The graph in which what is computed of a tensor in a narrow type is computed in the tensor's own, up to the next cast or what it is stored in."""
    types, changed = dict(graph.types), {source}
    for node in graph.nodes:
        if node.op in CASTS or changed.isdisjoint(node.reads[:1] if node.op in _STORING else node.reads):
            continue
        for out in node.outs:
            if types[out].dtype == narrow:
                types[out] = replace(types[out], dtype=types[source].dtype)
                changed.add(out)
    return replace(graph, types=types)


def shapes_of(node: Node, graph: Graph, types: Mapping[Var, TensorType], own: bool = False) -> list[Shape] | None:
    """The shapes of what a call gives of operands of these types; None where its rule does not say, or the operands do not fit each other.

    ``own`` says that it is another call than the graph has, which names the shape itself where it views a tensor in one.
    """
    rule = find_rule(node.op)
    if rule is not None and rule.function is _RESHAPING.function:
        return _reshaped(node, graph, types, own)
    kinds = {var: _type(var, graph, types) for var in node.operands()}
    if rule is None or any(math.prod(_sizes(kind)) > _ELEMENTS for kind in kinds.values()):
        return None
    try:
        values = {var: Number(np.zeros(_sizes(kind), dtype=DTYPES[kind_of(kind.dtype)])) for var, kind in kinds.items()}
        given = {name: bind(arg, values) for name, arg in node.kwargs.items()}
        if rule.wants_call:
            given["call"] = Call(node, replace(graph, types={**graph.types, **types}), rule.parameters)
        with np.errstate(all="ignore"):
            found = rule.function(Numbers(), *(bind(arg, values) for arg in node.args), **given)
    except (Unsupported, LookupError, TypeError, ValueError, AssertionError):  # operands of these shapes have no result
        return None
    results = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(results) != len(node.outs) or any(result is None for result in results):
        return None
    return [result.shape for result in results]


def _reshaped(node: Node, graph: Graph, types: Mapping[Var, TensorType], own: bool) -> list[Shape] | None:
    """The shape of a view."""
    operand, named = next(node.operands()), node.args[1] if len(node.args) > 1 else None
    after = _sizes(_type(operand, graph, types))
    if own:
        shape = tuple(size for size in named if isinstance(size, int)) if isinstance(named, tuple) else None
    else:
        shape = viewed(_sizes(graph.types[operand]), after, _sizes(graph.types[node.outs[0]]))
    return None if shape is None or math.prod(shape) != math.prod(after) else [shape]


def _keep(graph: Graph, node: Node, shapes: Sequence[Shape], types: dict[Var, TensorType]) -> None:
    """Note the types of what a call gives where they are others than before."""
    for out, shape in zip(node.outs, shapes, strict=True):
        known = graph.types.get(out)
        if known is None:
            types[out] = TensorType(shape, _type(next(node.operands()), graph, types).dtype)
        elif known.shape != shape:
            types[out] = replace(known, shape=shape)


def _exchanged(capture: Capture, call: JoinedCall, types: Types) -> bool:
    """Note the types of what a collective gives; False where its members' tensors do not fit each other."""
    ranks = capture.ranks
    nodes = {rank: ranks[rank].nodes[index] for rank, index in call.nodes.items()}
    if all(types[rank].keys().isdisjoint(node.operands()) for rank, node in nodes.items()):
        return True
    given = {rank: [_type(var, ranks[rank], types[rank]) for var in node.operands()] for rank, node in nodes.items()}
    collective, members = COLLECTIVE[call.kind], call.group
    if collective.alike and len({each[0].shape for each in given.values()}) > 1:
        return False
    root = collective.root(nodes[members[0]].args, members)
    for member, rank in enumerate(members):
        made = [places[0] for places, _ in collective.made(member, len(members), root)]
        kinds = [given[members[place.member]][place.position] for place in made]
        _keep(ranks[rank], nodes[rank], [_sizes(kind) for kind in kinds], types[rank])
    return True


def _type(var: Var, graph: Graph, types: Mapping[Var, TensorType]) -> TensorType:
    return types.get(var) or graph.types[var]


def _sizes(kind: TensorType) -> Shape:
    return tuple(size if isinstance(size, int) else _ELEMENTS + 1 for size in kind.shape)


def _fitted(node: Node, graph: Graph, types: Mapping[Var, TensorType]) -> Node | None:
    """A call with the sizes that it names made to fit the new shape of what it reads; None where it cannot be told which."""
    if node.op in COLLECTIVES or node.op not in _VIEWS | {
        aten.expand.default,
        aten.slice.Tensor,
        aten.split.Tensor,
    }:
        return node
    operand = next(node.operands())
    before, after = _sizes(graph.types[operand]), _sizes(_type(operand, graph, types))
    if node.op in _VIEWS:
        shape = viewed(before, after, _sizes(graph.types[node.outs[0]]))
        return None if shape is None else replace(node, args=(node.args[0], shape), kwargs={})
    if node.op == aten.expand.default:
        whole = _sizes(graph.types[node.outs[0]])
        new = len(whole) - len(before)
        shape = (*whole[:new], *(a if b == w else w for b, a, w in zip(before, after, whole[new:], strict=True)))
        return replace(node, args=(node.args[0], shape), kwargs={})
    dim = node.args[2 if node.op == aten.split.Tensor else 1] if len(node.args) > 2 else 0
    if not isinstance(dim, int):
        return None
    if node.op == aten.split.Tensor:
        even = node.args[1] == -(-before[dim] // len(node.outs)) and after[dim] % len(node.outs) == 0
        return replace(node, args=(node.args[0], after[dim] // len(node.outs), *node.args[2:])) if even else node
    ends = len(node.args) > 3 and node.args[3] == before[dim]
    return replace(node, args=(*node.args[:3], after[dim], *node.args[4:])) if ends else node


def viewed(before: Shape, after: Shape, target: Shape) -> Shape | None:
    """The shape in which a tensor is viewed that had another one, such as ``(2, 12)`` for ``(2, 3, 4)`` where ``(1, 3, 4)`` was viewed as ``(1, 12)``; None where that is not clear."""
    if math.prod(before) == math.prod(after):
        return target
    if len(before) != len(after):
        return None
    shape = list(target)
    for dims, places in _blocks(before, target):
        changed = [dim for dim in dims if before[dim] != after[dim]]
        if not changed:
            continue
        alike = [place for place in places if len(changed) == 1 and target[place] == before[changed[0]]]
        if len(places) != 1 and len(alike) != 1:
            return None
        place = places[0] if len(places) == 1 else alike[0]
        count, rest = math.prod(after[dim] for dim in dims), math.prod(target[each] for each in places if each != place)
        if not rest or count % rest:
            return None
        shape[place] = count // rest
    return tuple(shape)


def _blocks(before: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """The dims of a shape, and those of another one of as many elements, in the smallest runs that hold the same elements."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(target):
        dims, places = list(range(i, min(i + 1, len(before)))), list(range(j, min(j + 1, len(target))))
        i, j = i + len(dims), j + len(places)
        while (one := math.prod(before[dim] for dim in dims)) != (two := math.prod(target[place] for place in places)):
            if one < two and i < len(before):
                dims.append(i)
                i += 1
            elif j < len(target):
                places.append(j)
                j += 1
            else:
                return found
        found.append((dims, places))
    return found
