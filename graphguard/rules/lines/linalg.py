"""Linear algebra on whole matrices: closed functions of a matrix, batched over the dims before it.

What solves a system multiplies by an inverse, so that the columns of the other side may be split.
"""

from __future__ import annotations

from typing import Any

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS, aligned, as_float, dim_of, expanded, minus, times
from graphguard.rules.basis.registry import rule
from graphguard.rules.lines.contraction import matmul
from graphguard.rules.positions.layout import roll, transpose


def _of_matrix(a: Algebra[V], name: str, v: V, core: tuple[int, ...], *attributes: object, kind: Kind = "float") -> V:
    """A closed function of every matrix, with whole dims ``core`` of its own."""
    lead = LETTERS[: len(v.shape) - 2]
    shape = (*v.shape[:-2], *core)
    return a.opaque(name, attributes, [(as_float(a, v), f"{lead}AB")], lead + "CD"[: len(core)], shape, kind)


def _factors(a: Algebra[V], v: V, of: str = "") -> tuple[V, V]:
    """Of the matrix, or of its transpose where PyTorch takes a determinant ``of`` it by way of that."""
    rows, columns = v.shape[-2:]
    factors = _of_matrix(a, f"{of}lu", v, (rows, columns))
    return factors, _of_matrix(a, f"{of}lu.pivots", v, (min(rows, columns),), kind="int")


def _fine(a: Algebra[V], v: V) -> V:
    """What LAPACK reports of every matrix: closed."""
    return _of_matrix(a, "linalg.info", v, (), kind="int")


def _solved(a: Algebra[V], inverse: V, b: V, left: bool) -> V:
    """inverse b or b inverse; b is a batch of vectors where it has the shape of one."""
    if left and b.shape == inverse.shape[:-1]:
        product: V = matmul(a, inverse, a.reshape(b, (*b.shape, 1)))
        return a.reshape(product, b.shape)
    result: V = matmul(a, inverse, b) if left else matmul(a, b, inverse)
    return result


@rule("aten.linalg_inv_ex.default")
def linalg_inv_ex(a: Algebra[V], A: V, *, check_errors: bool = False) -> tuple[V, V]:
    """The inverse of every matrix: closed, batched over the dims before"""
    return _of_matrix(a, "inverse", A, A.shape[-2:]), _fine(a, A)


@rule("aten._linalg_solve_ex.default")
def linalg_solve_ex(a: Algebra[V], A: V, B: V, *, left: bool = True, check_errors: bool = False) -> tuple[V, ...]:
    """out = inverse(A) B, or B inverse(A); the inverse is closed, batched over the dims before"""
    solved = _solved(a, _of_matrix(a, "inverse", A, A.shape[-2:]), as_float(a, B), left)
    return solved, *_factors(a, A), _fine(a, A)


@rule("aten.linalg_lu_factor_ex.default")
def linalg_lu_factor_ex(a: Algebra[V], A: V, *, pivot: bool = True, check_errors: bool = False) -> tuple[V, ...]:
    """The factors of every matrix and their pivots: closed, batched over the dims before"""
    if not pivot:
        raise Unsupported("factors without pivots")
    return *_factors(a, A), _fine(a, A)


@rule("aten.linalg_lu_solve.default")
def linalg_lu_solve(a: Algebra[V], LU: V, pivots: V, B: V, *, left: bool = True, adjoint: bool = False) -> V:
    """out = inverse B, or B inverse, of the matrix that has these factors (transposed for ``adjoint``); the inverse is closed, batched over the dims before"""
    lead = LETTERS[: len(LU.shape) - 2]
    operands: list[Any] = [(LU, f"{lead}AB"), (pivots, f"{lead}E")]
    inverse = a.opaque("lu.inverse", (), operands, f"{lead}CD", LU.shape, "float")
    return _solved(a, transpose(a, inverse, -2, -1) if adjoint else inverse, B, left)


@rule("aten.linalg_cholesky_ex.default")
def linalg_cholesky_ex(a: Algebra[V], self: V, *, upper: bool = False, check_errors: bool = False) -> tuple[V, V]:
    """The triangular root of every matrix: closed, batched over the dims before"""
    lower = _of_matrix(a, "cholesky", self, self.shape[-2:])
    return transpose(a, lower, -2, -1) if upper else lower, _fine(a, self)


@rule("aten.linalg_solve_triangular.default")
def linalg_solve_triangular(
    a: Algebra[V],
    self: V,
    B: V,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> V:
    """out = inverse(self) B, or B inverse(self), of the triangle of self; the inverse is closed, batched over the dims before"""
    inverse = _of_matrix(a, "triangle.inverse", self, self.shape[-2:], upper, unitriangular)
    return _solved(a, inverse, as_float(a, B), left)


@rule("aten.linalg_qr.default")
def linalg_qr(a: Algebra[V], A: V, mode: str = "reduced") -> tuple[V, V]:
    """Q and R of every matrix: closed, batched over the dims before"""
    rows, columns = A.shape[-2:]
    inner = rows if mode == "complete" else min(rows, columns)
    q: tuple[int, ...] = (0,) if mode == "r" else (rows, inner)
    return _of_matrix(a, "qr.q", A, q, mode), _of_matrix(a, "qr.r", A, (inner, columns), mode)


@rule("aten._linalg_eigh.default")
def linalg_eigh(a: Algebra[V], A: V, UPLO: str = "L", compute_v: bool = True) -> tuple[V, V]:
    """Eigenvalues and eigenvectors of every symmetric matrix: closed, batched over the dims before"""
    values = _of_matrix(a, "eigh.values", A, A.shape[-1:], UPLO)
    return values, _of_matrix(a, "eigh.vectors", A, A.shape[-2:] if compute_v else (0,), UPLO)


@rule("aten._linalg_svd.default")
def linalg_svd(
    a: Algebra[V],
    A: V,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[V, V, V]:
    """The singular values and vectors of every matrix: closed, batched over the dims before"""
    rows, columns = A.shape[-2:]
    inner = min(rows, columns)
    left: tuple[int, ...]
    right: tuple[int, ...]
    left, right = ((rows, rows), (columns, columns)) if full_matrices else ((rows, inner), (inner, columns))
    if not compute_uv:
        left = right = (0,)
    return (
        _of_matrix(a, "svd.u", A, left, full_matrices),
        _of_matrix(a, "svd.values", A, (inner,)),
        _of_matrix(a, "svd.v", A, right, full_matrices),
    )


@rule("aten._linalg_det.default")
def linalg_det(a: Algebra[V], A: V) -> tuple[V, ...]:
    """The determinant of every matrix: closed, batched over the dims before"""
    return _of_matrix(a, "det", A, ()), *_factors(a, A, "det.")


@rule("aten._linalg_slogdet.default")
def linalg_slogdet(a: Algebra[V], A: V) -> tuple[V, ...]:
    """The sign and the logarithm of the determinant of every matrix: closed, batched over the dims before"""
    return _of_matrix(a, "det.sign", A, ()), _of_matrix(a, "det.log", A, ()), *_factors(a, A, "det.")


@rule("aten.linalg_pinv.atol_rtol_tensor")
def linalg_pinv(a: Algebra[V], self: V, *, atol: V | None = None, rtol: V | None = None, hermitian: bool = False) -> V:
    """The pseudo-inverse of every matrix: closed, batched over the dims before"""
    batch, lead = self.shape[:-2], LETTERS[: len(self.shape) - 2]
    tolerances = [v for v in (atol, rtol) if v is not None]
    operands = [(as_float(a, self), f"{lead}AB"), *((expanded(a, v, batch), lead) for v in tolerances)]
    attributes = (atol is None, rtol is None, hermitian)
    shape = (*batch, self.shape[-1], self.shape[-2])
    return a.opaque("pseudo-inverse", attributes, operands, f"{lead}CD", shape, "float")


@rule("aten.cholesky.default")
def cholesky(a: Algebra[V], self: V, upper: bool = False) -> V:
    """The triangular root of every matrix: closed, batched over the dims before"""
    lower = _of_matrix(a, "cholesky", self, self.shape[-2:])
    return transpose(a, lower, -2, -1) if upper else lower


@rule("aten.cholesky_solve.default")
def cholesky_solve(a: Algebra[V], self: V, input2: V, upper: bool = False) -> V:
    """out = inverse self, of the matrix whose triangular root is input2; the inverse is closed, batched over the dims before"""
    if self.shape[:-2] != input2.shape[:-2]:
        raise Unsupported("a triangular root for several systems")
    return _solved(a, _of_matrix(a, "cholesky.inverse", input2, input2.shape[-2:], upper), as_float(a, self), True)


@rule("aten.linalg_cross.default")
def linalg_cross(a: Algebra[V], self: V, other: V, *, dim: int = -1) -> V:
    """out_i = self_(i + 1) other_(i + 2) - self_(i + 2) other_(i + 1), counted modulo 3 along dim"""
    x, y = aligned(a, self, other)
    dim = dim_of(dim, len(x.shape))
    (x1, y1), (x2, y2) = ([roll(a, v, -by, dim) for v in (x, y)] for by in (1, 2))
    return minus(a, times(a, x1, y2), times(a, x2, y1))


@rule("aten.linalg_matrix_exp.default")
def linalg_matrix_exp(a: Algebra[V], self: V) -> V:
    """The exponential of every matrix: closed, batched over the dims before"""
    return _of_matrix(a, "matrix_exp", self, self.shape[-2:])
