"""Operators that act on rows one by one, and where the rows' dim goes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from graphguard.ir import Node, Var
from graphguard.ops import Traits, aten, operators, traits_of
from graphguard.refine.ragged.orders import Order, Rows
from graphguard.relations.algebra import Unsupported

_PRODUCTS: Final = frozenset((aten.mm.default, aten.linear.default, aten.bmm.default))
_STRUCTURE: Final = operators(lambda op: op.moves in ("same", "view", "expand")) | {aten.select.int, aten.unbind.int}
_NORMS: Final = frozenset(
    (
        *(aten.native_layer_norm.default, aten._fused_rms_norm.default),
        *(aten.rms_norm.default, aten.layer_norm.default),
    )
)


def keeps_numbers(node: Node) -> bool:
    """Whether results hold the numbers of the operand and no others."""
    return node.op in _STRUCTURE or (
        node.op in (aten.floor_divide.default, aten.floor_divide.Scalar) and node.args[1] == 1
    )


def targets(node: Node, rows: Rows) -> list[Order | None]:
    """For every result of a call that :func:`keeps_numbers`, the order in which they are places."""
    if rows.column is None or rows.target is None:
        return [rows.target] * len(node.outs)
    if node.op == aten.unbind.int and len(node.args) > 1 and node.args[1] in (1, -1):
        return [rows.target if at == rows.column else None for at in range(len(node.outs))]
    if node.op == aten.select.int and node.args[1] in (1, -1) and isinstance(node.args[2], int):
        return [rows.target if node.args[2] % rows.data.shape[1] == rows.column else None]
    raise Unsupported("coordinates that are not taken apart")


def dim_of_rows(node: Node, shapes: Mapping[Var, tuple[int, ...]], dims: Mapping[Var, int]) -> int:
    """The dim of the results whose rows are made of the operands' rows one by one; raises ``Unsupported`` where they are not seen to be.

    ``shapes`` are the operands' with their slots, ``dims`` where those that have rows have them.
    """
    op, traits = node.op, traits_of(node.op)
    if traits.pointwise:
        return _pointwise(node, shapes, dims)
    self = node.args[0] if node.args else None
    if (traits.same_place or op == aten.one_hot.default) and isinstance(self, Var) and set(node.operands()) == {self}:
        return dims[self]
    if not isinstance(self, Var) or self not in dims:
        if op == aten.addmm.default:
            return _added_product(node, shapes, dims)
        if op in (aten.cat.default, aten.stack.default):
            return _listed(node, shapes, dims, op == aten.stack.default)
        raise Unsupported(f"rows that {node.op} does not take one by one")
    dim, rank = dims[self], len(shapes[self])
    if op in _PRODUCTS and set(dims) == (set(node.operands()) if op == aten.bmm.default else {self}):
        return _first(max(dims.values()))
    if traits.along and set(node.operands()) == set(dims) and len(set(dims.values())) == 1:
        return _beside(node, traits, dim, rank)
    if op == aten.unsqueeze.default:
        place = _placed(node.args[1], rank + 1)
        return dim + (place <= dim)
    if op in (aten.t.default, aten.transpose.int, aten.permute.default):
        return _permuted(node, dim, rank)
    if op == aten.select.int:
        place = _placed(node.args[1], rank)
        return dim - (place < dim) if place != dim else _never(node)
    if op == aten.squeeze.dim or traits.moves == "split":
        return _cut(node, traits, dim, rank)
    if traits.moves is not None and traits.shape_at == 1:
        return _viewed(node, shapes[self], dim)
    if op in _NORMS:
        normalised = node.args[1]
        assert isinstance(normalised, tuple)
        return dim if set(dims) == {self} and dim < rank - len(normalised) and len(node.outs) == 1 else _never(node)
    raise Unsupported(f"rows that {node.op} does not take one by one")


def _added_product(node: Node, shapes: Mapping[Var, tuple[int, ...]], dims: Mapping[Var, int]) -> int:
    """Rows times a matrix, plus what is the same for all of them."""
    bias, rows = node.args[:2]
    if not isinstance(bias, Var) or not isinstance(rows, Var) or set(dims) != {rows}:
        return _never(node)
    if len(shapes[bias]) > 1 and shapes[bias][0] != 1:
        raise Unsupported("rows of two tensors that are not seen to belong together")
    return _first(dims[rows])


def _never(node: Node) -> int:
    raise Unsupported(f"rows that {node.op} does not take one by one")


def _first(dim: int) -> int:
    if dim != 0:
        raise Unsupported("rows that are not taken one by one")
    return dim


def _placed(arg: object, rank: int) -> int:
    if not isinstance(arg, int):
        raise Unsupported("rows along a dim that is not known")
    return arg + rank if arg < 0 else arg


def _pointwise(node: Node, shapes: Mapping[Var, tuple[int, ...]], dims: Mapping[Var, int]) -> int:
    """Dims are aligned at the end; an operand without rows must be the same for all of them."""
    rank = max(len(shape) for shape in shapes.values())
    places = {dims[var] + rank - len(shapes[var]) for var in dims}
    if len(places) != 1:
        return _never(node)
    place = places.pop()
    for var, shape in shapes.items():
        at = place - (rank - len(shape))
        if var not in dims and at >= 0 and shape[at] != 1:
            raise Unsupported("rows of two tensors that are not seen to belong together")
    return place


def _beside(node: Node, traits: Traits, dim: int, rank: int) -> int:
    """Other dims are acted on as a whole, and dropped unless they are kept."""
    position, keeps = traits.dim_at, traits.keepdim_at
    assert position is not None
    given = (
        node.args[position]
        if position < len(node.args)
        else node.kwargs.get("dim", 0 if node.op == aten.slice.Tensor else None)
    )
    listed = given if isinstance(given, tuple) else (given,)
    acted = {_placed(item, rank) for item in listed}
    if dim in acted or not acted:
        return _never(node)
    if keeps is None:
        return dim
    kept = node.args[keeps] if keeps < len(node.args) else node.kwargs.get("keepdim", False)
    return dim if kept else dim - sum(other < dim for other in acted)


def _listed(node: Node, shapes: Mapping[Var, tuple[int, ...]], dims: Mapping[Var, int], stacked: bool) -> int:
    """Joined along another dim: every part has the rows."""
    operands = list(node.operands())
    rank = len(shapes[operands[0]])
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    place = _placed(given, rank + stacked)
    if set(operands) != set(dims) or len(set(dims.values())) != 1:
        return _never(node)
    dim = dims[operands[0]]
    if stacked:
        return dim + (place <= dim)
    return dim if place != dim else _never(node)


def _permuted(node: Node, dim: int, rank: int) -> int:
    if node.op == aten.t.default:
        return rank - 1 - dim
    if node.op == aten.transpose.int:
        a, b = _placed(node.args[1], rank), _placed(node.args[2], rank)
        return {a: b, b: a}.get(dim, dim)
    order = node.args[1]
    assert isinstance(order, tuple)
    return [_placed(item, rank) for item in order].index(dim)


def _cut(node: Node, traits: Traits, dim: int, rank: int) -> int:
    position = traits.dim_at
    assert position is not None
    given = node.args[position] if position < len(node.args) else node.kwargs.get("dim", 0)
    place = _placed(given, rank)
    if place == dim:
        return _never(node)
    return dim - (place < dim) if position == 1 else dim


def _viewed(node: Node, shape: tuple[int, ...], dim: int) -> int:
    """A shape that has the rows first, as before."""
    wanted = node.args[1]
    if dim != 0 or not isinstance(wanted, tuple) or not wanted:
        return _never(node)
    rest = [size for size in wanted[1:] if isinstance(size, int)]
    if len(rest) != len(wanted) - 1:
        return _never(node)
    if node.op == aten.expand.default:
        return 0 if len(wanted) == len(shape) else _never(node)
    return 0 if prod(rest) == prod(shape[1:]) and -1 not in rest else _never(node)
