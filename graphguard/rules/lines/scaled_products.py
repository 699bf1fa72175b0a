"""Products in low precision with scales, and products of many matrices of different sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from graphguard.ir import DType
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import as_float, compared, plus, times
from graphguard.rules.basis.registry import rule
from graphguard.rules.lines.contraction import bmm, contracted, mm


@rule("aten.mm.dtype")
def mm_dtype(a: Algebra[V], self: V, mat2: V, out_dtype: DType) -> V:
    """out[i, k] = sum_j self[i, j] mat2[j, k]"""
    return mm(a, self, mat2)


@rule("aten.bmm.dtype")
def bmm_dtype(a: Algebra[V], self: V, mat2: V, out_dtype: DType) -> V:
    """out[b, i, k] = sum_j self[b, i, j] mat2[b, j, k]"""
    return bmm(a, self, mat2)


@rule("aten._int_mm.default")
def int_mm(a: Algebra[V], self: V, mat2: V) -> V:
    """out[i, k] = sum_j self[i, j] mat2[j, k], of integers"""
    return mm(a, self, mat2)


@rule("aten._scaled_mm.default")
def scaled_mm(
    a: Algebra[V],
    self: V,
    mat2: V,
    scale_a: V,
    scale_b: V,
    bias: V | None = None,
    scale_result: V | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> V:
    """out = (scale_a self) (scale_b mat2) + bias, scales one number or one per row of self and per column of mat2"""
    if scale_result is not None:
        raise Unsupported("a scaled product whose result is scaled")
    left, right = _scaled(a, self, scale_a, 0), _scaled(a, mat2, scale_b, 1)
    out = mm(a, left, right)
    return out if bias is None else plus(a, out, bias)


def _scaled(a: Algebra[V], v: V, scale: V, dim: int) -> V:
    """v times one number, or one number per row (dim 0) or column (dim 1)."""
    count = 1
    for extent in scale.shape:
        count *= extent
    if count not in (1, v.shape[dim]):
        raise Unsupported("a scaled product with one scale per block")
    shape = (1, 1) if count == 1 else tuple(count if i == dim else 1 for i in range(2))
    return times(a, v, a.reshape(scale, shape))


@rule("aten._grouped_mm.default")
def grouped_mm(
    a: Algebra[V], self: V, mat2: V, offs: V | None = None, bias: V | None = None, out_dtype: DType | None = None
) -> V:
    """Group g holds the rows (or, where both are matrices, the inner places) offs[g - 1] <= t < offs[g]; out = self mat2 of its own group"""
    if bias is not None:
        raise Unsupported("a grouped product with a bias")
    ranks = len(self.shape), len(mat2.shape)
    if ranks == (3, 3):
        return bmm(a, self, mat2)
    if offs is None:
        raise Unsupported("a grouped product without offsets")
    if ranks == (2, 3):
        return contracted(a, "td,tg,gdf->tf", self, membership(a, offs, self.shape[0]), mat2)
    if ranks == (3, 2):
        return contracted(a, "gmd,tg,dt->mt", self, membership(a, offs, mat2.shape[1]), mat2)
    return contracted(a, "mt,tg,tf->gmf", self, membership(a, offs, self.shape[1]), mat2)


def membership(a: Algebra[V], offs: V, extent: int) -> V:
    """[offs[g - 1] <= t < offs[g]], shape (extent, groups)."""
    sorted_line = a.groups(offs, extent)
    if sorted_line is not None:
        return sorted_line
    groups = offs.shape[0]
    place: Any = a.reshape(a.iota(extent), (extent, 1))
    below = compared(a, "lt", place, a.reshape(offs, (1, groups)))
    start = a.concat([a.full((1,), Fraction(0), "int"), a.slice(offs, 0, 0, groups - 1)], 0)
    above = compared(a, "ge", place, a.reshape(start, (1, groups)))
    return as_float(a, a.logical_and(below, above))
