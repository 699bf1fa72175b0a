"""Nodes of a peer-pair graph as calls of the product's operators.

ATen operators stay what they are.  XLA's, Apex's and vLLM's are written out in ATen operators from their documentation, so
that prover and numbers follow them with no rule or kernel of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peer_pair.document import Named, PeerNode, Ref, Value
from graphguard.ir import DType, Var
from graphguard.ir.building import Builder
from graphguard.ir.graph import Arg


class ConversionError(ValueError):
    """A node that has no counterpart here; the message names the operator."""


Results = dict[int, Var]

# What says where a tensor lives, not what it is.
_PLACE: Final = frozenset({"device", "layout", "pin_memory", "memory_format"})
_ALIASES: Final = frozenset(
    {"aten.clone.default", "aten.detach.default", "aten.alias.default", "_c10d_functional.wait_tensor.default"}
    | {"aten.contiguous.default", "aten._to_copy.default"}
)


@dataclass(slots=True)
class Call:
    """One node being converted: what it reads is already there."""

    node: PeerNode
    builder: Builder
    values: Mapping[str, Var]
    nodes: Mapping[str, PeerNode]

    def tensor(self, value: Value) -> Var:
        """The variable of an argument that must be a tensor."""
        if not isinstance(value, Ref) or value.node not in self.values:
            raise ConversionError(f"'{self.node.op}' at '{self.node.id}': a tensor is missing")
        return self.values[value.node]

    def arg(self, value: Value) -> Arg:
        """An argument as the graph takes it."""
        if isinstance(value, Ref):
            return self.tensor(value)
        if isinstance(value, Named):
            return DType(value.text) if value.kind == "dtype" else None
        if isinstance(value, tuple):
            return tuple(self.arg(item) for item in value)
        if isinstance(value, dict):
            raise ConversionError(f"'{self.node.op}' takes a dict")
        return value

    @property
    def out(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of the single result."""
        if self.node.shape is None or self.node.dtype is None:
            raise ConversionError(f"'{self.node.id}' has no type")
        return self.node.shape, self.node.dtype

    def shape(self, var: Var) -> tuple[int, ...]:
        """The shape of a variable."""
        return tuple(size for size in self.builder.types[var].shape if isinstance(size, int))

    def dtype(self, var: Var) -> str:
        """The element type of a variable."""
        return self.builder.types[var].dtype

    def emit(self, op: str, *args: Arg, shape: Sequence[int], dtype: str, typed: bool = False) -> Var:
        """Append a call with one result; ``typed`` operators are told its element type."""
        kwargs: dict[str, Arg] = {"dtype": DType(dtype)} if typed else {}
        return self.builder.call(op, *args, out=(tuple(shape), dtype), **kwargs)

    def reshape(self, x: Var, shape: Sequence[int]) -> Var:
        """The same elements in another shape."""
        if self.shape(x) == tuple(shape):
            return x
        return self.emit("aten.view.default", x, tuple(shape), shape=shape, dtype=self.dtype(x))

    def permute(self, x: Var, dims: Sequence[int]) -> Var:
        """Dims in another order."""
        if list(dims) == list(range(len(dims))):
            return x
        sizes = self.shape(x)
        return self.emit("aten.permute.default", x, tuple(dims), shape=[sizes[d] for d in dims], dtype=self.dtype(x))

    def slice(self, x: Var, dim: int, start: int, stop: int) -> Var:
        """Positions start to stop along a dim."""
        sizes = list(self.shape(x))
        sizes[dim] = stop - start
        return self.emit("aten.slice.Tensor", x, dim, start, stop, shape=sizes, dtype=self.dtype(x))

    def binary(self, op: str, a: Var, b: Arg) -> Var:
        """An elementwise operator of two operands, broadcast."""
        shape = self.shape(a)
        if isinstance(b, Var):
            other = self.shape(b)
            width = max(len(shape), len(other))
            pairs = zip((1,) * (width - len(shape)) + shape, (1,) * (width - len(other)) + other, strict=True)
            shape = tuple(max(pair) for pair in pairs)
        return self.emit(op, a, b, shape=shape, dtype=self.dtype(a))

    def unary(self, op: str, x: Var) -> Var:
        """An elementwise operator of one operand."""
        return self.emit(op, x, shape=self.shape(x), dtype=self.dtype(x))


def convert_node(call: Call) -> Var:
    """The result of a node with one result."""
    op = call.node.op
    if op in _ALIASES:
        return _alias(call)
    if op in _SINGLE:
        return _SINGLE[op](call)
    if op.startswith("aten."):
        kwargs = {key: call.arg(value) for key, value in call.node.kwargs.items() if key not in _PLACE}
        return call.builder.call(op, *(call.arg(value) for value in call.node.args), out=call.out, **kwargs)
    raise ConversionError(f"no counterpart for '{op}'")


def convert_item(call: Call, source: PeerNode, index: int, memo: dict[str, Results]) -> Var:
    """Result number ``index`` of a node with several; ``memo`` keeps those already made."""
    op = str(source.args[0]) if source.op == "auto_functionalized" else source.op
    if op in _ITEM:
        return _ITEM[op](call, source, index)
    if op not in _SEVERAL:
        raise ConversionError(f"no counterpart for '{op}' with several results")
    if source.id not in memo:
        memo[source.id] = _SEVERAL[op](call, source)
    if index not in memo[source.id]:
        raise ConversionError(f"result {index} of '{op}' is unknown")
    return memo[source.id][index]


def _alias(call: Call) -> Var:
    x = call.tensor(call.node.args[0])
    shape, dtype = call.out
    if dtype == call.dtype(x):
        return x
    # A conversion of types may be written as a copy whose result has another type.
    return call.emit("aten._to_copy.default", x, shape=shape, dtype=dtype, typed=True)


def _copy(call: Call) -> Var:
    source = call.tensor(call.node.args[1])
    shape, _ = call.out
    if call.shape(source) == shape:
        return source
    return call.emit("aten.expand.default", source, shape, shape=shape, dtype=call.dtype(source))


def _fresh_copy(call: Call) -> Var:
    shape, dtype = call.out
    value = call.node.kwargs.get("value", 0)
    if not isinstance(value, bool | int | float):
        raise ConversionError(f"the literal at '{call.node.id}' has no value")
    return call.emit("aten.full.default", shape, value, shape=shape, dtype=dtype, typed=True)


def _numbers(value: Value) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise ConversionError("a list of numbers was expected")
    return tuple(item for item in value if isinstance(item, int))


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise ConversionError("a number was expected")
    return value


def _hlo_dot(call: Call) -> Var:
    """XLA's DotGeneral: contracting and batch dims of both operands; result dims are batch, free of a, free of b."""
    a, b = call.tensor(call.node.args[0]), call.tensor(call.node.args[1])
    contract_a, contract_b, batch_a, batch_b = (_numbers(value) for value in call.node.args[2:6])
    left, rows = _matrix(call, a, batch_a, contract_a, contracted_last=True)
    right, columns = _matrix(call, b, batch_b, contract_b, contracted_last=False)
    shape, dtype = call.out
    batch, m, n = call.shape(left)[0], call.shape(left)[1], call.shape(right)[2]
    result = call.emit("aten.bmm.default", left, right, shape=(batch, m, n), dtype=dtype)
    expected = tuple(call.shape(a)[d] for d in batch_a) + rows + columns
    if expected != shape:
        raise ConversionError(f"'{call.node.id}': the result's shape is not that of its operands")
    return call.reshape(result, shape)


def _matrix(
    call: Call, x: Var, batch: tuple[int, ...], contracted: tuple[int, ...], *, contracted_last: bool
) -> tuple[Var, tuple[int, ...]]:
    """An operand as (batch, rows, columns), and the extents of its free dims."""
    sizes = call.shape(x)
    free = tuple(d for d in range(len(sizes)) if d not in batch and d not in contracted)
    tail = (*free, *contracted) if contracted_last else (*contracted, *free)
    moved = call.permute(x, (*batch, *tail))
    count, inner, outer = (_product(sizes[d] for d in dims) for dims in (batch, contracted, free))
    shape = (count, outer, inner) if contracted_last else (count, inner, outer)
    return call.reshape(moved, shape), tuple(sizes[d] for d in free)


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _hlo_broadcast(call: Call) -> Var:
    """XLA's Broadcast: dim i of the operand becomes dim ``dims[i]`` of the result; a number fills it."""
    operand, (shape, dtype) = call.node.args[0], call.out
    if not isinstance(operand, Ref):
        fill = operand if isinstance(operand, bool | int | float) else 0
        return call.emit("aten.full.default", shape, fill, shape=shape, dtype=dtype, typed=True)
    x, dims = call.tensor(operand), _numbers(call.node.args[1])
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    moved = call.permute(x, order)
    sizes = [1] * len(shape)
    for position, i in enumerate(order):
        sizes[dims[i]] = call.shape(moved)[position]
    return call.emit("aten.expand.default", call.reshape(moved, sizes), shape, shape=shape, dtype=dtype)


def _hlo_select(call: Call) -> Var:
    condition, a, b = (call.tensor(value) for value in call.node.args[:3])
    shape, dtype = call.out
    return call.emit("aten.where.self", condition, a, b, shape=shape, dtype=dtype)


def _hlo_reduce_max(call: Call) -> Var:
    shape, dtype = call.out
    dims = call.node.args[1]
    return call.emit(
        "aten.amax.default",
        call.tensor(call.node.args[0]),
        _numbers(dims) if isinstance(dims, tuple) else (_number(dims),),
        shape=shape,
        dtype=dtype,
    )


def _hlo_gather(call: Call) -> Var:
    """XLA's Gather where it takes whole rows: one start index a row, of one dim, which is collapsed."""
    x, index = call.tensor(call.node.args[0]), call.tensor(call.node.args[1])
    offset, collapsed, started = (_numbers(value) for value in call.node.args[2:5])
    sizes, slices = call.shape(x), _numbers(call.node.args[6])
    dim = collapsed[0] if len(collapsed) == 1 else -1
    whole = all(slices[d] == (1 if d == dim else sizes[d]) for d in range(len(sizes)))
    if started != (dim,) or not whole or offset != tuple(range(1, len(sizes))):
        raise ConversionError("XLA's Gather of anything but whole rows")
    shape, dtype = call.out
    rows = call.reshape(index, (_product(call.shape(index)),))
    return call.emit("aten.index_select.default", x, dim, rows, shape=shape, dtype=dtype)


def _neuron_rms_norm(call: Call) -> Var:
    """Neuron's RMS norm of (hidden, ...) with a weight of (hidden,)."""
    x, weight = call.tensor(call.node.args[0]), call.tensor(call.node.args[1])
    sizes = call.shape(x)
    dims = [dim for dim, size in enumerate(sizes) if size == call.shape(weight)[0]]
    if not dims:
        raise ConversionError("an RMS norm whose weight fits no dim")
    shaped = call.reshape(weight, [size if dim == dims[0] else 1 for dim, size in enumerate(sizes)])
    return _cast(call, _rms_norm(call, x, shaped, dims[0], call.node.args[2]), call.out[1])


def _rms_norm(call: Call, x: Var, weight: Var, dim: int, epsilon: Value) -> Var:
    """x / sqrt(mean(x^2) + epsilon) * weight along a dim."""
    sizes = list(call.shape(x))
    sizes[dim] = 1
    square = call.binary("aten.mul.Tensor", x, x)
    mean = call.emit("aten.mean.dim", square, (dim,), True, shape=sizes, dtype=call.dtype(x))
    if not isinstance(epsilon, int | float):
        raise ConversionError("an RMS norm without epsilon")
    scale = call.unary("aten.rsqrt.default", call.binary("aten.add.Tensor", mean, epsilon))
    return call.binary("aten.mul.Tensor", call.binary("aten.mul.Tensor", x, scale), weight)


def _cast(call: Call, x: Var, dtype: str) -> Var:
    if call.dtype(x) == dtype:
        return x
    return call.emit("aten._to_copy.default", x, shape=call.shape(x), dtype=dtype, typed=True)


def _logistic(call: Call) -> Var:
    return call.unary("aten.sigmoid.default", call.tensor(call.node.args[0]))


_SINGLE: Final[dict[str, Callable[[Call], Var]]] = {
    "aten.copy.default": _copy,
    "aten.lift_fresh_copy.default": _fresh_copy,
    "hlo.dot": _hlo_dot,
    "hlo.broadcast": _hlo_broadcast,
    "hlo.select": _hlo_select,
    "hlo.reduce_max": _hlo_reduce_max,
    "hlo.gather": _hlo_gather,
    "hlo.logistic": _logistic,
    "hlo.AwsNeuronRmsNorm": _neuron_rms_norm,
}


# -- nodes with several results


def _split(call: Call, source: PeerNode, index: int) -> Var:
    x, sizes = call.tensor(source.args[0]), _numbers(source.args[1])
    dim = _number(source.args[2]) if len(source.args) > 2 else 0
    start = sum(sizes[:index])
    return call.slice(x, dim % len(call.shape(x)), start, start + sizes[index])


def _split_equal(call: Call, source: PeerNode, index: int) -> Var:
    x, size = call.tensor(source.args[0]), _number(source.args[1])
    dim = (_number(source.args[2]) if len(source.args) > 2 else 0) % len(call.shape(x))
    start = index * size
    return call.slice(x, dim, start, min(start + size, call.shape(x)[dim]))


def _chunk(call: Call, source: PeerNode, index: int) -> Var:
    x, count = call.tensor(source.args[0]), _number(source.args[1])
    dim = (_number(source.args[2]) if len(source.args) > 2 else 0) % len(call.shape(x))
    size = -(-call.shape(x)[dim] // count)
    return call.slice(x, dim, index * size, min((index + 1) * size, call.shape(x)[dim]))


def _max(call: Call, source: PeerNode, index: int) -> Var:
    x, dim = call.tensor(source.args[0]), _number(source.args[1])
    keep = len(source.args) > 2 and bool(source.args[2])
    shape, dtype = call.out
    if index == 0:
        return call.emit("aten.amax.default", x, (dim,), keep, shape=shape, dtype=dtype)
    return call.emit("aten.argmax.default", x, dim, keep, shape=shape, dtype=dtype)


def _dropout(call: Call, source: PeerNode, index: int) -> Var:
    """Dropout whose random state is not part of the graph: a fixed function of the element and the probability."""
    if index != 0:
        raise ConversionError("the mask of a dropout, whose random state is unknown")
    x, p = call.tensor(source.args[0]), source.args[1]
    if not isinstance(p, int | float):
        raise ConversionError("a dropout without probability")
    if p == 0 or (len(source.args) > 2 and source.args[2] is False):
        return x
    return call.emit("peer.dropout", x, float(p), shape=call.shape(x), dtype=call.dtype(x))


def _layer_norm(call: Call, source: PeerNode) -> Results:
    """Apex: (x, weight, bias, normalized shape, eps) -> (result, mean, inverse deviation), the statistics flat."""
    x, weight, bias = (call.tensor(value) for value in source.args[:3])
    sizes, normal = call.shape(x), _numbers(source.args[3])
    kept = sizes[: len(sizes) - len(normal)]
    statistics = (*kept, *(1 for _ in normal))
    kinds = [(sizes, call.dtype(x)), (statistics, "float32"), (statistics, "float32")]
    first = call.builder.call(
        "aten.native_layer_norm.default", x, normal, weight, bias, call.arg(source.args[4]), out=kinds
    )
    outs = call.builder.nodes[-1].outs
    return {0: first, 1: call.reshape(outs[1], (_product(kept),)), 2: call.reshape(outs[2], (_product(kept),))}


def _layer_norm_backward(call: Call, source: PeerNode) -> Results:
    """Apex: (grad, mean, inverse deviation, x, normalized shape, weight, bias, eps) -> gradients of x, weight, bias."""
    grad, mean, deviation, x = (call.tensor(value) for value in source.args[:4])
    normal = _numbers(source.args[4])
    weight, bias = call.tensor(source.args[5]), call.tensor(source.args[6])
    sizes = call.shape(x)
    statistics = (*sizes[: len(sizes) - len(normal)], *(1 for _ in normal))
    kinds = [(sizes, call.dtype(x)), (normal, call.dtype(weight)), (normal, call.dtype(bias))]
    mask = (True, True, True)
    means, deviations = call.reshape(mean, statistics), call.reshape(deviation, statistics)
    call.builder.call(
        "aten.native_layer_norm_backward.default", grad, x, normal, means, deviations, weight, bias, mask, out=kinds
    )
    return dict(enumerate(call.builder.nodes[-1].outs))


def _vllm_rms_norm(call: Call, source: PeerNode, index: int) -> Var:
    x, weight = call.tensor(source.kwargs["input"]), call.tensor(source.kwargs["weight"])
    _result(index, 1)
    return _rms_norm(call, x, weight, len(call.shape(x)) - 1, source.kwargs["epsilon"])


def _vllm_fused_add_rms_norm(call: Call, source: PeerNode) -> Results:
    """In place: residual = input + residual, input = rms_norm(residual)."""
    x, residual, weight = (call.tensor(source.kwargs[name]) for name in ("input", "residual", "weight"))
    total = call.binary("aten.add.Tensor", x, residual)
    return {1: _rms_norm(call, total, weight, len(call.shape(x)) - 1, source.kwargs["epsilon"]), 2: total}


def _vllm_silu_and_mul(call: Call, source: PeerNode, index: int) -> Var:
    """silu of the first half of the last dim, times the second half."""
    _result(index, 1)
    x = call.tensor(source.kwargs["input"])
    last = len(call.shape(x)) - 1
    half = call.shape(x)[last] // 2
    gate, up = call.slice(x, last, 0, half), call.slice(x, last, half, 2 * half)
    return call.binary("aten.mul.Tensor", call.unary("aten.silu.default", gate), up)


def _vllm_rotary(call: Call, source: PeerNode) -> Results:
    """Rotary embedding in the NeoX or the interleaved style; the cache's rows are cosines, then sines."""
    positions, cache = call.tensor(source.kwargs["positions"]), call.tensor(source.kwargs["cos_sin_cache"])
    width, tokens = call.shape(cache)[1], call.shape(positions)[0]
    rows = call.emit("aten.embedding.default", cache, positions, shape=(tokens, width), dtype=call.dtype(cache))
    cosine, sine = (call.slice(rows, 1, at * width // 2, (at + 1) * width // 2) for at in (0, 1))
    tables = [call.reshape(table, (tokens, 1, width // 2)) for table in (cosine, sine)]
    size, neox = _number(source.kwargs["head_size"]), bool(source.kwargs["is_neox"])
    return {
        index: _rotated(call, call.tensor(source.kwargs[name]), tables, (size, width), neox=neox)
        for index, name in ((1, "query"), (2, "key"))
    }


def _rotated(call: Call, x: Var, tables: Sequence[Var], widths: tuple[int, int], *, neox: bool) -> Var:
    size, width = widths
    tokens, dtype = call.shape(x)[0], call.dtype(x)
    heads = call.reshape(x, (tokens, _product(call.shape(x)[1:]) // size, size))
    count = call.shape(heads)[1]
    turned = heads if width == size else call.slice(heads, 2, 0, width)
    if neox:
        first, second = call.slice(turned, 2, 0, width // 2), call.slice(turned, 2, width // 2, width)
    else:
        pairs = call.reshape(turned, (tokens, count, width // 2, 2))
        first, second = (call.reshape(call.slice(pairs, 3, at, at + 1), (tokens, count, width // 2)) for at in (0, 1))
    mul, cosine, sine = "aten.mul.Tensor", *tables
    left = call.binary("aten.sub.Tensor", call.binary(mul, first, cosine), call.binary(mul, second, sine))
    right = call.binary("aten.add.Tensor", call.binary(mul, second, cosine), call.binary(mul, first, sine))
    if not neox:
        left, right = (call.reshape(half, (tokens, count, width // 2, 1)) for half in (left, right))
        both = call.emit("aten.cat.default", (left, right), 3, shape=(tokens, count, width // 2, 2), dtype=dtype)
        result = call.reshape(both, (tokens, count, width))
    else:
        result = call.emit("aten.cat.default", (left, right), 2, shape=(tokens, count, width), dtype=dtype)
    if width != size:
        rest = call.slice(heads, 2, width, size)
        result = call.emit("aten.cat.default", (result, rest), 2, shape=(tokens, count, size), dtype=dtype)
    return call.reshape(result, call.shape(x))


def _vllm_attention(call: Call, source: PeerNode, index: int) -> Var:
    """Causal attention of all tokens as one sequence, key and value heads shared by equal groups of query heads."""
    _result(index, 1)
    query, key, value = (call.tensor(source.kwargs[name]) for name in ("query", "key", "value"))
    heads = [call.permute(x, (1, 0, 2)) for x in (query, key, value)]
    shape = call.shape(heads[0])
    result = call.emit("gg.sdpa", *heads, None, 0.0, True, None, True, shape=shape, dtype=call.dtype(query))
    return call.permute(result, (1, 0, 2))


def _result(index: int, expected: int) -> None:
    if index != expected:
        raise ConversionError(f"result {index} of an operator that writes one tensor")


_ITEM: Final[dict[str, Callable[[Call, PeerNode, int], Var]]] = {
    "aten.split_with_sizes.default": _split,
    "aten.split.Tensor": _split_equal,
    "aten.chunk.default": _chunk,
    "aten.max.dim": _max,
    "aten.native_dropout.default": _dropout,
    "_C.rms_norm.default": _vllm_rms_norm,
    "_C.silu_and_mul.default": _vllm_silu_and_mul,
    "vllm.unified_attention_with_output.default": _vllm_attention,
}
_SEVERAL: Final[dict[str, Callable[[Call, PeerNode], Results]]] = {
    "apex.fused_layer_norm_affine_fwd.default": _layer_norm,
    "apex.fused_layer_norm_affine_bwd.default": _layer_norm_backward,
    "_C.fused_add_rms_norm.default": _vllm_fused_add_rms_norm,
    "_C.rotary_embedding.default": _vllm_rotary,
}
