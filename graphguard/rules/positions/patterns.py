"""Layouts with a pattern: triangles, diagonals, sliding windows, shuffles, mirrored borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import aligned, dim_of, expanded
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.index_maps import join, strided_scatter
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.positions.layout import constant_pad, inserted, replaced, select, transpose


@rule("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(a: Algebra[V], self: V, offset: int = 0, dim1: int = 0, dim2: int = 1) -> V:
    """out[..., i] = self[..., i, ...][i + offset], for i from max(0, -offset)"""
    rank = len(self.shape)
    first, second = dim_of(dim1, rank), dim_of(dim2, rank)
    others = [dim for dim in range(rank) if dim not in (first, second)]
    rows, columns = self.shape[first], self.shape[second]
    matrix = a.permute(self, [*others, first, second])
    flat = a.reshape(matrix, (*matrix.shape[:-2], rows * columns))
    row, column = max(0, -offset), max(0, offset)
    count = max(0, min(rows - row, columns - column))
    start = row * columns + column
    if not count:
        return a.slice(flat, len(others), 0, 0)
    return a.slice(flat, len(others), start, start + (count - 1) * (columns + 1) + 1, columns + 1)


@rule("aten.diagonal_backward.default")
def diagonal_backward(
    a: Algebra[V], grad_output: V, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> V:
    """Zeros of input_sizes with the diagonal replaced by grad_output"""
    zeros = a.full(tuple(input_sizes), Fraction(0), grad_output.kind)
    return diagonal_scatter(a, zeros, grad_output, offset, dim1, dim2)


@rule("aten.diagonal_scatter.default")
def diagonal_scatter(a: Algebra[V], self: V, src: V, offset: int = 0, dim1: int = 0, dim2: int = 1) -> V:
    """self with its diagonal replaced by src"""
    rank = len(self.shape)
    first, second = dim_of(dim1, rank), dim_of(dim2, rank)
    others = [dim for dim in range(rank) if dim not in (first, second)]
    order = [*others, first, second]
    matrix = a.permute(self, order)
    columns = matrix.shape[-1]
    start = max(0, -offset) * columns + max(0, offset)
    flat = a.reshape(matrix, (math.prod(matrix.shape),))
    stride = [math.prod(matrix.shape[i + 1 :]) for i in range(len(others))]
    flat = strided_scatter(a, flat, convert(a, src, self.kind), [*stride, columns + 1], start)
    back = [order.index(dim) for dim in range(rank)]
    return a.permute(a.reshape(flat, matrix.shape), back)


@rule("aten.diag_embed.default")
def diag_embed(a: Algebra[V], self: V, offset: int = 0, dim1: int = -2, dim2: int = -1, *, call: Call) -> V:
    """Zeros with the diagonal self"""
    return diagonal_backward(a, self, call.shape(), offset, dim1, dim2)


def triangle(a: Algebra[V], rows: int, columns: int, diagonal: int) -> V:
    """True where column - row <= diagonal: the part that ``tril`` keeps."""
    return a.once(("triangle", rows, columns, diagonal), lambda: _triangle(a, rows, columns, diagonal))


def _triangle(a: Algebra[V], rows: int, columns: int, diagonal: int) -> V:
    row = a.reshape(a.iota(rows), (rows, 1))
    row = a.expand(row, (rows, columns))
    if diagonal:
        row = a.add([row, a.full((rows, columns), Fraction(diagonal), "int")])
    return a.compare("le", a.expand(a.iota(columns), (rows, columns)), row)


@rule("aten.tril.default")
def tril(a: Algebra[V], self: V, diagonal: int = 0) -> V:
    """out[..., i, j] = self[..., i, j] if j - i <= diagonal else 0"""
    keep = a.expand(triangle(a, self.shape[-2], self.shape[-1], diagonal), self.shape)
    return a.where(keep, self, a.full(self.shape, Fraction(0), self.kind))


@rule("aten.triu.default")
def triu(a: Algebra[V], self: V, diagonal: int = 0) -> V:
    """out[..., i, j] = self[..., i, j] if j - i >= diagonal else 0"""
    drop = a.expand(triangle(a, self.shape[-2], self.shape[-1], diagonal - 1), self.shape)
    return a.where(drop, a.full(self.shape, Fraction(0), self.kind), self)


@rule("aten.unfold.default", "aten.unfold_copy.default")
def unfold(a: Algebra[V], self: V, dimension: int, size: int, step: int) -> V:
    """out[..., w, ..., k] = self[..., w step + k, ...]"""
    dim = dim_of(dimension, len(self.shape))
    windows = (self.shape[dim] - size) // step + 1
    last = len(self.shape)
    columns = [inserted(a, a.slice(self, dim, k, k + (windows - 1) * step + 1, step), last) for k in range(size)]
    return join(a, columns, last)


@rule("aten.unfold_backward.default")
def unfold_backward(a: Algebra[V], grad_in: V, input_sizes: Sequence[int], dim: int, size: int, step: int) -> V:
    """The sum, over windows w and places k, of grad_in[..., w, ..., k] at w step + k"""
    dim = dim_of(dim, len(input_sizes))
    zeros = a.full(tuple(input_sizes), Fraction(0), grad_in.kind)
    windows, last = grad_in.shape[dim], len(grad_in.shape) - 1
    parts = [
        replaced(a, zeros, select(a, grad_in, last, k), dim, k, k + (windows - 1) * step + 1, step) for k in range(size)
    ]
    return parts[0] if len(parts) == 1 else a.add(parts)


@rule("aten.pixel_shuffle.default")
def pixel_shuffle(a: Algebra[V], self: V, upscale_factor: int) -> V:
    """out[..., c, h r + i, w r + j] = self[..., c r r + i r + j, h, w]"""
    *lead, channels, height, width = self.shape
    r, n = upscale_factor, len(lead)
    split = a.reshape(self, (*lead, channels // (r * r), r, r, height, width))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return a.reshape(a.permute(split, order), (*lead, channels // (r * r), height * r, width * r))


@rule("aten.pixel_unshuffle.default")
def pixel_unshuffle(a: Algebra[V], self: V, downscale_factor: int) -> V:
    """out[..., c r r + i r + j, h, w] = self[..., c, h r + i, w r + j]"""
    *lead, channels, height, width = self.shape
    r, n = downscale_factor, len(lead)
    split = a.reshape(self, (*lead, channels, height // r, r, width // r, r))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return a.reshape(a.permute(split, order), (*lead, channels * r * r, height // r, width // r))


@rule("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(a: Algebra[V], self: V, groups: int) -> V:
    """out[n, k groups + g, ...] = self[n, g (C / groups) + k, ...]"""
    n, channels, *rest = self.shape
    split = a.reshape(self, (n, groups, channels // groups, *rest))
    order = [0, 2, 1, *range(3, len(rest) + 3)]
    return a.reshape(a.permute(split, order), self.shape)


@rule("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(a: Algebra[V], tensors: Sequence[V], *, indexing: str = "ij") -> list[V]:
    """out[k][i0, i1, ...] = tensors[k][ik]; indexing "xy" exchanges the first two dims."""
    shape = tuple(v.shape[0] if v.shape else 1 for v in tensors)
    grids = [
        a.expand(a.reshape(v, (1,) * k + (shape[k],) + (1,) * (len(shape) - k - 1)), shape)
        for k, v in enumerate(tensors)
    ]
    return [transpose(a, grid, 0, 1) for grid in grids] if indexing == "xy" and len(shape) > 1 else grids


@rule("aten.block_diag.default")
def block_diag(a: Algebra[V], tensors: Sequence[V]) -> V:
    """The tensors as blocks on the diagonal of a matrix of zeros"""
    blocks = [a.reshape(v, ((1, 1), (1, *v.shape), v.shape)[len(v.shape)]) for v in tensors]
    width = sum(v.shape[1] for v in blocks)
    rows, done = [], 0
    for v in blocks:
        rows.append(constant_pad(a, v, 1, done, width - done - v.shape[1], 0))
        done += v.shape[1]
    return join(a, rows, 0)


@rule("aten.rot90.default")
def rot90(a: Algebra[V], self: V, k: int = 1, dims: Sequence[int] = (0, 1)) -> V:
    """k quarter turns from the first towards the second dim"""
    first, second = (dim_of(dim, len(self.shape)) for dim in dims)
    match k % 4:
        case 1:
            return transpose(a, a.flip(self, second), first, second)
        case 2:
            return a.flip(a.flip(self, first), second)
        case 3:
            return a.flip(transpose(a, self, first, second), second)
    return self


@rule("aten.broadcast_tensors.default")
def broadcast_tensors(a: Algebra[V], tensors: Sequence[V]) -> list[V]:
    """All tensors in their common shape"""
    shape = aligned(a, *tensors, kind=None)[0].shape
    return [expanded(a, v, shape) for v in tensors]


@rule("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(a: Algebra[V], self: V, padding: Sequence[int]) -> V:
    """self mirrored about its first and last element along the last dims"""
    for place in range(len(padding) // 2):
        dim = len(self.shape) - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        extent = self.shape[dim]
        parts: list[Any] = [
            a.flip(a.slice(self, dim, 1, before + 1), dim),
            self,
            a.flip(a.slice(self, dim, extent - 1 - after, extent - 1), dim),
        ]
        self = join(a, [part for part in parts if part.shape[dim]], dim)
    return self


@rule("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(a: Algebra[V], self: V, padding: Sequence[int]) -> V:
    """self with its first and last element repeated along the last dims"""
    for place in range(len(padding) // 2):
        dim = len(self.shape) - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        extent = self.shape[dim]
        first, last = a.slice(self, dim, 0, 1), a.slice(self, dim, extent - 1, extent)
        shape = list(self.shape)
        shape[dim] = before
        head = a.expand(first, tuple(shape))
        shape[dim] = after
        tail = a.expand(last, tuple(shape))
        self = join(a, [part for part in (head, self, tail) if part.shape[dim]], dim)
    return self


@rule(*(f"aten.reflection_pad{dims}d_backward.default" for dims in (1, 2, 3)))
def reflection_pad_backward(a: Algebra[V], grad_output: V, self: V, padding: Sequence[int]) -> V:
    """What stands in the mirror added to what it shows"""
    for place in reversed(range(len(padding) // 2)):
        dim = len(self.shape) - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        extent, whole = self.shape[dim], grad_output.shape[dim]
        head = a.flip(a.slice(grad_output, dim, 0, before), dim)
        tail = a.flip(a.slice(grad_output, dim, whole - after, whole), dim)
        grad_output = a.add(
            [
                a.slice(grad_output, dim, before, before + extent),
                constant_pad(a, head, dim, 1, extent - before - 1, 0),
                constant_pad(a, tail, dim, extent - after - 1, 1, 0),
            ]
        )
    return grad_output


@rule(*(f"aten.replication_pad{dims}d_backward.default" for dims in (1, 2, 3)))
def replication_pad_backward(a: Algebra[V], grad_output: V, self: V, padding: Sequence[int]) -> V:
    """The repetitions of the first and the last element added to them"""
    for place in reversed(range(len(padding) // 2)):
        dim = len(self.shape) - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        extent, whole = self.shape[dim], grad_output.shape[dim]
        ends = [a.slice(grad_output, dim, 0, before), a.slice(grad_output, dim, whole - after, whole)]
        head, tail = (inserted(a, a.sum(end, [dim]), dim) for end in ends)
        grad_output = a.add(
            [
                a.slice(grad_output, dim, before, before + extent),
                constant_pad(a, head, dim, 0, extent - 1, 0),
                constant_pad(a, tail, dim, extent - 1, 0, 0),
            ]
        )
    return grad_output
