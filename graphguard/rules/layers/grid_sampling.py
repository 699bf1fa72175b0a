"""Images read at places that a grid names: linear in the image, with weights that are closed functions of the grid, one place at a time."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import as_float
from graphguard.rules.basis.registry import rule

_PLACE = "yxz"  # letters of the grid's spatial dims, and below of the image's
_IMAGE = "hwd"


def _of_grid(a: Algebra[V], name: str, grid: V, slopes: str, image: tuple[int, ...], attributes: Sequence[object]) -> V:
    """A closed function of every place of the grid, as large as the image: [n, place, (coordinate,) image]."""
    dims = len(image)
    places = "n" + _PLACE[:dims]
    core = "BCDE"[: dims + len(slopes)]
    shape = (*grid.shape[:-1], *((dims,) if slopes else ()), *image)
    return a.opaque(name, (*attributes, *image), [(as_float(a, grid), places + "A")], places + core, shape, "float")


@rule("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    a: Algebra[V], input: V, grid: V, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> V:
    """out[n, c, y, x] = sum_h,w input[n, c, h, w] weights(grid[n, y, x])[h, w]; the weights are closed"""
    dims = len(input.shape) - 2
    attributes = (interpolation_mode, padding_mode, align_corners)
    weights = _of_grid(a, "grid_sampler.weights", grid, "", input.shape[2:], attributes)
    place, image = _PLACE[:dims], _IMAGE[:dims]
    return a.contract([(as_float(a, input), f"nc{image}"), (weights, f"n{place}{image}")], f"nc{place}")


@rule("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    a: Algebra[V],
    grad_output: V,
    input: V,
    grid: V,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[V | None, V]:
    """The transposed map; of the grid the sum over channels and image of grad_output, input and the weights' slopes, which are closed"""
    dims = len(input.shape) - 2
    attributes = (interpolation_mode, padding_mode, align_corners)
    place, image = _PLACE[:dims], _IMAGE[:dims]
    grad = as_float(a, grad_output), f"nc{place}"
    of_input = None
    if output_mask[0]:
        weights = _of_grid(a, "grid_sampler.weights", grid, "", input.shape[2:], attributes)
        of_input = a.contract([grad, (weights, f"n{place}{image}")], f"nc{image}")
    slopes = _of_grid(a, "grid_sampler.slopes", grid, "k", input.shape[2:], attributes)
    factors = [grad, (as_float(a, input), f"nc{image}"), (slopes, f"n{place}k{image}")]
    return of_input, a.contract(factors, f"n{place}k")
