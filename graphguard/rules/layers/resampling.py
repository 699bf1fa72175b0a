"""Pooling by the maximum, adaptive pooling and interpolation.

Adaptive average pooling and interpolation are linear along every spatial dim, by a small constant matrix; the maximum stays closed, batched over all other dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS
from graphguard.rules.basis.index_maps import cut
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.elements.creation import unknown
from graphguard.rules.layers.convolution import per_dim
from graphguard.rules.positions.layout import constant_pad

#: Larger windows of a maximum stay closed.
MOST_PLACES: Final = 27

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


def _nearest_exact(out: int, extent: int, scale: float | None) -> Matrix:
    """Row y takes the element floor((y + 1/2) / scale)."""
    step = extent / out if scale is None else 1 / scale
    matrix = np.zeros((out, extent))
    for y in range(out):
        matrix[y, min(math.floor((y + 0.5) * step), extent - 1)] = 1
    return matrix


def _convolved(distance: float, sharpness: float) -> float:
    """The weight of an element at a distance in cubic convolution (Keys, 1981)."""
    x, s = abs(distance), sharpness
    if x < 1:
        return ((s + 2) * x - (s + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * s if x < 2 else 0.0


def _cubic(out: int, extent: int, scale: float | None, align_corners: bool) -> Matrix:
    """Row y weighs the four elements next to its place; beyond the border stands the last one."""
    matrix = np.zeros((out, extent))
    for y in range(out):
        if align_corners:
            place = y * (extent - 1) / (out - 1) if out > 1 else 0.0
        else:
            place = (y + 0.5) * (extent / out if scale is None else 1 / scale) - 0.5
        low = math.floor(place)
        for element in range(low - 1, low + 3):
            matrix[y, min(max(element, 0), extent - 1)] += _convolved(place - element, -0.75)
    return matrix


def _antialiased(reach: float, weigh: Callable[[float], float]) -> Callable[..., Matrix]:
    """Row y averages the elements near its place, as many more as the result is smaller, by a filter of this reach."""

    def make(out: int, extent: int, scale: float | None, align_corners: bool) -> Matrix:
        step = extent / out if scale is None else 1 / scale
        if align_corners:
            step = (extent - 1) / (out - 1) if out > 1 else 0.0
        wide = max(step, 1.0)
        matrix = np.zeros((out, extent))
        for y in range(out):
            center = step * (y + 0.5)
            low, high = max(int(center - reach * wide + 0.5), 0), min(int(center + reach * wide + 0.5), extent)
            weights = [weigh((element - center + 0.5) / wide) for element in range(low, high)]
            matrix[y, low:high] = np.array(weights) / sum(weights)
        return matrix

    return make


def _each(
    make: Callable[..., Matrix], out: Sequence[int], extents: Sequence[int], *rest: Sequence[object]
) -> list[Matrix]:
    return [make(*arguments) for arguments in zip(out, extents, *rest, strict=True)]


@rule(
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool1d.default",
)
def adaptive_avg_pool(a: Algebra[V], self: V, output_size: Sequence[int], *, call: Call) -> V:
    """out[..., y] = the mean of the elements floor(y H / out), ..., ceil((y + 1) H / out) - 1, along every spatial dim"""
    dims = len(output_size)
    return _along_dims(a, self, _each(_adaptive, call.shape()[-dims:], self.shape[-dims:]))


@rule("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(a: Algebra[V], grad_output: V, self: V, *, call: Call) -> V:
    """The transposed map"""
    dims = 3 if "3d" in call.node.op else 2
    return _along_dims(a, grad_output, [m.T for m in _each(_adaptive, grad_output.shape[-dims:], self.shape[-dims:])])


def _scales(dims: int, scales: Sequence[float | None]) -> list[float | None]:
    return list(scales[:dims]) + [None] * (dims - len(scales))


def _interpolation(names: str, make: Callable[..., Matrix], meaning: str, *, places_corners: bool) -> None:
    """The rules of interpolations by one matrix a dim, and of their gradients; ``places_corners``: the call says where corners are."""

    def forward(a: Algebra[V], self: V, output_size: Sequence[int], *rest: Any) -> V:
        dims = len(output_size)
        return _along_dims(a, self, matrices(output_size, self.shape[-dims:], rest))

    def backward(a: Algebra[V], grad_output: V, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> V:
        """The transposed map"""
        dims = len(output_size)
        return _along_dims(a, grad_output, [m.T for m in matrices(output_size, input_size[-dims:], rest)])

    def matrices(out: Sequence[int], extents: Sequence[int], rest: Sequence[Any]) -> list[Matrix]:
        dims = len(out)
        corners = [rest[0]] * dims if places_corners else None
        scales = _scales(dims, rest[1:] if places_corners else rest)
        return _each(make, out, extents, scales, *([corners] if corners else []))

    forward.__doc__ = meaning
    rule(*(f"aten.{name}.default" for name in names.split()))(forward)
    rule(*(f"aten.{name}_backward.default" for name in names.split()))(backward)


_interpolation(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
    _nearest,
    "out[..., y] = self[..., floor(y H / out)] along every spatial dim",
    places_corners=False,
)
_interpolation(
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
    _nearest_exact,
    "out[..., y] = self[..., floor((y + 1/2) H / out)] along every spatial dim",
    places_corners=False,
)
_interpolation(
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d",
    _linear,
    "Linear interpolation along every spatial dim",
    places_corners=True,
)
_interpolation("upsample_bicubic2d", _cubic, "Cubic convolution along both spatial dims", places_corners=True)
_interpolation(
    "_upsample_bilinear2d_aa",
    _antialiased(1.0, lambda distance: max(1 - abs(distance), 0.0)),
    "Linear interpolation along both spatial dims, of averages where the result is smaller",
    places_corners=True,
)
_interpolation(
    "_upsample_bicubic2d_aa",
    _antialiased(2.0, lambda distance: _convolved(distance, -0.5)),
    "Cubic convolution along both spatial dims, of averages where the result is smaller",
    places_corners=True,
)


def _cells(
    a: Algebra[V], name: str, v: V, dims: int, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
) -> V:
    """A closed function of the last dims, batched over the others."""
    lead = LETTERS[: len(v.shape) - dims]
    return a.opaque(name, attributes, [(v, lead + "ABC"[:dims])], lead + "DEF"[:dims], shape, kind)


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
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
    """The maximum of every window, -inf outside; where it stands among the spatial dims: closed, batched over the dims before"""
    dims = 3 if "3d" in call.node.op else 2
    attributes: tuple[int, ...] = (
        *per_dim(kernel_size, dims),
        *per_dim(stride or kernel_size, dims),
        *per_dim(padding, dims),
        *per_dim(dilation, dims),
        ceil_mode,
    )
    name = f"max_pool{dims}d"
    try:
        places = _cells(a, f"{name}.indices", self, dims, attributes, call.shape(1), "int")
    except Unsupported as reason:
        call.remarks.append(str(reason))
        places = unknown(a, call.shape(1), "int")
    if math.prod(attributes[:dims]) > MOST_PLACES:
        return _cells(a, name, self, dims, attributes, call.shape(0), "float"), places
    return _highest_of_windows(a, self, dims, attributes, call.shape(0)), places


def _highest_of_windows(a: Algebra[V], v: V, dims: int, attributes: tuple[int, ...], shape: tuple[int, ...]) -> V:
    """The maximum over the kernel's places of the input shifted to them."""
    kernel, stride, padding, dilation = (attributes[i : i + dims] for i in range(0, 4 * dims, dims))
    rank = len(v.shape)
    for axis in range(dims):
        dim = rank - dims + axis
        reach = (shape[dim] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        v = constant_pad(a, v, dim, padding[axis], reach - v.shape[dim] - padding[axis], -math.inf)
    for axis in range(dims):
        dim = rank - dims + axis
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


@rule("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(
    a: Algebra[V],
    grad_output: V,
    self: V,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: V,
    *,
    call: Call,
) -> V:
    """out[..., h] = sum_y [indices[..., y] = h] grad_output[..., y], h and y running over all spatial dims"""
    dims = 3 if "3d" in call.node.op else 2
    lead = grad_output.shape[:-dims]
    plane = math.prod(self.shape[-dims:])
    windows = math.prod(grad_output.shape[-dims:])
    letters = LETTERS[: len(lead)]
    hot = a.one_hot(a.reshape(indices, (*lead, windows)), plane, checked=True)
    gradient = a.reshape(grad_output, (*lead, windows))
    return a.reshape(a.contract([(hot, letters + "yz"), (gradient, letters + "y")], letters + "z"), self.shape)
