"""Over which indices an operator acts one by one: restricted to a range of such an index it does on the parts of its operands what it does on the whole.

Every dim of an operand or a result is an ``(index, multiple)``, which says that a range of the index is that range of the dim times the multiple, or None where
the operator acts on all of the dim at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, TypeAlias

from graphguard.ir import Node, Var
from graphguard.ops import aten, operators, traits_of

Shape: TypeAlias = tuple[int, ...]
Dim: TypeAlias = "tuple[str, int] | None"
Dims: TypeAlias = tuple[Dim, ...]

#: What acts along dims that are its second argument.
_LINES: Final = operators(lambda op: op.along and op.dim_at == 1 and op.moves is None)
_ATTENTION: Final = frozenset(("gg.sdpa", "gg.sdpa_backward"))
_NAMED: Final = operators(lambda op: op.casts) | {aten.native_layer_norm.default, aten.embedding.default}


@dataclass(frozen=True, slots=True)
class Batching:
    """The indices of one call: of its operands in the order in which it reads them, and of its results."""

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]


@lru_cache(maxsize=1024)
def is_batched(op: str) -> bool:
    """Whether anything is known of an operator; only then is it worth to look at a call."""
    traits = traits_of(op)
    return traits.pointwise or traits.einsum is not None or op in _LINES or op in _ATTENTION or op in _NAMED


def batching(
    node: Node, shapes: Sequence[Shape], results: Sequence[Shape], elementwise: Collection[str] = ()
) -> Batching | None:
    """The indices over which a call on operands of these shapes acts one by one; None where that is not known of the operator, nor declared ``elementwise``."""
    if node.draw is not None or any(
        isinstance(arg, tuple) and any(isinstance(a, Var) for a in arg) for arg in node.args
    ):
        return None
    op = node.op
    if op in elementwise:
        return _pointwise(shapes, results)
    if (product := traits_of(op)).einsum is not None:
        return _product(product.einsum, bool(product.product), shapes)
    if op in _LINES:
        return _along_others(node, shapes, results)
    if op == aten.native_layer_norm.default:
        return _layer_norm(node, shapes)
    if op == aten.embedding.default:
        rows = _named(len(shapes[1]))
        return Batching(((None, ("column", 1)), rows), ((*rows, ("column", 1)),))
    if op in _ATTENTION:
        return _attention(node, shapes)
    return _pointwise(shapes, results) if is_batched(op) else None


@cache
def _named(count: int) -> Dims:
    return tuple([(str(place), 1) for place in range(count)])


def _broadcast(shape: Shape, to: Dims, extents: Shape) -> Dims:
    """The dims of an operand that is broadcast: aligned at the end, and repeated where it has extent 1."""
    start = len(to) - len(shape)
    return tuple([to[start + dim] if size == extents[start + dim] else None for dim, size in enumerate(shape)])


def _widest(shapes: Sequence[Shape]) -> Shape:
    """What shapes are broadcast to."""
    rank = max(map(len, shapes), default=0)
    return tuple([max([shape[at] for shape in shapes if len(shape) >= -at]) for at in range(-rank, 0)])


def _pointwise(shapes: Sequence[Shape], results: Sequence[Shape]) -> Batching | None:
    whole = shapes[0] if len(set(shapes)) == 1 else _widest(shapes)
    if any(result != whole for result in results):
        return None
    dims = _named(len(whole))
    rows = [dims if shape == whole else _broadcast(shape, dims, whole) for shape in shapes]
    return Batching(tuple(rows), (dims,) * len(results))


def _product(rows: tuple[str, str, str], adds: bool, shapes: Sequence[Shape]) -> Batching | None:
    """An Einstein summation; the first operand of one that adds it is broadcast to the result."""
    first, second, out = ([None if letter == "j" else (letter, 1) for letter in row] for row in rows)
    left, right = shapes[-2:]
    dims: tuple[Dims, ...] = (tuple(first), tuple(second))
    if adds:
        whole = (*left[:-1], right[-1])
        dims = (_broadcast(shapes[0], tuple(out), whole), *dims)
    return Batching(dims, (tuple(out),)) if len(dims) == len(shapes) else None


def _along_others(node: Node, shapes: Sequence[Shape], results: Sequence[Shape]) -> Batching | None:
    """What is summed or normalised along some dims acts one by one along the others."""
    given = node.args[1] if len(node.args) > 1 else None
    listed = given if isinstance(given, tuple) else (given,)
    rank = len(shapes[0])
    if len(shapes) != 1 or not listed:
        return None
    acted = set()
    for dim in listed:
        if not isinstance(dim, int):
            return None
        acted.add(dim % max(rank, 1))
    own = tuple([None if dim in acted else (str(dim), 1) for dim in range(rank)])
    kept = own if len(results[0]) == rank else tuple([name for name in own if name is not None])
    return Batching((own,), (kept,))


def _layer_norm(node: Node, shapes: Sequence[Shape]) -> Batching | None:
    normalised = node.args[1]
    assert isinstance(normalised, tuple)
    lead = len(shapes[0]) - len(normalised)
    dims = (*_named(lead), *[None for _ in normalised])
    others = tuple([tuple([None for _ in shape]) for shape in shapes[1:]])
    return Batching((dims, *others), (dims, dims, dims))


def _attention(node: Node, shapes: Sequence[Shape]) -> Batching | None:
    """Attention without a mask tensor, or its gradient: over batches, and over heads, of which several of queries may share one of keys and values."""
    back = node.op == "gg.sdpa_backward"
    count = 5 if back else 3
    if len(shapes) != count or node.kwargs or (len(node.args) > count + 1 and node.args[count + 1] != 0):
        return None
    query, key, value = shapes[1:4] if back else shapes
    rank = len(query)
    if rank < 3 or len(key) != rank or query[:-3] != key[:-3] or key[:-2] != value[:-2] or not key[-3]:
        return None
    shared, rest = divmod(query[-3], key[-3])
    if rest or (back and not shapes[0] == shapes[4] == (*query[:-1], value[-1])):
        return None
    lead = _named(rank - 3)
    many: Dims = (*lead, ("head", shared), None, None)
    few: Dims = (*lead, ("head", 1), None, None)
    return Batching((many, many, few, few, many), (many, few, few)) if back else Batching((many, few, few), (many,))
