"""Operators that only rearrange, cut, join or repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, dim_of, expanded, full
from graphguard.rules.basis.casting import cast, convert
from graphguard.rules.basis.index_maps import cut, join, moved, strided, strided_scatter
from graphguard.rules.basis.registry import Call, choosing, moving


@moving(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten._reshape_alias.default",
    "aten._reshape_copy.default",
    "aten.view_copy.default",
    "aten.view_as.default",
    "aten.reshape_as.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.ravel.default",
    "aten.squeeze.default",
    "aten.squeeze_copy.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.dim",
    "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default",
    "aten.atleast_1d.default",
    "aten.atleast_2d.default",
)
def reshape(a: Algebra[V], self: V, *shape: object, call: Call) -> V:
    """The same elements in row-major order, in the shape that the call gives."""
    return a.reshape(self, call.shape())


@moving(
    "aten.alias.default",
    "aten.detach.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten.lift.default",
    "aten.view_as_real.default",
    "aten.view_as_complex.default",
    "aten.positive.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    "aten.alias_copy.default",
    "aten.detach_copy.default",
    "aten.pin_memory.default",
    "_c10d_functional.wait_tensor.default",
)
def identity(a: Algebra[V], self: V, **options: object) -> V:
    """out = self"""
    return self


@moving("aten.permute.default", "aten.permute_copy.default")
def permute(a: Algebra[V], self: V, dims: Sequence[int]) -> V:
    """Dim i of out is dim dims[i] of self."""
    return a.permute(self, [dim_of(dim, len(self.shape)) for dim in dims])


@moving("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default", "aten.mT.default")
def t(a: Algebra[V], self: V) -> V:
    """out[..., j, i] = self[..., i, j]"""
    return transpose(a, self, -2, -1) if len(self.shape) > 1 else self


@moving("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default", "aten.transpose_copy.int")
def transpose(a: Algebra[V], self: V, dim0: int, dim1: int) -> V:
    """Two dims exchanged."""
    order = list(range(len(self.shape)))
    if not order:
        return self
    first, second = dim_of(dim0, len(order)), dim_of(dim1, len(order))
    order[first], order[second] = second, first
    return a.permute(self, order)


@moving("aten.movedim.intlist", "aten.moveaxis.intlist")
def movedim(a: Algebra[V], self: V, source: Sequence[int], destination: Sequence[int]) -> V:
    """Dims source[k] become dims destination[k], the others keep their order."""
    rank = len(self.shape)
    places = {dim_of(d, rank): dim_of(s, rank) for s, d in zip(source, destination, strict=True)}
    others = iter([dim for dim in range(rank) if dim not in places.values()])
    return a.permute(self, [places[dim] if dim in places else next(others) for dim in range(rank)])


@moving("aten.movedim.int", "aten.moveaxis.int")
def movedim_int(a: Algebra[V], self: V, source: int, destination: int) -> V:
    """Dim source becomes dim destination."""
    return movedim(a, self, [source], [destination])


@moving("aten.expand.default", "aten.expand_copy.default", "aten.expand_as.default", "aten.broadcast_to.default")
def expand(a: Algebra[V], self: V, size: object, *, implicit: bool = False, call: Call) -> V:
    """Dims of extent 1 repeated, new dims in front."""
    return expanded(a, self, call.shape())


@moving("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_tensor(
    a: Algebra[V], self: V, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> V:
    """out[..., i, ...] = self[..., start + i step, ...], bounds clamped to the extent."""
    dim = dim_of(dim, len(self.shape))
    low, high = bounds(start, end, self.shape[dim])
    return cut(a, self, dim, low, high, step)


def bounds(start: int | None, end: int | None, extent: int) -> tuple[int, int]:
    """Python's reading of slice bounds."""
    low, high, _ = slice(start, end).indices(extent)
    return low, max(low, high)


@moving("aten.narrow.default", "aten.narrow_copy.default")
def narrow(a: Algebra[V], self: V, dim: int, start: int, length: int) -> V:
    """out[..., i, ...] = self[..., start + i, ...] for i < length"""
    dim = dim_of(dim, len(self.shape))
    start = start + self.shape[dim] if start < 0 else start
    return cut(a, self, dim, start, start + length)


@moving("aten.select.int", "aten.select_copy.int")
def select(a: Algebra[V], self: V, dim: int, index: int) -> V:
    """out[...] = self[..., index, ...]"""
    dim = dim_of(dim, len(self.shape))
    index = index + self.shape[dim] if index < 0 else index
    return dropped(a, a.slice(self, dim, index, index + 1), dim)


def dropped(a: Algebra[V], v: V, dim: int) -> V:
    """v without a dim of extent 1."""
    return a.reshape(v, v.shape[:dim] + v.shape[dim + 1 :])


def inserted(a: Algebra[V], v: V, dim: int) -> V:
    """v with a dim of extent 1 before dim ``dim``."""
    return a.reshape(v, (*v.shape[:dim], 1, *v.shape[dim:]))


@moving("aten.unbind.int", "aten.unbind_copy.int")
def unbind(a: Algebra[V], self: V, dim: int = 0) -> list[V]:
    """out[k] = self[..., k, ...]"""
    dim = dim_of(dim, len(self.shape))
    return [select(a, self, dim, index) for index in range(self.shape[dim])]


def cut_at(a: Algebra[V], v: V, dim: int, sizes: Sequence[int]) -> list[V]:
    """v cut along a dim into pieces of these sizes."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(cut(a, v, dim, start, start + size))
        start += size
    return pieces


def even_sizes(extent: int, size: int) -> list[int]:
    """``extent`` as pieces of ``size``, the last one shorter."""
    if size == 0 or extent == 0:
        return [0]
    return [min(size, extent - start) for start in range(0, extent, size)]


@moving("aten.split.Tensor", "aten.split_copy.Tensor", "aten.unsafe_split.Tensor")
def split(a: Algebra[V], self: V, split_size: int, dim: int = 0) -> list[V]:
    """Pieces of split_size along dim, the last one shorter."""
    dim = dim_of(dim, len(self.shape))
    return cut_at(a, self, dim, even_sizes(self.shape[dim], split_size))


@moving(
    "aten.split_with_sizes.default",
    "aten.split.sizes",
    "aten.split_with_sizes_copy.default",
    "aten.unsafe_split_with_sizes.default",
)
def split_with_sizes(a: Algebra[V], self: V, split_sizes: Sequence[int], dim: int = 0) -> list[V]:
    """Pieces of split_sizes[k] along dim."""
    return cut_at(a, self, dim_of(dim, len(self.shape)), split_sizes)


@moving("aten.chunk.default")
def chunk(a: Algebra[V], self: V, chunks: int, dim: int = 0) -> list[V]:
    """Pieces of ceil(extent / chunks) along dim, the last one shorter."""
    dim = dim_of(dim, len(self.shape))
    return cut_at(a, self, dim, even_sizes(self.shape[dim], -(-self.shape[dim] // chunks)))


@moving("aten.tensor_split.sections")
def tensor_split(a: Algebra[V], self: V, sections: int, dim: int = 0) -> list[V]:
    """Pieces along dim that differ by at most one, the larger ones first."""
    dim = dim_of(dim, len(self.shape))
    least, more = divmod(self.shape[dim], sections)
    return cut_at(a, self, dim, [least + (k < more) for k in range(sections)])


@moving("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(a: Algebra[V], tensors: Sequence[V], dim: int = 0, *, call: Call) -> V:
    """The tensors joined along dim; empty one-dimensional ones are left out."""
    kept = [v for v in tensors if v.shape != (0,)] or list(tensors[:1])
    kind = call.kind()
    return join(a, [convert(a, v, kind) for v in kept], dim_of(dim, len(kept[0].shape)))


@moving("aten.stack.default")
def stack(a: Algebra[V], tensors: Sequence[V], dim: int = 0, *, call: Call) -> V:
    """out[..., k, ...] = tensors[k]"""
    dim, kind = dim_of(dim, len(tensors[0].shape) + 1), call.kind()
    return join(a, [inserted(a, convert(a, v, kind), dim) for v in tensors], dim)


@moving("aten.flip.default")
def flip(a: Algebra[V], self: V, dims: Sequence[int]) -> V:
    """Reverse order along dims."""
    for dim in dims:
        self = a.flip(self, dim_of(dim, len(self.shape)))
    return self


@moving("aten.roll.default")
def roll(a: Algebra[V], self: V, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> V:
    """out[..., i, ...] = self[..., i - shift mod extent, ...]; without dims the flattening is rolled."""
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = a.reshape(self, (math.prod(self.shape),))
        return a.reshape(roll(a, flat, shifts, [0]), self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        dim = dim_of(dim, len(self.shape))
        extent = self.shape[dim]
        middle = (extent - shift) % extent if extent else 0
        if middle:
            self = a.concat([a.slice(self, dim, middle, extent), a.slice(self, dim, 0, middle)], dim)
    return self


@moving("aten.repeat.default", "aten.tile.default")
def repeat(a: Algebra[V], self: V, repeats: Sequence[int]) -> V:
    """out[i, ...] = self[i mod extent, ...], repeats[d] times along dim d; new dims in front."""
    rank = max(len(repeats), len(self.shape))
    shape = (1,) * (rank - len(self.shape)) + self.shape
    times = (1,) * (rank - len(repeats)) + tuple(repeats)
    paired = a.reshape(self, tuple(e for extent in shape for e in (1, extent)))
    paired = a.expand(paired, tuple(e for count, extent in zip(times, shape, strict=True) for e in (count, extent)))
    return a.reshape(paired, tuple(count * extent for count, extent in zip(times, shape, strict=True)))


@moving("aten.repeat_interleave.self_int")
def repeat_interleave(
    a: Algebra[V], self: V, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> V:
    """out[..., i, ...] = self[..., i // repeats, ...]"""
    if dim is None:
        self, dim = a.reshape(self, (math.prod(self.shape),)), 0
    dim = dim_of(dim, len(self.shape))
    before, extent, after = self.shape[:dim], self.shape[dim], self.shape[dim + 1 :]
    wide = a.expand(a.reshape(self, (*before, extent, 1, *after)), (*before, extent, repeats, *after))
    return a.reshape(wide, (*before, extent * repeats, *after))


@moving("aten.repeat_interleave.Tensor")
def repeat_interleave_counts(a: Algebra[V], repeats: V, *, output_size: int | None = None) -> V:
    """Position i repeated repeats[i] times, for repeats that are known."""
    counts = a.known(repeats)
    if counts is None:
        raise Unsupported("repeat_interleave by counts that depend on the data")
    return a.literal(np.repeat(np.arange(counts.size, dtype=np.int64), counts.reshape(-1)))


@moving("aten.repeat_interleave.self_Tensor")
def repeat_interleave_tensor(
    a: Algebra[V], self: V, repeats: V, dim: int | None = None, *, output_size: int | None = None
) -> V:
    """self[..., i, ...] repeated repeats[i] times, for repeats that are known."""
    counts = a.known(repeats)
    if counts is None:
        raise Unsupported("repeat_interleave by counts that depend on the data")
    if dim is None:
        self, dim = a.reshape(self, (math.prod(self.shape),)), 0
    dim = dim_of(dim, len(self.shape))
    rows = range(self.shape[dim])
    pieces = [
        repeat_interleave(a, cut(a, self, dim, row, row + 1), int(counts.reshape(-1)[row % counts.size]), dim)
        for row in rows
    ]
    return join(a, pieces, dim)


@choosing("aten.constant_pad_nd.default")
def constant_pad_nd(a: Algebra[V], self: V, pad: Sequence[int], value: Number = 0) -> V:
    """self with pad[2 k] and pad[2 k + 1] elements ``value`` before and after dim -1 - k; negative ones cut."""
    for place in range(len(pad) // 2):
        dim = len(self.shape) - 1 - place
        self = constant_pad(a, self, dim, pad[2 * place], pad[2 * place + 1], value)
    return self


def constant_pad(a: Algebra[V], v: V, dim: int, before: int, after: int, value: Number) -> V:
    """v with so many elements ``value`` before and after along a dim; negative numbers cut."""
    v = cut(a, v, dim, max(0, -before), v.shape[dim] + min(0, after))

    def filling(count: int) -> list[V]:
        shape = (*v.shape[:dim], count, *v.shape[dim + 1 :])
        return [full(a, shape, value, v.kind)] if count > 0 else []

    return join(a, [*filling(before), v, *filling(after)], dim)


@choosing("aten.pad.default")
def pad(a: Algebra[V], self: V, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> V:
    """self with pad[2 k] and pad[2 k + 1] elements before and after dim -1 - k."""
    if mode == "constant":
        return constant_pad_nd(a, self, pad, value or 0)
    if mode == "circular" and len(pad) == 2:
        extent = self.shape[-1]
        dim = len(self.shape) - 1
        parts = [a.slice(self, dim, extent - pad[0], extent), self, a.slice(self, dim, 0, pad[1])]
        return join(a, [part for part in parts if part.shape[dim]], dim)
    raise Unsupported(f"padding mode {mode}")


@moving("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    a: Algebra[V], self: V, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> V:
    """out[i, j, ...] = flat[storage_offset + i stride[0] + j stride[1] + ...], flat the row-major elements of self."""
    flat = a.reshape(self, (math.prod(self.shape),))
    return strided(a, flat, size, stride, storage_offset or 0)


@moving("aten.as_strided_scatter.default")
def as_strided_scatter(
    a: Algebra[V],
    self: V,
    src: V,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
    *,
    call: Call,
) -> V:
    """self with the elements that as_strided(size, stride, storage_offset) reads replaced by src."""
    flat = a.reshape(self, (math.prod(self.shape),))
    source = expanded(a, cast(a, src, call.dtype("src"), call.dtype("self")), tuple(size))
    return a.reshape(strided_scatter(a, flat, source, stride, storage_offset or 0), self.shape)


def replaced(a: Algebra[V], v: V, source: V, dim: int, start: int, stop: int, step: int = 1) -> V:
    """v with a slice replaced by source, which is broadcast to it and takes its kind."""
    count = len(range(start, stop, step))
    source = expanded(a, convert(a, source, v.kind), (*v.shape[:dim], count, *v.shape[dim + 1 :]))
    if step != 1:
        return _replaced_steps(a, v, source, dim, start, count, step)
    extent = v.shape[dim]
    parts = [a.slice(v, dim, 0, start), source, a.slice(v, dim, start + count, extent)]
    kept = [part for part in parts if part.shape[dim]]
    return join(a, kept, dim) if kept else v


def _replaced_steps(a: Algebra[V], v: V, source: V, dim: int, start: int, count: int, step: int) -> V:
    """Column start mod step of the dim seen as rows of ``step`` elements."""
    last = moved(a, v, dim, len(v.shape) - 1)
    lead = last.shape[:-1]
    flat = a.reshape(last, (math.prod(last.shape),))
    stride = [math.prod(last.shape[i + 1 :]) for i in range(len(lead))]
    source = moved(a, source, dim, len(v.shape) - 1)
    flat = strided_scatter(a, flat, source, [*stride, step], start)
    return moved(a, a.reshape(flat, last.shape), len(v.shape) - 1, dim)


@moving("aten.slice_scatter.default")
def slice_scatter(
    a: Algebra[V],
    self: V,
    src: V,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    call: Call,
) -> V:
    """self with self[..., start:end:step, ...] replaced by src"""
    dim = dim_of(dim, len(self.shape))
    low, high = bounds(start, end, self.shape[dim])
    source = cast(a, src, call.dtype("src"), call.dtype("self"))
    return replaced(a, self, source, dim, low, high, step)


@moving("aten.select_scatter.default")
def select_scatter(a: Algebra[V], self: V, src: V, dim: int, index: int, *, call: Call) -> V:
    """self with self[..., index, ...] replaced by src"""
    dim = dim_of(dim, len(self.shape))
    index = index + self.shape[dim] if index < 0 else index
    source = expanded(a, cast(a, src, call.dtype("src"), call.dtype("self")), self.shape[:dim] + self.shape[dim + 1 :])
    return replaced(a, self, inserted(a, source, dim), dim, index, index + 1)


@moving("aten.slice_backward.default")
def slice_backward(
    a: Algebra[V], grad_output: V, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> V:
    """Zeros of input_sizes with [..., start:end:step, ...] replaced by grad_output"""
    dim = dim_of(dim, len(input_sizes))
    zeros = a.full(tuple(input_sizes), Fraction(0), grad_output.kind)
    low, high = bounds(start, end, input_sizes[dim])
    return replaced(a, zeros, grad_output, dim, low, high, step)


@moving("aten.select_backward.default")
def select_backward(a: Algebra[V], grad_output: V, input_sizes: Sequence[int], dim: int, index: int) -> V:
    """Zeros of input_sizes with [..., index, ...] replaced by grad_output"""
    dim = dim_of(dim, len(input_sizes))
    zeros = a.full(tuple(input_sizes), Fraction(0), grad_output.kind)
    index = index + input_sizes[dim] if index < 0 else index
    return replaced(a, zeros, inserted(a, grad_output, dim), dim, index, index + 1)
