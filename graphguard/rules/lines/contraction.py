"""Matrix products and what is built from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS, Number, as_float, common_kind, expanded, minus, plus, times
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.registry import rule


def contracted(a: Algebra[V], equation: str, *operands: V) -> V:
    """An Einstein summation of operands of one kind, letters as in ``ij,jk->ik``."""
    inputs, _, out = equation.partition("->")
    kind = common_kind(*operands)
    values = [convert(a, v, "int" if kind == "bool" else kind) for v in operands]
    return a.contract(list(zip(values, inputs.split(","), strict=True)), out)


@rule("aten.mm.default")
def mm(a: Algebra[V], self: V, mat2: V) -> V:
    """out[i, k] = sum_j self[i, j] mat2[j, k]"""
    return contracted(a, "ij,jk->ik", self, mat2)


@rule("aten.bmm.default")
def bmm(a: Algebra[V], self: V, mat2: V) -> V:
    """out[b, i, k] = sum_j self[b, i, j] mat2[b, j, k]"""
    return contracted(a, "bij,bjk->bik", self, mat2)


@rule("aten.mv.default")
def mv(a: Algebra[V], self: V, vec: V) -> V:
    """out[i] = sum_j self[i, j] vec[j]"""
    return contracted(a, "ij,j->i", self, vec)


@rule("aten.dot.default", "aten.vdot.default", "aten.inner.default")
def dot(a: Algebra[V], self: V, tensor: V) -> V:
    """out = sum_i self[i] tensor[i]"""
    if len(self.shape) != 1 or len(tensor.shape) != 1:
        raise Unsupported("an inner product of tensors that are no vectors")
    return contracted(a, "i,i->", self, tensor)


@rule("aten.outer.default", "aten.ger.default")
def outer(a: Algebra[V], self: V, vec2: V) -> V:
    """out[i, j] = self[i] vec2[j]"""
    return contracted(a, "i,j->ij", self, vec2)


def _affine(a: Algebra[V], self: V, product: V, beta: Number, alpha: Number) -> V:
    scaled = product if alpha == 1 else times(a, product, alpha)
    if beta == 0:
        return scaled
    return plus(a, self if beta == 1 else times(a, self, beta), scaled)


@rule("aten.addmm.default")
def addmm(a: Algebra[V], self: V, mat1: V, mat2: V, *, beta: Number = 1, alpha: Number = 1) -> V:
    """out[i, k] = beta self[i, k] + alpha sum_j mat1[i, j] mat2[j, k]; beta = 0 ignores self"""
    return _affine(a, self, mm(a, mat1, mat2), beta, alpha)


@rule("aten.addmv.default")
def addmv(a: Algebra[V], self: V, mat: V, vec: V, *, beta: Number = 1, alpha: Number = 1) -> V:
    """out[i] = beta self[i] + alpha sum_j mat[i, j] vec[j]"""
    return _affine(a, self, mv(a, mat, vec), beta, alpha)


@rule("aten.addr.default")
def addr(a: Algebra[V], self: V, vec1: V, vec2: V, *, beta: Number = 1, alpha: Number = 1) -> V:
    """out[i, j] = beta self[i, j] + alpha vec1[i] vec2[j]"""
    return _affine(a, self, outer(a, vec1, vec2), beta, alpha)


@rule("aten.baddbmm.default")
def baddbmm(a: Algebra[V], self: V, batch1: V, batch2: V, *, beta: Number = 1, alpha: Number = 1) -> V:
    """out[b, i, k] = beta self[b, i, k] + alpha sum_j batch1[b, i, j] batch2[b, j, k]"""
    return _affine(a, self, bmm(a, batch1, batch2), beta, alpha)


@rule("aten.addbmm.default")
def addbmm(a: Algebra[V], self: V, batch1: V, batch2: V, *, beta: Number = 1, alpha: Number = 1) -> V:
    """out[i, k] = beta self[i, k] + alpha sum_b sum_j batch1[b, i, j] batch2[b, j, k]"""
    return _affine(a, self, contracted(a, "bij,bjk->ik", batch1, batch2), beta, alpha)


@rule("aten.matmul.default")
def matmul(a: Algebra[V], self: V, other: V) -> V:
    """out[..., i, k] = sum_j self[..., i, j] other[..., j, k]; a vector's missing dim is added and dropped again"""
    left, right = len(self.shape), len(other.shape)
    if left == 1 and right == 1:
        return dot(a, self, other)
    if left == 1:
        other = _over_batch(a, other, other.shape[:-2])
        return contracted(a, f"y,{LETTERS[: right - 2]}yz->{LETTERS[: right - 2]}z", self, other)
    if right == 1:
        return contracted(a, f"{LETTERS[: left - 1]}y,y->{LETTERS[: left - 1]}", self, other)
    if right == 2:
        return contracted(a, f"{LETTERS[: left - 1]}y,yz->{LETTERS[: left - 1]}z", self, other)
    rank = max(left, right) - 2
    shapes = [(1,) * (rank + 2 - len(v.shape)) + v.shape[:-2] for v in (self, other)]
    batch = tuple(max(x, y) if 0 not in (x, y) else 0 for x, y in zip(*shapes, strict=True))
    letters = LETTERS[:rank]
    left_value, right_value = _over_batch(a, self, batch), _over_batch(a, other, batch)
    return contracted(a, f"{letters}xy,{letters}yz->{letters}xz", left_value, right_value)


def _over_batch(a: Algebra[V], v: V, batch: tuple[int, ...]) -> V:
    return expanded(a, v, (*batch, *v.shape[-2:]))


@rule("aten.linear.default")
def linear(a: Algebra[V], input: V, weight: V, bias: V | None = None) -> V:
    """out[..., k] = sum_j input[..., j] weight[k, j] + bias[k]"""
    lead = LETTERS[: len(input.shape) - 1]
    out = contracted(a, f"{lead}y,zy->{lead}z" if len(weight.shape) == 2 else f"{lead}y,y->{lead}", input, weight)
    return out if bias is None else plus(a, out, bias)


@rule("aten.linear_backward.default")
def linear_backward(a: Algebra[V], self: V, grad_output: V, weight: V, output_mask: Sequence[bool]) -> list[V | None]:
    """grad_input = grad_output weight; grad_weight = grad_output^T input; grad_bias = sum grad_output"""
    lead = LETTERS[: len(self.shape) - 1]
    return [
        contracted(a, f"{lead}z,zy->{lead}y", grad_output, weight) if output_mask[0] else None,
        contracted(a, f"{lead}z,{lead}y->zy", grad_output, self) if output_mask[1] else None,
        a.sum(grad_output, range(len(lead))) if output_mask[2] else None,
    ]


@rule("aten.einsum.default")
def einsum(a: Algebra[V], equation: str, tensors: Sequence[V], *, path: Sequence[int] | None = None) -> V:
    """The Einstein summation that the equation states; ellipses and repeated letters of one operand are not supported"""
    equation = equation.replace(" ", "")
    inputs, arrow, out = equation.partition("->")
    if "..." in equation:
        raise Unsupported("an einsum with an ellipsis")
    if not arrow:
        out = "".join(sorted(letter for letter in set(inputs) if inputs.count(letter) == 1 and letter != ","))
    if any(len(set(letters)) != len(letters) for letters in inputs.split(",")):
        raise Unsupported("an einsum that takes a diagonal")
    return contracted(a, f"{inputs}->{out}", *tensors)


@rule("aten.tensordot.default")
def tensordot(a: Algebra[V], self: V, other: V, dims_self: Sequence[int], dims_other: Sequence[int]) -> V:
    """The sum over pairs of dims of the product; the remaining dims in order"""
    left = list(LETTERS[: len(self.shape)])
    right = list(LETTERS[len(left) : len(left) + len(other.shape)])
    for i, j in zip(dims_self, dims_other, strict=True):
        right[j] = left[i]
    paired = {left[i] for i in dims_self}
    out = "".join(letter for letter in left + right if letter not in paired)
    return contracted(a, f"{''.join(left)},{''.join(right)}->{out}", self, other)


@rule("aten.kron.default")
def kron(a: Algebra[V], self: V, other: V) -> V:
    """out[i m + k, j n + l] = self[i, j] other[k, l]"""
    if len(self.shape) != 2 or len(other.shape) != 2:
        raise Unsupported("a Kronecker product of tensors that are no matrices")
    wide = contracted(a, "ij,kl->ikjl", self, other)
    return a.reshape(wide, (self.shape[0] * other.shape[0], self.shape[1] * other.shape[1]))


@rule("aten._trilinear.default")
def trilinear(
    a: Algebra[V],
    i1: V,
    i2: V,
    i3: V,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> V:
    """The sum over dims sumdim of i1 i2 i3, each with dims inserted at its expand"""
    letters = LETTERS[: len(i1.shape) + len(expand1)]
    inputs = [
        "".join(letter for dim, letter in enumerate(letters) if dim not in inserted)
        for inserted in (expand1, expand2, expand3)
    ]
    out = "".join(letter for dim, letter in enumerate(letters) if dim not in sumdim)
    return contracted(a, f"{','.join(inputs)}->{out}", i1, i2, i3)


@rule("aten.trace.default")
def trace(a: Algebra[V], self: V) -> V:
    """out = sum_i self[i, i]"""
    rows, columns = self.shape
    count = min(rows, columns)
    flat = a.reshape(self, (math.prod(self.shape),))
    return a.sum(a.slice(flat, 0, 0, (count - 1) * (columns + 1) + 1 if count else 0, columns + 1), [0])


@rule("aten.cdist.default", "aten._cdist_forward.default")
def cdist(a: Algebra[V], x1: V, x2: V, p: Number = 2, compute_mode: int | None = None) -> V:
    """out[i, j] = sqrt(sum_k (x1[i, k] - x2[j, k])^2); of another p than 2 closed, batched over the rows of both"""
    lead = LETTERS[: len(x1.shape) - 2]
    rows, columns, width = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    if p == 2 and x1.shape[:-2] == x2.shape[:-2]:
        batch = x1.shape[:-2]
        left = expanded(a, a.reshape(as_float(a, x1), (*batch, rows, 1, width)), (*batch, rows, columns, width))
        right = expanded(a, a.reshape(as_float(a, x2), (*batch, 1, columns, width)), (*batch, rows, columns, width))
        apart = minus(a, left, right)
        return a.power(a.sum(times(a, apart, apart), [len(batch) + 2]), Fraction(1, 2))
    shape = (*x1.shape[:-2], rows, columns)
    operands = [(as_float(a, x1), f"{lead}yA"), (as_float(a, x2), f"{lead}zA")]
    return a.opaque("cdist", (float(p),), operands, f"{lead}yz", shape, "float")
