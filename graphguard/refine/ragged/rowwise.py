"""Operators that act on rows one by one, and where the rows' dim goes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from graphguard.ir import Node, Var
from graphguard.refine.ragged.orders import Order, Rows
from graphguard.relations.algebra import Unsupported
from graphguard.rules import find_rule

_POINTWISE_FAMILIES: Final = frozenset(("elementwise", "activations", "truth"))
_NOT_POINTWISE: Final = frozenset(
    (
        "aten.glu.default",
        "aten.glu_backward.default",
        "aten.nonzero.default",
        "aten.masked_select.default",
        "aten.nonzero_numpy.default",
        "aten.equal.default",
        "aten.allclose.default",
        "aten.is_nonzero.default",
        "aten._local_scalar_dense.default",
        "aten.prelu.default",
        "aten._prelu_kernel.default",
        "aten._prelu_kernel_backward.default",
    )
)
#: Beside the pointwise families: the result has the operand's shape and every element follows from the one in its place, or none does.
_SAME_PLACE: Final = frozenset(
    (
        "_to_copy",
        "clone",
        "detach",
        "alias",
        "contiguous",
        "to",
        "zeros_like",
        "ones_like",
        "full_like",
        "lift_fresh",
        "copy",
        "fill",
        "native_dropout_backward",
    )
)
_OTHER_DIMS: Final = {  # position of the argument that names the dims that are not acted on one by one, and of keepdim
    "sum.dim_IntList": (1, 2),
    "mean.dim": (1, 2),
    "amax.default": (1, 2),
    "amin.default": (1, 2),
    "prod.dim_int": (1, 2),
    "argmax.default": (1, 2),
    "any.dim": (1, 2),
    "all.dim": (1, 2),
    "_softmax.default": (1, None),
    "_log_softmax.default": (1, None),
    "softmax.int": (1, None),
    "_softmax_backward_data.default": (2, None),
    "_log_softmax_backward_data.default": (2, None),
    "slice.Tensor": (1, None),
    "flip.default": (1, None),
}
_PRODUCTS: Final = frozenset(("mm.default", "linear.default", "bmm.default"))
_VIEWS: Final = frozenset(("view.default", "_unsafe_view.default", "reshape.default"))

_STRUCTURE: Final = frozenset(
    (
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "select",
        "squeeze",
        "unbind",
        "unsqueeze",
        "clone",
        "alias",
        "detach",
    )
)


def is_pointwise(op: str) -> bool:
    """Whether every element of the result follows from those in its place, operands being broadcast."""
    found = find_rule(op)
    return found is not None and found.family in _POINTWISE_FAMILIES and op not in _NOT_POINTWISE


def keeps_numbers(node: Node) -> bool:
    """Whether results hold the numbers of the operand and no others."""
    base = node.op.partition(".")[2].partition(".")[0]
    return base in _STRUCTURE or (base == "floor_divide" and node.args[1] == 1)


def targets(node: Node, rows: Rows) -> list[Order | None]:
    """For every result of a call that :func:`keeps_numbers`, the order in which they are places."""
    if rows.column is None or rows.target is None:
        return [rows.target] * len(node.outs)
    name = node.op.partition(".")[2]
    if name == "unbind.int" and len(node.args) > 1 and node.args[1] in (1, -1):
        return [rows.target if at == rows.column else None for at in range(len(node.outs))]
    if name == "select.int" and node.args[1] in (1, -1) and isinstance(node.args[2], int):
        return [rows.target if node.args[2] % rows.data.shape[1] == rows.column else None]
    raise Unsupported("coordinates that are not taken apart")


def dim_of_rows(node: Node, shapes: Mapping[Var, tuple[int, ...]], dims: Mapping[Var, int]) -> int:
    """The dim of the results whose rows are made of the operands' rows one by one; raises ``Unsupported`` where they are not seen to be.

    ``shapes`` are the operands' with their slots, ``dims`` where those that have rows have them.
    """
    _, _, name = node.op.partition(".")
    base = name.partition(".")[0]
    if is_pointwise(node.op):
        return _pointwise(node, shapes, dims)
    self = node.args[0] if node.args else None
    if (base in _SAME_PLACE or name == "one_hot.default") and isinstance(self, Var) and set(node.operands()) == {self}:
        return dims[self]
    if not isinstance(self, Var) or self not in dims:
        if name == "addmm.default":
            return _added_product(node, shapes, dims)
        if name == "cat.default" or name == "stack.default":
            return _listed(node, shapes, dims, name == "stack.default")
        raise Unsupported(f"rows that {node.op} does not take one by one")
    dim, rank = dims[self], len(shapes[self])
    if name in _PRODUCTS and set(dims) == (set(node.operands()) if name == "bmm.default" else {self}):
        return _first(max(dims.values()))
    if name in _OTHER_DIMS and set(node.operands()) == set(dims) and len(set(dims.values())) == 1:
        return _beside(node, name, dim, rank)
    if name == "unsqueeze.default":
        place = _placed(node.args[1], rank + 1)
        return dim + (place <= dim)
    if name in ("t.default", "transpose.int", "permute.default"):
        return _permuted(node, name, dim, rank)
    if name == "select.int":
        place = _placed(node.args[1], rank)
        return dim - (place < dim) if place != dim else _never(node)
    if name in ("squeeze.dim", "unbind.int", "split.Tensor", "split_with_sizes.default", "chunk.default"):
        return _cut(node, name, dim, rank)
    if name in _VIEWS or name == "expand.default":
        return _viewed(node, shapes[self], dim)
    if name in ("native_layer_norm.default", "_fused_rms_norm.default", "rms_norm.default", "layer_norm.default"):
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


def _beside(node: Node, name: str, dim: int, rank: int) -> int:
    """Other dims are acted on as a whole, and dropped unless they are kept."""
    position, keeps = _OTHER_DIMS[name]
    given = (
        node.args[position]
        if position < len(node.args)
        else node.kwargs.get("dim", 0 if name == "slice.Tensor" else None)
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


def _permuted(node: Node, name: str, dim: int, rank: int) -> int:
    if name == "t.default":
        return rank - 1 - dim
    if name == "transpose.int":
        a, b = _placed(node.args[1], rank), _placed(node.args[2], rank)
        return {a: b, b: a}.get(dim, dim)
    order = node.args[1]
    assert isinstance(order, tuple)
    return [_placed(item, rank) for item in order].index(dim)


def _cut(node: Node, name: str, dim: int, rank: int) -> int:
    position = 1 if name in ("squeeze.dim", "unbind.int") else 2
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
    if node.op.endswith("expand.default"):
        return 0 if len(wanted) == len(shape) else _never(node)
    return 0 if prod(rest) == prod(shape[1:]) and -1 not in rest else _never(node)
