"""Discrete Fourier transforms: contractions with tables of cosines and sines, which stay closed.

A transform is linear, so parts of a sum may be transformed by themselves, and what is batched over the other dims may be cut there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import LETTERS, as_float, dim_of, minus, negative, plus, scaled
from graphguard.rules.basis.scalars import exact
from graphguard.rules.positions.layout import dropped, inserted

Parts: TypeAlias = tuple[Any, Any]
BY_ROOT: Final = 1  # PyTorch's numbers for what a transform is divided by, 0 for nothing
BY_SIZE: Final = 2


def parts(a: Algebra[V], v: V) -> tuple[V, V]:
    """Real and imaginary part."""
    last = len(v.shape) - 1
    return dropped(a, a.slice(v, last, 0, 1), last), dropped(a, a.slice(v, last, 1, 2), last)


def paired(a: Algebra[V], real: V, imaginary: V) -> V:
    """The complex value of two parts."""
    last = len(real.shape)
    return a.concat([inserted(a, real, last), inserted(a, imaginary, last)], last)


def of_real(a: Algebra[V], x: Parts, dim: Sequence[int], normalization: int, onesided: bool) -> V:
    """X_k = sum_j x_j exp(-2 pi i j k / n) along every dim; of the last one, where ``onesided``, the frequencies up to a half."""
    *others, last = (dim_of(each, len(x[0].shape)) for each in dim)
    real = as_float(a, x[0])
    size = math.prod(real.shape[each] for each in (*others, last))
    extent = real.shape[last]
    kept = extent // 2 + 1 if onesided else extent
    cosines, sines = (a.slice(table, 1, 0, kept) for table in _tables(a, extent))
    z = _along(a, real, last, cosines), negative(a, _along(a, real, last, sines))
    for each in others:
        z = _transformed(a, z, each, forward=True)
    return _normalised(a, z, normalization, size)


def of_complex(a: Algebra[V], x: Parts, dim: Sequence[int], normalization: int, forward: bool) -> V:
    """X_k = sum_j x_j exp(-+2 pi i j k / n) along every dim"""
    dims = [dim_of(each, len(x[0].shape)) for each in dim]
    z = x
    for each in dims:
        z = _transformed(a, z, each, forward)
    return _normalised(a, z, normalization, math.prod(x[0].shape[each] for each in dims))


def to_real(a: Algebra[V], x: Parts, dim: Sequence[int], normalization: int, last_dim_size: int) -> V:
    """x_j = sum_k X_k exp(2 pi i j k / n) along every dim, the frequencies of the last one above a half being the conjugates of those below"""
    *others, last = (dim_of(each, len(x[0].shape)) for each in dim)
    z = x
    for each in others:
        z = _transformed(a, z, each, forward=False)
    half = last_dim_size // 2 + 1
    cosines, sines = (a.slice(table, 0, 0, half) for table in _tables(a, last_dim_size))
    counted = np.full(half, 2.0)  # once for themselves and once for their conjugates
    counted[0] = 1.0
    if last_dim_size % 2 == 0:
        counted[-1] = 1.0
    weights = a.literal(counted)
    weighted = [a.contract([(table, "ij"), (weights, "i")], "ij") for table in (cosines, sines)]
    out: V = minus(a, _along(a, z[0], last, weighted[0]), _along(a, z[1], last, weighted[1]))
    size = last_dim_size * math.prod(x[0].shape[each] for each in others)
    return scaled(a, out, _factor(normalization, size))


def _tables(a: Algebra[V], extent: int) -> tuple[V, V]:
    """cos(2 pi j k / n) and sin(2 pi j k / n)."""
    shape = (extent, extent)
    names = ("fourier.cos", "fourier.sin")
    cosines, sines = (a.opaque(name, (extent,), [], "AB", shape, "float") for name in names)
    return cosines, sines


def _transformed(a: Algebra[V], x: Parts, dim: int, forward: bool) -> Parts:
    cosines, sines = _tables(a, x[0].shape[dim])
    if not forward:
        sines = negative(a, sines)
    real = plus(a, _along(a, x[0], dim, cosines), _along(a, x[1], dim, sines))
    return real, minus(a, _along(a, x[1], dim, cosines), _along(a, x[0], dim, sines))


def _along(a: Algebra[V], v: V, dim: int, table: V) -> V:
    """sum_j v[..., j, ...] table[j, k]."""
    letters = LETTERS[: len(v.shape)]
    out = letters.replace(letters[dim], "z")
    return a.contract([(v, letters), (table, letters[dim] + "z")], out)


def _normalised(a: Algebra[V], x: Parts, normalization: int, size: int) -> V:
    factor = _factor(normalization, size)
    result: V = paired(a, scaled(a, x[0], factor), scaled(a, x[1], factor))
    return result


def _factor(normalization: int, size: int) -> Any:
    if normalization == BY_SIZE:
        return Fraction(1, size)
    return exact(1 / math.sqrt(size)) if normalization == BY_ROOT else 1
