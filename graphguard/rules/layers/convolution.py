"""Convolutions and average pooling, as contractions.

The place of an input element in a window is a constant: with stride s, padding p and dilation d, output y meets input h at kernel place k where
h = y s + k d - p.  ``reach[y, k, h]`` is 1 there, else 0 (so padding needs nothing of its own), and every convolution is

    out[n, o, y, ...] = sum over c, k, h, ... of input[n, c, h, ...] weight[o, c, k, ...] reach[y, k, h] ...

Its gradients are the same contraction solved for another factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Generic

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS, plus, scaled
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.layers.shifts import LONGEST, Shifts
from graphguard.rules.lines.reductions import total
from graphguard.rules.positions.layout import inserted


def reach(a: Algebra[V], out: int, kernel: int, extent: int, stride: int, padding: int, dilation: int) -> V:
    """reach[y, k, h] = [h = y stride + k dilation - padding], shape (out, kernel, extent)."""
    shape = (out, kernel)
    rows = a.expand(a.reshape(a.iota(out), (out, 1)), shape)
    columns = a.expand(a.iota(kernel), shape)
    place = a.add(
        [
            a.scale(rows, Fraction(stride)),
            a.scale(columns, Fraction(dilation)),
            a.full(shape, Fraction(-padding), "int"),
        ]
    )
    return a.one_hot(place, extent)


def per_dim(values: int | Sequence[int], dims: int) -> list[int]:
    """One number per spatial dim."""
    listed = [values] if isinstance(values, int) else list(values)
    return listed * dims if len(listed) == 1 else listed


@dataclass(frozen=True, slots=True)
class _Letters:
    """Letters of input, weight and result: n batch, g group, o and c channels, then one per spatial dim."""

    input: str
    weight: str
    out: str
    reaches: tuple[str, ...]


def _letters(dims: int) -> _Letters:
    h, k, y = "hij"[:dims], "klm"[:dims], "uvw"[:dims]
    triples = tuple(y[i] + k[i] + h[i] for i in range(dims))
    return _Letters("ngz" + h, "goz" + k, "ngo" + y, triples)


@dataclass(frozen=True, slots=True)
class Windows(Generic[V]):
    """The constant part of one convolution: groups and, per spatial dim, where windows reach."""

    groups: int
    dims: int
    reaches: tuple[V, ...]

    def forward(self, a: Algebra[V], x: V, weight: V) -> V:
        """The convolution of (N, C, ...) by (O, C / groups, ...)."""
        at = _letters(self.dims)
        operands = [(self.split(a, x, 1), at.input), (self.split(a, weight, 0), at.weight), *self._reaching(at)]
        return self.join(a, a.contract(operands, at.out), 1)

    def gradient_of_input(self, a: Algebra[V], gradient: V, weight: V) -> V:
        """The contraction solved for the input."""
        at = _letters(self.dims)
        operands = [(self.split(a, gradient, 1), at.out), (self.split(a, weight, 0), at.weight), *self._reaching(at)]
        return self.join(a, a.contract(operands, at.input), 1)

    def gradient_of_weight(self, a: Algebra[V], gradient: V, x: V) -> V:
        """The contraction solved for the weight."""
        at = _letters(self.dims)
        operands = [(self.split(a, gradient, 1), at.out), (self.split(a, x, 1), at.input), *self._reaching(at)]
        return self.join(a, a.contract(operands, at.weight), 0)

    def _reaching(self, at: _Letters) -> list[tuple[V, str]]:
        return list(zip(self.reaches, at.reaches, strict=True))

    def split(self, a: Algebra[V], v: V, dim: int) -> V:
        """The channels as (groups, channels of a group)."""
        return a.reshape(v, (*v.shape[:dim], self.groups, v.shape[dim] // self.groups, *v.shape[dim + 1 :]))

    def join(self, a: Algebra[V], v: V, dim: int) -> V:
        """The inverse of :meth:`split`."""
        return a.reshape(v, (*v.shape[:dim], v.shape[dim] * v.shape[dim + 1], *v.shape[dim + 2 :]))


def _windows(
    a: Algebra[V],
    big: tuple[int, ...],
    small: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Windows[V] | Shifts:
    """``big`` are the spatial extents that windows slide over, ``small`` those that they yield."""
    dims = len(kernel)
    if dims > 3:
        raise Unsupported("a convolution over more than three dims")
    s, p, d = (per_dim(values, dims) for values in (stride, padding, dilation))
    if dims == 1 and kernel[0] <= LONGEST:
        return Shifts(groups, kernel[0], big[0], small[0], s[0], p[0], d[0])
    reaches = tuple(reach(a, small[i], kernel[i], big[i], s[i], p[i], d[i]) for i in range(dims))
    return Windows(groups, dims, reaches)


def _with_bias(a: Algebra[V], v: V, bias: V | None) -> V:
    if bias is None:
        return v
    return plus(a, v, a.reshape(bias, (1, bias.shape[0], *(1 for _ in v.shape[2:]))))


@rule("aten.convolution.default", "aten._convolution.default", "aten.convolution_overrideable.default")
def convolution(
    a: Algebra[V],
    input: V,
    weight: V,
    bias: V | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *flags: bool,
    call: Call,
) -> V:
    """out[n, o, y] = sum_c sum_k input[n, c, y stride + k dilation - padding] weight[o, c, k] + bias[o]; transposed: solved for input"""
    shape = call.shape()
    batched = len(shape) == len(weight.shape)
    v, shape = (input, shape) if batched else (inserted(a, input, 0), (1, *shape))
    kernel = weight.shape[2:]
    if transposed:
        windows: Windows[V] | Shifts = _windows(a, shape[2:], v.shape[2:], kernel, stride, padding, dilation, groups)
        out = windows.gradient_of_input(a, v, weight)
    else:
        windows = _windows(a, v.shape[2:], shape[2:], kernel, stride, padding, dilation, groups)
        out = windows.forward(a, v, weight)
    out = _with_bias(a, out, bias)
    return out if batched else a.reshape(out, shape[1:])


@rule("aten.convolution_backward.default")
def convolution_backward(
    a: Algebra[V],
    grad_output: V,
    input: V,
    weight: V,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[V | None]:
    """The convolution's contraction solved for input and for weight; the bias gets the sum over all but channels"""
    big, small = (grad_output, input) if transposed else (input, grad_output)
    kernel = weight.shape[2:]
    windows: Windows[V] | Shifts = _windows(
        a, big.shape[2:], small.shape[2:], kernel, stride, padding, dilation, groups
    )
    grad_input, grad_weight = None, None
    if output_mask[0]:
        grad_input = (
            windows.forward(a, grad_output, weight) if transposed else windows.gradient_of_input(a, grad_output, weight)
        )
    if output_mask[1]:
        grad_weight = windows.gradient_of_weight(a, small, big)
    others = [0, *range(2, len(grad_output.shape))]
    return [grad_input, grad_weight, total(a, grad_output, others, False) if output_mask[2] else None]


@rule("aten.im2col.default")
def im2col(
    a: Algebra[V],
    self: V,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    *,
    call: Call,
) -> V:
    """out[n, (c, k, l), (y, z)] = self[n, c, y stride + k dilation - padding, z stride + l dilation - padding], 0 outside"""
    big = self.shape[-2:]
    places = _places(a, big, kernel_size, dilation, padding, stride)
    return a.reshape(a.contract([(self, "ncij"), (places[0], "uki"), (places[1], "vlj")], "nckluv"), call.shape())


@rule("aten.col2im.default")
def col2im(
    a: Algebra[V],
    self: V,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> V:
    """The transpose of im2col: what several windows hold of one element is added up"""
    places = _places(a, output_size, kernel_size, dilation, padding, stride)
    rows, columns = places[0].shape[0], places[1].shape[0]
    channels = self.shape[1] // math.prod(kernel_size)
    wide = a.reshape(self, (self.shape[0], channels, *kernel_size, rows, columns))
    return a.contract([(wide, "nckluv"), (places[0], "uki"), (places[1], "vlj")], "ncij")


def _places(
    a: Algebra[V],
    big: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[V]:
    """Where windows reach along two dims, as many as fit."""
    found = []
    for dim in range(2):
        reached = dilation[dim] * (kernel[dim] - 1) + 1
        count = (big[dim] + 2 * padding[dim] - reached) // stride[dim] + 1
        found.append(reach(a, count, kernel[dim], big[dim], stride[dim], padding[dim], dilation[dim]))
    return found


def _pooling(
    a: Algebra[V],
    big: tuple[int, ...],
    small: tuple[int, ...],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> list[V]:
    """cover[y, h] = 1 where window y covers h, one per dim."""
    dims = len(small)
    sizes = per_dim(kernel, dims)
    strides = per_dim(stride or kernel, dims)
    pads = per_dim(padding, dims)
    wide = [reach(a, small[i], sizes[i], big[i], strides[i], pads[i], 1) for i in range(dims)]
    return [a.sum(v, [1]) for v in wide]


def _averaging(
    a: Algebra[V],
    big: tuple[int, ...],
    small: tuple[int, ...],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    padded: bool,
    divisor: int | None,
) -> tuple[list[V], Fraction]:
    """Covers of windows, and what is left to multiply their sum by; covers of windows that hold different numbers of elements (``padded``: of the border as well) are divided by them."""
    dims = len(small)
    sizes, strides, pads = per_dim(kernel, dims), per_dim(stride or kernel, dims), per_dim(padding, dims)
    covers = _pooling(a, big, small, sizes, strides, pads)
    if divisor:
        return covers, Fraction(1, divisor)
    counts = [_held(big[i], small[i], sizes[i], strides[i], pads[i], padded) for i in range(dims)]
    if all(set(each) <= {size} for each, size in zip(counts, sizes, strict=True)):
        return covers, Fraction(1, math.prod(sizes))
    shares = [_shares(a, each) for each in counts]
    return [a.contract([(v, "yh"), (w, "y")], "yh") for v, w in zip(covers, shares, strict=True)], Fraction(1)


def _held(extent: int, out: int, size: int, stride: int, padding: int, padded: bool) -> list[int]:
    """How many elements every window holds along a dim."""
    border = padding if padded else 0
    starts = [y * stride - padding for y in range(out)]
    return [min(start + size, extent + border) - max(start, -border) for start in starts]


def _shares(a: Algebra[V], counts: Sequence[int]) -> V:
    """One over each."""
    alike = [(count, len(list(group))) for count, group in groupby(counts)]
    parts = [a.full((length,), Fraction(1, count), "float") for count, length in alike]
    return parts[0] if len(parts) == 1 else a.concat(parts, 0)


def _spatial(a: Algebra[V], v: V, covers: list[V], back: bool) -> V:
    """The last dims of v contracted with one matrix each: [y, h] from h to y, or back."""
    dims = len(covers)
    lead = LETTERS[: len(v.shape) - dims]
    small, big = LETTERS[10 : 10 + dims], LETTERS[20 : 20 + dims]
    source, target = (small, big) if back else (big, small)
    matrices = [(cover, small[i] + big[i]) for i, cover in enumerate(covers)]
    return a.contract([(v, lead + source), *matrices], lead + target)


@rule("aten.avg_pool2d.default", "aten.avg_pool3d.default", "aten.avg_pool1d.default")
def avg_pool(
    a: Algebra[V],
    self: V,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    call: Call,
) -> V:
    """out[..., y] = sum of self over window y / elements of the window"""
    dims = int(call.node.op[len("aten.avg_pool")])
    shapes = self.shape[-dims:], call.shape()[-dims:]
    windows: tuple[list[V], Fraction] = _averaging(
        a, *shapes, kernel_size, stride, padding, count_include_pad, divisor_override
    )
    return scaled(a, _spatial(a, self, windows[0], False), windows[1])


@rule("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    a: Algebra[V],
    grad_output: V,
    self: V,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    call: Call,
) -> V:
    """Every element gets grad_output / elements of the window from each window that covers it"""
    dims = int(call.node.op[len("aten.avg_pool")])
    shapes = self.shape[-dims:], grad_output.shape[-dims:]
    windows: tuple[list[V], Fraction] = _averaging(
        a, *shapes, kernel_size, stride, padding, count_include_pad, divisor_override
    )
    return scaled(a, _spatial(a, grad_output, windows[0], True), windows[1])
