"""Pooling by the maximum, adaptive pooling and interpolation.

Adaptive average pooling and interpolation are linear along every spatial dim, by a small constant matrix; the maximum stays closed, batched over all other dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.arithmetic import LETTERS
from graphguard.rules.convolution import per_dim
from graphguard.rules.creation import unknown
from graphguard.rules.index_maps import cut
from graphguard.rules.layout import constant_pad
from graphguard.rules.registry import Call, rule

#: Larger windows of a maximum stay closed.
MOST_PLACES: Final = 25

Matrix = NDArray[np.float64]


def _along_dims(a: Algebra[V], v: V, matrices: Sequence[Matrix]) -> V:
    """out[..., y1, y2] = sum M1[y1, h1] M2[y2, h2] v[..., h1, h2]."""
    dims = len(matrices)
    lead, big, small = LETTERS[: len(v.shape) - dims], LETTERS[10 : 10 + dims], LETTERS[20 : 20 + dims]
    factors = [(a.literal(matrix), small[i] + big[i]) for i, matrix in enumerate(matrices)]
    return a.contract([(v, lead + big), *factors], lead + small)


def _adaptive(out: int, extent: int) -> Matrix:
    """Row y averages the elements floor(y extent / out), ..., ceil((y + 1) extent / out) - 1."""
    matrix = np.zeros((out, extent))
    for y in range(out):
        low, high = y * extent // out, -(-(y + 1) * extent // out)
        matrix[y, low:high] = 1 / (high - low)
    return matrix


def _nearest(out: int, extent: int, scale: float | None) -> Matrix:
    """Row y takes the element floor(y / scale)."""
    step = extent / out if scale is None else 1 / scale
    matrix = np.zeros((out, extent))
    for y in range(out):
        matrix[y, min(math.floor(y * step), extent - 1)] = 1
    return matrix


def _linear(out: int, extent: int, scale: float | None, align_corners: bool) -> Matrix:
    """Row y weighs the two elements next to its place."""
    matrix = np.zeros((out, extent))
    for y in range(out):
        if align_corners:
            place = y * (extent - 1) / (out - 1) if out > 1 else 0.0
        else:
            step = extent / out if scale is None else 1 / scale
            place = max((y + 0.5) * step - 0.5, 0.0)
        low = min(int(place), extent - 1)
        matrix[y, low] += 1 - (place - low)
        matrix[y, min(low + 1, extent - 1)] += place - low
    return matrix


def _each(
    make: Callable[..., Matrix], out: Sequence[int], extents: Sequence[int], *rest: Sequence[object]
) -> list[Matrix]:
    return [make(*arguments) for arguments in zip(out, extents, *rest, strict=True)]


@rule("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(a: Algebra[V], self: V, output_size: Sequence[int], *, call: Call) -> V:
    """out[..., y] = the mean of the elements floor(y H / out), ..., ceil((y + 1) H / out) - 1, along every spatial dim"""
    dims = len(output_size)
    return _along_dims(a, self, _each(_adaptive, call.shape()[-dims:], self.shape[-dims:]))


@rule("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(a: Algebra[V], grad_output: V, self: V) -> V:
    """The transposed map"""
    return _along_dims(a, grad_output, [m.T for m in _each(_adaptive, grad_output.shape[-2:], self.shape[-2:])])


def _scales(dims: int, scales: Sequence[float | None]) -> list[float | None]:
    return list(scales[:dims]) + [None] * (dims - len(scales))


@rule("aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default")
def upsample_nearest(a: Algebra[V], self: V, output_size: Sequence[int], *scales: float | None) -> V:
    """out[..., y] = self[..., floor(y H / out)] along every spatial dim"""
    dims = len(output_size)
    return _along_dims(a, self, _each(_nearest, output_size, self.shape[-dims:], _scales(dims, scales)))


@rule(
    "aten.upsample_nearest1d_backward.default",
    "aten.upsample_nearest2d_backward.default",
    "aten.upsample_nearest3d_backward.default",
)
def upsample_nearest_backward(
    a: Algebra[V], grad_output: V, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
) -> V:
    """The transposed map"""
    dims = len(output_size)
    matrices = _each(_nearest, output_size, input_size[-dims:], _scales(dims, scales))
    return _along_dims(a, grad_output, [matrix.T for matrix in matrices])


@rule("aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default")
def upsample_linear(
    a: Algebra[V], self: V, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> V:
    """Linear interpolation along every spatial dim"""
    dims = len(output_size)
    rest = (_scales(dims, scales), [align_corners] * dims)
    return _along_dims(a, self, _each(_linear, output_size, self.shape[-dims:], *rest))


@rule("aten.upsample_linear1d_backward.default", "aten.upsample_bilinear2d_backward.default")
def upsample_linear_backward(
    a: Algebra[V],
    grad_output: V,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> V:
    """The transposed map"""
    dims = len(output_size)
    rest = (_scales(dims, scales), [align_corners] * dims)
    matrices = _each(_linear, output_size, input_size[-dims:], *rest)
    return _along_dims(a, grad_output, [matrix.T for matrix in matrices])


def _planes(a: Algebra[V], name: str, v: V, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind) -> V:
    """A closed function of the last two dims, batched over the others."""
    lead = LETTERS[: len(v.shape) - 2]
    return a.opaque(name, attributes, [(v, lead + "AB")], lead + "CD", shape, kind)


@rule("aten.max_pool2d_with_indices.default")
def max_pool2d(
    a: Algebra[V],
    self: V,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    call: Call,
) -> tuple[V, V]:
    """The maximum of every window, -inf outside; where it stands in the plane: closed, batched over all but the last two dims"""
    attributes: tuple[int, ...] = (
        *per_dim(kernel_size, 2),
        *per_dim(stride or kernel_size, 2),
        *per_dim(padding, 2),
        *per_dim(dilation, 2),
        ceil_mode,
    )
    try:
        places = _planes(a, "max_pool2d.indices", self, attributes, call.shape(1), "int")
    except Unsupported as reason:
        call.remarks.append(str(reason))
        places = unknown(a, call.shape(1), "int")
    if attributes[0] * attributes[1] > MOST_PLACES:
        return _planes(a, "max_pool2d", self, attributes, call.shape(0), "float"), places
    return _highest_of_windows(a, self, attributes, call.shape(0)), places


def _highest_of_windows(a: Algebra[V], v: V, attributes: tuple[int, ...], shape: tuple[int, ...]) -> V:
    """The maximum over the kernel's places of the input shifted to them."""
    kernel, stride, padding, dilation = (attributes[i : i + 2] for i in (0, 2, 4, 6))
    rank = len(v.shape)
    for axis in range(2):
        dim = rank - 2 + axis
        reach = (shape[dim] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        v = constant_pad(a, v, dim, padding[axis], reach - v.shape[dim] - padding[axis], -math.inf)
    for axis in range(2):
        dim = rank - 2 + axis
        shifted = [
            cut(
                a,
                v,
                dim,
                place * dilation[axis],
                place * dilation[axis] + (shape[dim] - 1) * stride[axis] + 1,
                stride[axis],
            )
            for place in range(kernel[axis])
        ]
        v = shifted[0]
        for other in shifted[1:]:
            v = a.maximum(v, other)
    return v


@rule("aten.max_pool2d_with_indices_backward.default")
def max_pool2d_backward(
    a: Algebra[V],
    grad_output: V,
    self: V,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: V,
) -> V:
    """out[..., h] = sum_y [indices[..., y] = h] grad_output[..., y], h and y running over planes"""
    lead = grad_output.shape[:-2]
    plane = math.prod(self.shape[-2:])
    windows = math.prod(grad_output.shape[-2:])
    letters = LETTERS[: len(lead)]
    hot = a.one_hot(a.reshape(indices, (*lead, windows)), plane, checked=True)
    gradient = a.reshape(grad_output, (*lead, windows))
    return a.reshape(a.contract([(hot, letters + "yz"), (gradient, letters + "y")], letters + "z"), self.shape)
