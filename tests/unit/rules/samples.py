"""Calls of operators: at least one for every rule that no program of ``programs`` exercises, uneven shapes included.

Every entry makes its operands anew, so that a loop over seeds tries other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .bench import operator, tensors_of


@dataclass(frozen=True)
class Call:
    """One call: ``expected`` is None where PyTorch has the operator on this machine."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    known: bool = False
    expected: list[torch.Tensor] | None = None
    draws: dict[tuple[str, int], Any] | None = None

    def results(self) -> list[torch.Tensor]:
        if self.expected is not None:
            return self.expected
        return tensors_of(operator(self.op)(*self.args, **self.kwargs))


Make = Callable[[], Call]
SAMPLES: list[tuple[str, Make]] = []


def sample(ops: str, make: Callable[[], tuple[Any, ...]], known: bool = False, **kwargs: Any) -> None:
    """The same operands for every operator named in ``ops`` (``aten.`` understood)."""
    for name in ops.split():
        op = name if name.startswith(("_c10d", "prims.", "gg.")) else f"aten.{name}"
        SAMPLES.append((op, lambda op=op: Call(op, make(), kwargs, known)))


def r(*shape: int) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(*shape, dtype=torch.float64)


def p(*shape: int) -> torch.Tensor:
    """Numbers between 0.1 and 0.9."""
    return torch.rand(*shape, dtype=torch.float64) * 0.8 + 0.1


def definite(batch: int, size: int) -> torch.Tensor:
    """Symmetric matrices whose eigenvalues are positive."""
    root = r(batch, size, size)
    return root @ root.mT + torch.eye(size, dtype=torch.float64)


def i(high: int, *shape: int) -> torch.Tensor:
    """Integers 0, ..., high - 1."""
    return torch.randint(high, shape)


def b(*shape: int) -> torch.Tensor:
    """Truth values."""
    return torch.rand(*shape) > 0.5


def z(*shape: int) -> torch.Tensor:
    """Complex numbers."""
    return torch.complex(r(*shape), r(*shape))


F64 = torch.float64

# -- contraction
sample("mv.default", lambda: (r(3, 4), r(4)))
sample("dot.default vdot.default inner.default", lambda: (r(5), r(5)))
sample("outer.default ger.default", lambda: (r(3), r(4)))
sample("addmv.default", lambda: (r(3), r(3, 4), r(4)), beta=2, alpha=0.5)
sample("addr.default", lambda: (r(3, 4), r(3), r(4)), beta=0.5, alpha=2)
sample("addbmm.default", lambda: (r(3, 5), r(2, 3, 4), r(2, 4, 5)), beta=0, alpha=2)
sample("addmm.default", lambda: (r(5), r(3, 4), r(4, 5)))
sample("matmul.default", lambda: (r(2, 1, 3, 4), r(5, 4, 2)))
sample("matmul.default", lambda: (r(4), r(5, 4, 2)))
sample("matmul.default", lambda: (r(2, 3, 4), r(4)))
sample("matmul.default", lambda: (r(4), r(4)))
sample("matmul.default", lambda: (r(2, 3, 4), r(4, 5)))
sample("linear.default", lambda: (r(2, 3, 4), r(5, 4), r(5)))
sample("linear.default", lambda: (r(4), r(5, 4)))
sample("einsum.default", lambda: ("bij, bkj -> bik", [r(2, 3, 4), r(2, 5, 4)]))
sample("einsum.default", lambda: ("ij,jk", [r(3, 4), r(4, 5)]))
sample("tensordot.default", lambda: (r(3, 4, 5), r(4, 3, 2), [0, 1], [1, 0]))
sample("kron.default", lambda: (r(2, 3), r(3, 2)))
sample("cdist.default", lambda: (r(2, 3, 4), r(2, 5, 4)))
sample("_cdist_forward.default", lambda: (r(2, 3, 4), r(2, 5, 4), 2.0, None))
sample("_cdist_forward.default", lambda: (r(3, 4), r(5, 4), 1.0, None))

# -- linear algebra
sample("linalg_inv_ex.default", lambda: (r(2, 3, 3),))
sample("linalg_lu_factor_ex.default linalg_matrix_exp.default", lambda: (r(2, 3, 3),))
sample("_linalg_solve_ex.default", lambda: (r(2, 3, 3), r(2, 3, 4)))
sample("_linalg_solve_ex.default", lambda: (r(2, 3, 3), r(2, 3)))
sample("_linalg_solve_ex.default", lambda: (r(2, 3, 3), r(2, 4, 3)), left=False)
sample("linalg_cholesky_ex.default", lambda: (definite(2, 3),))
sample("linalg_cholesky_ex.default", lambda: (definite(2, 3),), upper=True)
sample("linalg_solve_triangular.default", lambda: (r(2, 3, 3), r(2, 3, 4)), upper=True)
sample("linalg_solve_triangular.default", lambda: (r(2, 3, 3), r(2, 4, 3)), upper=False, left=False, unitriangular=True)
sample("linalg_lu_solve.default", lambda: (*torch.linalg.lu_factor(r(2, 3, 3)), r(2, 3, 4)))
sample("linalg_lu_solve.default", lambda: (*torch.linalg.lu_factor(r(2, 3, 3)), r(2, 4, 3)), left=False, adjoint=True)
sample("linalg_qr.default", lambda: (r(2, 4, 3),))
sample("linalg_qr.default", lambda: (r(2, 4, 3), "complete"))
sample("_linalg_eigh.default", lambda: (definite(2, 3),))
sample("_linalg_svd.default", lambda: (r(2, 4, 3),))
sample("mm.default", lambda: (i(9, 3, 4), i(9, 4, 2)))

sample("_linalg_det.default _linalg_slogdet.default", lambda: (r(2, 3, 3),))
sample("linalg_pinv.atol_rtol_tensor", lambda: (r(2, 4, 3),), atol=torch.tensor(1e-9, dtype=F64))
sample("cholesky.default", lambda: (definite(2, 3),))
sample("cholesky.default", lambda: (definite(2, 3), True))
sample("cholesky_solve.default", lambda: (r(2, 3, 4), torch.linalg.cholesky(definite(2, 3))))
sample("cholesky_solve.default", lambda: (r(2, 3, 4), torch.linalg.cholesky(definite(2, 3)).mT, True))
sample("linalg_cross.default", lambda: (r(2, 3, 4), r(2, 3, 1)), dim=1)
sample("_trilinear.default", lambda: (r(5, 2), r(4, 2, 3), r(5, 3), [1, 3], [0], [1, 2], [2, 3]))

# -- layout
sample("reshape.default view_copy.default _reshape_copy.default", lambda: (r(6, 4), [3, 8]))
sample("view.default _unsafe_view.default", lambda: (r(6, 4), [2, -1]))
sample("_reshape_alias.default", lambda: (r(6, 4), [3, 8], [8, 1]))
sample("view_as.default reshape_as.default", lambda: (r(6, 4), r(3, 8)))
sample("flatten.using_ints", lambda: (r(2, 3, 4), 1, 2))
sample("unflatten.int", lambda: (r(2, 12), 1, [3, 4]))
sample(
    "ravel.default squeeze.default squeeze_copy.default atleast_1d.default atleast_2d.default", lambda: (r(2, 1, 3),)
)
sample("squeeze.dims", lambda: (r(2, 1, 1, 3), [1, 2]))
sample("squeeze.dim squeeze_copy.dim", lambda: (r(2, 1, 3), 1))
sample("unsqueeze.default unsqueeze_copy.default", lambda: (r(2, 3), -1))
sample(
    "alias.default contiguous.default lift_fresh_copy.default lift.default positive.default resolve_conj.default"
    " resolve_neg.default alias_copy.default detach_copy.default",
    lambda: (r(2, 3),),
)
sample("permute_copy.default permute.default", lambda: (r(2, 3, 4), [2, 0, -2]))
sample("t_copy.default t.default numpy_T.default mT.default", lambda: (r(2, 3),))
sample("t.default", lambda: (r(3),))
sample("swapaxes.default swapdims.default transpose_copy.int transpose.int", lambda: (r(2, 3, 4), 0, -1))
sample("movedim.intlist moveaxis.intlist", lambda: (r(2, 3, 4, 5), [0, 3], [2, 0]))
sample("movedim.int moveaxis.int", lambda: (r(2, 3, 4), 0, -1))
sample("expand_copy.default expand.default broadcast_to.default", lambda: (r(1, 3), [2, 4, 3]))
sample("expand_as.default", lambda: (r(1, 3), r(4, 3)))
sample("slice_copy.Tensor slice.Tensor", lambda: (r(7, 5), 0, -6, 100, 2))
sample("slice.Tensor", lambda: (r(7, 5), 1, 4, 2))
sample("narrow.default narrow_copy.default", lambda: (r(7, 5), 1, -3, 2))
sample("select_copy.int select.int", lambda: (r(3, 4), 1, -2))
sample("unbind_copy.int unbind.int", lambda: (r(3, 4), 1))
sample("split_copy.Tensor split.Tensor unsafe_split.Tensor", lambda: (r(7, 2), 3))
sample(
    "split.sizes split_with_sizes_copy.default split_with_sizes.default unsafe_split_with_sizes.default",
    lambda: (r(7, 2), [4, 0, 3]),
)
sample("chunk.default", lambda: (r(7, 2), 3))
sample("chunk.default", lambda: (r(2, 5), 4, 1))
sample("tensor_split.sections", lambda: (r(7, 2), 3))
sample("concat.default concatenate.default cat.default", lambda: ([r(2, 3), r(0, 3), r(1, 3)], 0))
sample("cat.default", lambda: ([torch.zeros(0), i(5, 2, 3), r(2, 3)], -1))
sample("tile.default repeat.default", lambda: (r(2, 3), [2, 1, 3]))
sample("repeat_interleave.self_int", lambda: (r(2, 3), 2, 1))
sample("repeat_interleave.self_int", lambda: (r(2, 3), 3))
sample("repeat_interleave.self_Tensor", lambda: (r(3, 2), torch.tensor([2, 0, 1]), 0), known=True)
sample("repeat_interleave.Tensor", lambda: (torch.tensor([2, 0, 1]),), known=True)
sample("pad.default", lambda: (r(2, 3), [1, 2, -1, 3], "constant", 0.5))
sample("pad.default", lambda: (r(2, 3, 4), [1, 2], "circular"))
sample("constant_pad_nd.default", lambda: (r(2, 3), [0, 2], 1.5))
sample("as_strided_copy.default as_strided.default", lambda: (r(4, 6), [2, 3], [12, 2], 1))
sample("as_strided.default", lambda: (r(4, 6), [3, 2, 2], [6, 3, 1], 7))
sample("as_strided.default", lambda: (r(4, 6), [2, 3, 4], [6, 0, 1], 2))
sample("as_strided.default", lambda: (r(24), [3, 4], [2, 1], 5))
sample("as_strided.default", lambda: (r(24), [4, 2], [1, 12], 3))
sample("as_strided.default", lambda: (r(5, 5), [3, 3], [6, 1], 0))
sample("as_strided_scatter.default", lambda: (r(4, 6), r(2, 3), [2, 3], [12, 2], 1))
sample("as_strided_scatter.default", lambda: (r(4, 6), r(3, 2), [3, 2], [1, 12], 2))
sample("as_strided_scatter.default", lambda: (r(5, 5), r(3, 3), [3, 3], [6, 1], 1))
sample("slice_scatter.default", lambda: (r(7, 3), r(3, 3), 0, 1, 7, 2))
sample("slice_scatter.default", lambda: (r(3, 7), r(3, 2), 1, -3, -1))
sample("select_scatter.default", lambda: (r(3, 4), r(3), 1, -2))
sample("slice_backward.default", lambda: (r(3, 2), [3, 5], 1, 1, 5, 2))
sample("diagonal_copy.default diagonal.default", lambda: (r(2, 4, 5), -1, 1, 2))
sample("diagonal_scatter.default", lambda: (r(2, 4, 5), r(2, 4), 1, 1, 2))
sample("unfold_copy.default unfold.default", lambda: (r(3, 9), 1, 3, 2))
sample("channel_shuffle.default native_channel_shuffle.default", lambda: (r(2, 6, 3, 3), 3))
sample("meshgrid.default", lambda: ([r(3), r(4)],))
sample("meshgrid.indexing", lambda: ([r(3), r(4)],), indexing="xy")
sample("broadcast_tensors.default", lambda: ([r(3, 1), r(4), r(2, 1, 1)],))
sample("reflection_pad1d.default replication_pad1d.default", lambda: (r(2, 3, 4), [1, 2]))
sample("reflection_pad2d.default replication_pad2d.default", lambda: (r(2, 4, 5), [1, 2, 2, 1]))
sample("reflection_pad3d.default replication_pad3d.default", lambda: (r(1, 3, 4, 5), [1, 2, 2, 1, 1, 0]))
sample("tril.default triu.default", lambda: (r(2, 4, 5), -1))
sample("flip.default", lambda: (r(2, 3, 4), [0, 2]))
sample("roll.default", lambda: (r(4, 5), [3, -1], [0, 1]))

# -- elementwise
sample("subtract.Tensor sub.Tensor add.Tensor", lambda: (r(3, 4), r(4)), alpha=2)
sample("rsub.Tensor", lambda: (r(3, 4), r(4)), alpha=2)
sample("rsub.Scalar", lambda: (r(3, 4), 2.5))
sample("add.Scalar mul.Scalar sub.Scalar", lambda: (i(9, 3), 3))
sample("add.Tensor mul.Tensor", lambda: (i(9, 3), r(2, 1)))
sample("mul.Tensor", lambda: (b(3), b(3)))
sample("multiply.Tensor true_divide.Tensor divide.Tensor", lambda: (r(3, 4), r(3, 1)))
sample("div.Tensor", lambda: (i(9, 3), i(9, 3) + 1))
sample("div.Tensor_mode", lambda: (r(3, 4), r(4)), rounding_mode="floor")
sample("div.Tensor_mode", lambda: (r(3, 4), r(4)), rounding_mode="trunc")
sample("div.Scalar_mode", lambda: (i(9, 4) - 4, 3), rounding_mode="floor")
sample("div.Scalar_mode", lambda: (r(4), 0.3), rounding_mode=None)
sample("div.Scalar_mode", lambda: (i(9, 4) - 4, 3), rounding_mode="trunc")
sample("fmod.Scalar", lambda: (i(20, 6) - 10, 3))
sample("hypot.default", lambda: (r(3), r(3)))
sample("__lshift__.Scalar bitwise_left_shift.Tensor_Scalar", lambda: (i(9, 4) - 4, 3))
sample("__rshift__.Scalar bitwise_right_shift.Tensor_Scalar bitwise_and.Scalar", lambda: (i(90, 4) - 40, 3))
sample("nonzero.default", lambda: (b(3, 4),), known=True)
sample("block_diag.default", lambda: ([r(2, 3), r(4), r(3, 1)],))
sample("rot90.default", lambda: (r(2, 3, 4), 1, [0, 2]))
sample("rot90.default", lambda: (r(2, 3), -1))
sample("rot90.default", lambda: (r(2, 3), 2))
sample("tril_indices.default triu_indices.default", lambda: (3, 5, -1))
sample("histc.default", lambda: (i(5, 3, 4).double(), 4, 0, 4))
sample("histc.default", lambda: (i(5, 3, 4).double(), 4, 0, 3))
sample("histc.default", lambda: (r(5, 3), 3, -1, 1))
sample("im2col.default", lambda: (r(2, 3, 5, 6), [2, 3], [1, 2], [1, 0], [2, 1]))
sample("col2im.default", lambda: (r(2, 12, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1]))
sample("floor_divide.Scalar remainder.Scalar", lambda: (i(20, 6) - 10, 3))
sample("floor_divide.default", lambda: (i(20, 6) - 10, torch.tensor(4)), known=True)
sample("remainder.Tensor fmod.Tensor", lambda: (r(3, 4), r(4)))
sample("fmod.Scalar remainder.Scalar", lambda: (r(3, 4), 0.7))
sample("negative.default square.default", lambda: (i(9, 3),))
sample("log10.default lgamma.default log2.default", lambda: (p(3) + 1,))
sample("special_xlog1py.default", lambda: (torch.tensor([0.0, 2.0], dtype=F64), p(2)))
sample("special_xlog1py.other_scalar", lambda: (p(3), 2.5))
sample("special_xlog1py.self_scalar", lambda: (2.5, p(3)))
sample("logit.default", lambda: (p(3, 4),))
sample("logit.default", lambda: (r(3, 4), 0.25))
sample("logit_backward.default", lambda: (r(3, 4), p(3, 4)))
sample("logit_backward.default", lambda: (r(3, 4), p(3, 4), 0.25))
sample("logaddexp2.default", lambda: (r(3, 4), r(3, 4)))
sample("deg2rad.default rad2deg.default", lambda: (r(3, 4),))
sample("softshrink.default hardshrink.default", lambda: (r(3, 4), 0.4))
sample("softshrink_backward.default hardshrink_backward.default", lambda: (r(3, 4), r(3, 4), 0.4))
sample("soft_margin_loss_backward.default", lambda: (r(3, 4), r(3, 4), r(3, 4), 0))
sample("xlogy.Tensor", lambda: (torch.tensor([0.0, 2.0], dtype=F64), p(2)))
sample("xlogy.Scalar_Other", lambda: (p(3), 2.5))
sample("xlogy.Scalar_Self", lambda: (2.5, p(3)))
sample("asin.default acos.default atanh.default", lambda: (p(3),))
sample("acosh.default", lambda: (p(3) + 1,))
sample("atan2.default fmax.default fmin.default max.other min.other", lambda: (r(3, 2), r(2)))
sample("fix.default", lambda: (r(5) * 3,))
sample("clamp.Tensor clip.Tensor", lambda: (r(3, 4), r(4) - 1, r(4) + 1))
sample("clip.default clamp.default", lambda: (i(9, 5), 2, 6))
sample("clamp_max.default", lambda: (r(3), 0.1))
sample("clamp_max.Tensor clamp_min.Tensor", lambda: (r(3), r(3)))
sample("relu6.default selu.default log_sigmoid.default mish.default", lambda: (r(3, 4) * 3,))
sample("threshold.default", lambda: (r(3, 4), 0.1, 7.0))
sample("prelu.default", lambda: (r(2, 3, 4), r(3)))
sample("pow.Tensor_Scalar", lambda: (p(3), 2.5))
sample("pow.Tensor_Scalar", lambda: (i(5, 3), 3))
sample("pow.Scalar", lambda: (3, i(4, 5)))
sample("pow.Tensor_Tensor", lambda: (r(3, 1), torch.tensor([2])), known=True)
sample("log_sigmoid_forward.default", lambda: (r(3, 4),))

# -- truth
sample("ne.Tensor le.Tensor ge.Tensor eq.Tensor lt.Tensor gt.Tensor", lambda: (i(4, 3, 4), i(4, 4)))
sample("ne.Scalar le.Scalar ge.Scalar eq.Scalar lt.Scalar gt.Scalar", lambda: (i(4, 8), 2))
sample("logical_not.default", lambda: (i(2, 5),))
sample("logical_xor.default logical_and.default logical_or.default", lambda: (i(2, 5), b(5)))
sample("bitwise_and.Scalar __and__.Scalar bitwise_or.Scalar __or__.Scalar bitwise_xor.Scalar", lambda: (b(5), True))
sample(
    "__and__.Tensor __or__.Tensor __xor__.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor",
    lambda: (b(3, 5), b(5)),
)
sample(
    "__and__.Tensor __or__.Tensor __xor__.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor",
    lambda: (i(99, 3, 5), i(99, 5)),
)
sample("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", lambda: (i(99, 5), 12))
sample("bitwise_left_shift.Tensor bitwise_right_shift.Tensor", lambda: (i(99, 3, 4), i(5, 4)))
sample("__lshift__.Tensor __rshift__.Tensor", lambda: (i(99, 3, 4), i(5, 4)))
sample("floor_divide.default remainder.Tensor", lambda: (i(99, 3, 4) - 50, i(5, 4) + 1))
sample("bitwise_not.default", lambda: (i(9, 5),))
sample("isin.Tensor_Tensor", lambda: (i(9, 3, 4), i(9, 2, 2)))
sample("isin.Tensor_Tensor", lambda: (i(9, 3, 4), i(9, 2)), invert=True)
sample("isin.Tensor_Scalar", lambda: (i(5, 3, 4), 2))
sample("isin.Scalar_Tensor", lambda: (2, i(5, 3)))
sample("where.ScalarOther", lambda: (b(3), r(3), 2.5))
sample("where.ScalarSelf", lambda: (b(3), 2.5, r(3)))
sample("where.Scalar", lambda: (b(3), 2, 1))
sample("masked_fill.Tensor", lambda: (r(3, 4), b(4), torch.tensor(2.5, dtype=F64)))
sample("isposinf.default isneginf.default", lambda: (torch.tensor([1.0, float("inf"), -float("inf")]),))
sample("isinf.default isfinite.default isnan.default", lambda: (torch.tensor([1.0, float("inf"), float("nan")]),))
sample("eq.Scalar ne.Scalar", lambda: (torch.tensor([1.0, float("inf"), -float("inf"), float("nan")]), float("inf")))
sample("eq.Scalar ne.Scalar", lambda: (torch.tensor([1.0, float("inf"), -float("inf"), float("nan")]), -float("inf")))

# -- bags of rows
BAGS, TAKEN = torch.tensor([0, 3, 3]), torch.tensor([1, 2, 2, 5, 7, 2, 0])  # the second one is empty
sample("_embedding_bag.default", lambda: (r(8, 3), TAKEN, BAGS), known=True)
sample("_embedding_bag.default", lambda: (r(8, 3), TAKEN, BAGS, False, 1), known=True)
sample("_embedding_bag.default", lambda: (r(8, 3), TAKEN, BAGS, False, 0, False, r(7), False, 2), known=True)
sample(
    "_embedding_bag_forward_only.default", lambda: (r(8, 3), TAKEN, BAGS, False, 1, False, None, False, 2), known=True
)

BAG_OF, HELD = torch.tensor([0, 0, 0, 2, 2, 2, 2]), torch.tensor([3, 0, 4])
sample(
    "_embedding_bag_backward.default",
    lambda: (r(3, 2), TAKEN, BAGS, BAG_OF, HELD * 0, HELD * 0, 8, False, 0, False, r(7)),
    known=True,
)
sample(
    "_embedding_bag_backward.default",
    lambda: (r(3, 2), TAKEN, BAGS, BAG_OF, HELD, HELD, 8, False, 1, False, None),
    known=True,
)
sample(
    "_embedding_bag_per_sample_weights_backward.default",
    lambda: (r(3, 2), r(8, 2), TAKEN, BAGS, BAG_OF, 0, 2),
    known=True,
)

# -- reductions
sample("nansum.default", lambda: (r(3, 4), [1]))
sample("sum.dim_IntList", lambda: (b(3, 4), [0]))
sample("sum.dim_IntList", lambda: (r(2, 3, 4), [0, -1], True))
sample("sum.default", lambda: (i(5, 3),), dtype=F64)
sample("min.default max.default amax.default amin.default", lambda: (r(3, 4),))
sample("amax.default amin.default", lambda: (i(9, 2, 3, 4), [0, -1], True))
sample("argmin.default argmax.default", lambda: (r(3, 4),))
sample("argmin.default argmax.default", lambda: (r(3, 4), 1, True))
sample("prod.default", lambda: (r(2, 3),))
sample("prod.dim_int", lambda: (r(2, 100), 1))
sample("any.dim all.dim", lambda: (b(3, 4), 1, True))
sample("any.dims all.dims", lambda: (b(3, 4, 2), [0, 2]))
sample("all.default any.default", lambda: (b(3),))
sample("count_nonzero.default", lambda: (i(2, 3, 4), 1))
sample("count_nonzero.dim_IntList", lambda: (i(2, 3, 4), [0, 1]))
sample("var.default std.default", lambda: (r(3, 4), False))
sample("var.dim std.dim", lambda: (r(3, 4), [1], True, True))
sample("std_mean.correction var_mean.correction", lambda: (r(3, 4), [0]), correction=0, keepdim=True)
sample("norm.Scalar", lambda: (r(3, 4), 1))
sample("norm.ScalarOpt_dtype", lambda: (r(3, 4), 3), dtype=F64)
sample("norm.ScalarOpt_dim", lambda: (r(3, 4), 2, [1], True))
sample("norm.ScalarOpt_dim_dtype", lambda: (r(3, 4), float("inf"), [0], False), dtype=F64)
sample("linalg_vector_norm.default", lambda: (r(3, 4), 0, [1]))
sample("linalg_vector_norm.default", lambda: (r(3, 4), -float("inf")))
sample("special_logsumexp.default logsumexp.default", lambda: (r(3, 4), [1]))
sample("logsumexp.default", lambda: (r(3, 0), [1]))
sample("logsumexp.default", lambda: (r(3, 0), [1], True))
sample("_softmax.default _log_softmax.default", lambda: (r(3, 0), 1, False))
sample("cummax.default cummin.default", lambda: (r(2, 70), -1))
sample("cummax.default cummin.default cumsum.default cumprod.default", lambda: (r(3, 4), -1))
sample("cumsum.default", lambda: (i(5, 3, 4), 0))
sample("logcumsumexp.default", lambda: (r(3, 4), 0))
sample("aminmax.default", lambda: (r(3, 4),), dim=1)
sample("trace.default", lambda: (r(4, 3),))

# -- softmax and normalisation
sample(
    "softmax.int special_softmax.default _safe_softmax.default log_softmax.int special_log_softmax.default",
    lambda: (r(3, 4), -1),
)
sample("softmax.int", lambda: (r(3, 4), 0, F64))
sample("layer_norm.default", lambda: (r(2, 3, 4), [3, 4], r(3, 4), r(3, 4)))
sample("rms_norm.default", lambda: (r(2, 3, 4), [4], r(4), 1e-6))
sample("_fused_rms_norm.default", lambda: (r(2, 3, 4), [4], r(4), 1e-6))
sample("group_norm.default", lambda: (r(2, 6, 5), 3, r(6), r(6)))
sample("_native_batch_norm_legit_functional.default", lambda: (r(4, 3, 5), r(3), r(3), r(3), p(3), True, 0.1, 1e-5))
sample("_native_batch_norm_legit_functional.default", lambda: (r(4, 3, 5), r(3), r(3), r(3), p(3), False, 0.1, 1e-5))
sample("_native_batch_norm_legit.no_stats", lambda: (r(4, 3, 5), r(3), r(3), True, 0.1, 1e-5))
sample("_native_batch_norm_legit_no_training.default", lambda: (r(4, 3, 5), r(3), r(3), r(3), p(3), 0.1, 1e-5))
sample("native_batch_norm.default", lambda: (r(4, 3), None, None, r(3), p(3), False, 0.1, 1e-5))
sample("_weight_norm_interface.default", lambda: (r(4, 3, 2), r(4, 1, 1), 0))
sample("_weight_norm_interface.default", lambda: (r(4, 3), r(1, 3), 1))
sample("_weight_norm_interface_backward.default", lambda: (r(4, 3), r(4, 3), r(4, 1), p(4, 1), 0))

# -- losses
sample("nll_loss.default nll_loss_nd.default", lambda: (r(4, 3), i(3, 4)))
sample("nll_loss2d.default", lambda: (r(2, 3, 2, 2), i(3, 2, 2, 2)))
sample("nll_loss_forward.default", lambda: (r(3), i(3).clone(), None, 1, -100))
sample("nll_loss_forward.default", lambda: (r(4, 3), torch.tensor([0, -1, 2, -1]), p(3), 1, -1))
sample("nll_loss_forward.default", lambda: (r(4, 3), torch.tensor([0, 1, 2, 1]), None, 2, 1))
sample("cross_entropy_loss.default", lambda: (r(4, 3), i(3, 4)))
sample("cross_entropy_loss.default", lambda: (r(2, 5, 3), i(5, 2, 3), p(5), 1))
sample(
    "l1_loss.default mse_loss.default huber_loss.default smooth_l1_loss.default soft_margin_loss.default",
    lambda: (r(3, 4), r(3, 4)),
)
sample("kl_div.default", lambda: (r(3, 4), p(3, 4), 2))
sample("kl_div.default", lambda: (r(3, 4), r(3, 4)), log_target=True)

# -- positions
sample("_unsafe_index.Tensor index.Tensor", lambda: (r(5, 4, 3), [None, i(4, 2, 3)]))
sample("index.Tensor", lambda: (r(5, 4, 3), [i(5, 2, 1), None, i(3, 3)]))
sample("index.Tensor", lambda: (r(5, 4), [torch.arange(5), torch.tensor([3, 0, 0, 2, 1])]), known=True)
sample("index.Tensor", lambda: (r(3, 4, 2), [b(3, 4)]), known=True)
sample("index.Tensor", lambda: (r(3, 4), [torch.tensor([-1, 0])]), known=True)
sample("index.Tensor_hacked_twin _unsafe_index.Tensor", lambda: (r(5, 4), [i(5, 3)]))
sample("_unsafe_index_put.default index_put.default", lambda: (r(5, 4), [i(5, 3)], r(3, 4), True))
sample("index_put.default", lambda: (r(5, 4), [None, i(4, 3)], r(5, 3), True))
sample("index_put.default", lambda: (r(5, 4, 3), [i(5, 2), None, i(3, 2)], r(2, 4), True))
sample("index_put.default", lambda: (r(5, 4), [torch.tensor([4, 1])], r(2, 4)), known=True)
sample("index_put.default", lambda: (r(5, 4), [torch.tensor([4, 1]), torch.tensor([0, 3])], r(2)), known=True)
sample("index_put.default", lambda: (r(5), [torch.tensor([1, 1, 2])], r(3), True), known=True)
sample("index_put.default", lambda: (r(5, 4), [i(5, 6)], r(6, 4)))
sample("index_put.default", lambda: (r(3, 2, 4), [i(3, 6), None, i(4, 6)], r(6, 2)))
sample("index_put.default", lambda: (r(5, 4), [b(5, 4)], torch.tensor(2.5, dtype=F64)))
sample("index_put.default", lambda: (r(5, 4), [b(5)], torch.tensor(2.5, dtype=F64)), known=True)
sample("_index_put_impl.default index_put.hacked_twin", lambda: (r(5, 4), [i(5, 3)], r(3, 4), True))
sample("take_along_dim.default", lambda: (r(3, 5), i(5, 1, 2), 1))
sample("gather.default", lambda: (r(3, 5), 1, i(5, 2, 4)))
sample("gather.default", lambda: (r(3, 5), 1, torch.tensor([[4, 0]]).expand(3, 2).clone()), known=True)
sample("gather.default", lambda: (i(9, 3, 5), 0, i(3, 2, 5)))
sample("scatter.src", lambda: (r(3, 5), 1, i(5, 3, 1), r(3, 1)))
sample("scatter.src", lambda: (r(3, 5), 1, torch.tensor([[4, 0]]).expand(2, 2).clone(), r(3, 3)), known=True)
sample("scatter.src", lambda: (r(3, 5), 1, i(5, 2, 4), r(3, 4)))
sample("scatter.value", lambda: (r(3, 5), 1, i(5, 3, 3), 2.5))
sample("scatter.value", lambda: (torch.zeros(3, 5, dtype=torch.int64), 0, i(3, 1, 4), 1))
sample("scatter_add.default", lambda: (r(3, 5), 0, i(3, 2, 4), r(2, 5)))
sample("scatter_add.default", lambda: (r(3, 5), 1, torch.tensor([[4, 0]]).expand(3, 2).clone(), r(3, 2)), known=True)
sample("scatter.reduce", lambda: (r(3, 5), 0, i(3, 2, 4), r(2, 5)), reduce="add")
sample("scatter_reduce.two", lambda: (r(3, 5), 0, i(3, 2, 5), r(2, 5), "sum"), include_self=False)
for _reduce in ("prod", "mean", "amax", "amin"):
    sample("scatter_reduce.two", lambda reduce=_reduce: (r(3, 5), 1, i(5, 3, 4), r(3, 4), reduce), include_self=False)
    sample("scatter_reduce.two", lambda reduce=_reduce: (r(3, 5), 0, i(3, 2, 4), r(2, 5), reduce))
    sample("index_reduce.default", lambda reduce=_reduce: (r(3, 5), 1, i(5, 2), r(3, 2), reduce))
sample("index_copy.default", lambda: (r(3, 5), 1, torch.tensor([4, 0]), r(3, 2)), known=True)
sample("index_copy.default", lambda: (r(3, 5, 2), 1, torch.randperm(5)[:3], r(3, 3, 2)))
sample("index_copy.default", lambda: (r(5, 2), 0, i(5, 1), r(1, 2)))
for _mask in ((3, 5), (3, 1), (1, 5), (5,), (2, 3, 1)):
    sample("masked_scatter.default", lambda mask=_mask: (r(3, 5), b(*mask), r(33)))
sample("masked_scatter.default", lambda: (r(3, 5), b(3, 1).expand(3, 5), r(4, 5)))
sample("masked_scatter.default", lambda: (r(3, 5), torch.tensor([[True], [False], [True]]), r(2, 5)))
sample("masked_scatter.default", lambda: (i(9, 3, 5), b(3, 5), i(9, 5, 3)))
sample("masked_scatter.default", lambda: (b(3, 5), b(3, 5), b(5, 3)))
sample("masked_scatter.default", lambda: (r(4), torch.zeros(4, dtype=torch.bool), r(1)))
sample("masked_scatter_backward.default", lambda: (r(3, 5), b(3, 5), [3, 7]))
sample("masked_scatter_backward.default", lambda: (r(3, 5), b(3, 1).expand(3, 5), [4, 5]))
sample("masked_scatter_backward.default", lambda: (r(2, 3, 2), b(2, 3, 1).expand(2, 3, 2), [15]))
sample("index_select.default", lambda: (r(3, 5), 1, torch.tensor([4, 0, 0])), known=True)
sample("index_add.default", lambda: (r(3, 5), 1, torch.tensor([4, 0]), r(3, 2)), known=True)
sample("index_fill.int_Scalar", lambda: (r(3, 5), 1, i(5, 2), 2.5))
sample("index_fill.int_Tensor", lambda: (r(3, 5), 0, i(3, 2), torch.tensor(2.5, dtype=F64)))
sample("take.default", lambda: (r(3, 5), i(15, 2, 4)))
sample("take.default", lambda: (r(3, 5), i(15, 2, 4)), known=True)
sample("value_selecting_reduction_backward.default", lambda: (r(3), 1, i(5, 3), [3, 5], False))
sample("one_hot.default", lambda: (i(4, 2, 3), 5))

# -- selection
sample("sort.default argsort.default", lambda: (r(3, 4), -1, True))
sample("sort.stable argsort.stable", lambda: (r(3, 4),), stable=True, dim=-1)
sample("sort.default argsort.default", lambda: (torch.tensor([[3, 0, 2], [1, 5, 4]]), -1, True), known=True)
sample("sort.default argsort.default", lambda: (torch.tensor([4, 1, 3, 0]),), known=True)
sample("sort.stable argsort.stable", lambda: (i(3, 6, 2),), stable=True, dim=0, descending=True, known=True)
sample("topk.default", lambda: (r(3, 5), 2))
sample("mode.default nanmedian.dim", lambda: (i(3, 4, 7).double(), 1, True))
sample("median.default nanmedian.default", lambda: (r(3, 5),))
sample("kthvalue.default", lambda: (r(3, 5), 2, -1, True))
sample("median.dim max.dim min.dim", lambda: (r(3, 5), 1, True))
sample("searchsorted.Tensor", lambda: (r(5).sort()[0], r(2, 3)), right=True)
sample("searchsorted.Tensor", lambda: (r(2, 5).sort()[0], r(2, 3)))
sample("bucketize.Tensor", lambda: (r(2, 3), r(5).sort()[0]))

# -- made from numbers
sample("new_zeros.default new_ones.default", lambda: (r(2), [3, 4]))
sample("ones_like.default zeros_like.default zero.default", lambda: (i(5, 2),))
sample("new_full.default", lambda: (r(2), [3], 2.5))
sample("full_like.default fill.Scalar", lambda: (i(5, 2), 3))
sample("eye.m", lambda: (3, 4))
sample("arange.start_step", lambda: (1, 8, 3))
sample("arange.start_step", lambda: (0.5, 2.0, 0.25), dtype=F64)
sample("prims.convert_element_type.default to.dtype", lambda: (r(3) * 4, torch.int64))
sample("_to_copy.default", lambda: (r(3),), dtype=torch.bfloat16)
sample("_to_copy.default", lambda: (r(3),), dtype=torch.float32)
sample("_to_copy.default", lambda: (i(9, 3),), dtype=torch.float16)
sample("_to_copy.default", lambda: (r(3),), dtype=torch.bool)
sample("type_as.default", lambda: (i(9, 3), r(1)))
sample("copy.default", lambda: (i(9, 2, 3), r(3)))
sample("fill.Tensor", lambda: (i(9, 2, 3), torch.tensor(4.0)))

# -- convolution and pooling
sample(
    "_convolution.default",
    lambda: (r(2, 4, 7), r(6, 2, 3), r(6), [2], [1], [2], False, [0], 2, False, False, False, False),
)
sample("convolution.default", lambda: (r(2, 3, 5, 4), r(4, 3, 2, 3), None, [1, 2], [0, 1], [1, 1], False, [0, 0], 1))
sample(
    "convolution.default",
    lambda: (r(1, 2, 4, 4, 3), r(3, 2, 2, 2, 2), r(3), [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1),
)
sample("avg_pool3d.default", lambda: (r(2, 3, 4, 4, 4), [2, 2, 2]))
sample("avg_pool2d.default", lambda: (r(2, 3, 5, 6), [3, 2], [2, 1], [1, 1]))
for _padded in (True, False):
    _windows = ([3, 2], [2, 2], [1, 1], True, _padded)
    sample("avg_pool2d.default", lambda windows=_windows: (r(2, 3, 6, 7), *windows))
    sample("avg_pool2d.default", lambda windows=_windows: (r(2, 3, 6, 7), *windows, 5))
    sample(
        "avg_pool2d_backward.default",
        lambda windows=_windows: (
            torch.ops.aten.avg_pool2d(x := r(2, 3, 6, 7), *windows),
            x,
            *windows,
            None,
        ),
    )
sample("avg_pool1d.default", lambda: (r(2, 3, 6), [2]))
sample(
    "avg_pool3d_backward.default",
    lambda: (r(2, 3, 2, 2, 2), r(2, 3, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, False, True, None),
)
sample("adaptive_avg_pool2d.default", lambda: (r(2, 3, 5, 6), [2, 4]))
sample("adaptive_avg_pool1d.default", lambda: (r(2, 3, 7), [3]))
sample("upsample_nearest1d.default", lambda: (r(2, 3, 4), [7]))
sample("upsample_nearest3d.default", lambda: (r(1, 2, 2, 3, 2), [4, 5, 3]))
sample("upsample_nearest1d_backward.default", lambda: (r(2, 3, 7), [7], [2, 3, 4]))
sample("upsample_nearest3d_backward.default", lambda: (r(1, 2, 4, 5, 3), [4, 5, 3], [1, 2, 2, 3, 2]))
sample("upsample_linear1d.default", lambda: (r(2, 3, 4), [7], True))
sample("upsample_linear1d_backward.default", lambda: (r(2, 3, 7), [7], [2, 3, 4], False))
sample("upsample_bilinear2d.default", lambda: (r(2, 3, 4, 5), [7, 3], False))
sample("upsample_trilinear3d.default", lambda: (r(1, 2, 3, 4, 2), [4, 3, 5], False))
sample("upsample_trilinear3d_backward.default", lambda: (r(1, 2, 4, 3, 5), [4, 3, 5], [1, 2, 3, 4, 2], True))
for _corners in (True, False):
    for _name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
        sample(f"{_name}.default", lambda corners=_corners: (r(2, 3, 4, 7), [7, 3], corners))
        sample(f"{_name}_backward.default", lambda corners=_corners: (r(2, 3, 7, 3), [7, 3], [2, 3, 4, 7], corners))
sample("upsample_bicubic2d.default", lambda: (r(2, 3, 4, 5), [6, 7], False, 1.5, 1.4))
sample("_upsample_nearest_exact1d.default", lambda: (r(2, 3, 4), [7]))
sample("_upsample_nearest_exact1d_backward.default", lambda: (r(2, 3, 7), [7], [2, 3, 4]))
sample("_upsample_nearest_exact2d.default", lambda: (r(2, 3, 4, 5), [3, 7]))
sample("_upsample_nearest_exact2d_backward.default", lambda: (r(2, 3, 3, 7), [3, 7], [2, 3, 4, 5]))
sample("_upsample_nearest_exact3d.default", lambda: (r(1, 2, 2, 3, 2), [4, 5, 3]))
sample("_upsample_nearest_exact3d_backward.default", lambda: (r(1, 2, 4, 5, 3), [4, 5, 3], [1, 2, 2, 3, 2]))
sample("_adaptive_avg_pool3d.default adaptive_avg_pool3d.default", lambda: (r(2, 3, 4, 3, 5), [2, 3, 4]))
sample("_adaptive_avg_pool3d_backward.default", lambda: (r(2, 3, 2, 3, 4), r(2, 3, 4, 3, 5)))
sample("max_pool3d_with_indices.default", lambda: (r(2, 3, 4, 5, 4), [2, 3, 2], [2, 1, 2], [1, 0, 1]))
sample(
    "max_pool3d_with_indices_backward.default",
    lambda: (
        r(2, 3, 2, 2, 2),
        (x := r(2, 3, 4, 4, 4)),
        [2] * 3,
        [2] * 3,
        [0] * 3,
        [1] * 3,
        False,
        torch.nn.functional.max_pool3d(x, 2, return_indices=True)[1],
    ),
)
for _name in ("reflection", "replication"):
    sample(f"{_name}_pad1d_backward.default", lambda: (r(2, 3, 9), r(2, 3, 5), [1, 3]))
    sample(f"{_name}_pad2d_backward.default", lambda: (r(2, 3, 7, 5), r(2, 3, 4, 5), [0, 0, 2, 1]))
    sample(f"{_name}_pad3d_backward.default", lambda: (r(1, 2, 4, 5, 6), r(1, 2, 3, 3, 3), [1, 2, 2, 0, 0, 1]))

# -- complex numbers
sample("complex.default", lambda: (r(3, 1), r(4)))
sample("complex.default", lambda: (r(3, 4), r(4).sum()))
sample("polar.default", lambda: (p(3, 4), r(3, 4)))
sample("add.Tensor sub.Tensor mul.Tensor div.Tensor", lambda: (z(3, 4), z(4)))
sample("add.Tensor sub.Tensor mul.Tensor", lambda: (r(3, 4), z(4)))
sample("add.Tensor sub.Tensor mul.Tensor div.Tensor", lambda: (z(3, 4), p(3, 1)))
sample("add.Tensor", lambda: (z(3, 4), r(4)), alpha=2.5)
sample("add.Tensor sub.Tensor rsub.Scalar mul.Tensor div.Tensor", lambda: (z(3, 4), 2.5))
sample("reciprocal.default exp.default abs.default angle.default sgn.default", lambda: (z(3, 4),))
sample("_conj_physical.default conj_physical.default", lambda: (z(3, 4),))
sample("pow.Tensor_Scalar", lambda: (z(3, 4), 3))
sample("where.self", lambda: (b(3, 1), z(3, 1), r(4)))
sample("masked_fill.Scalar", lambda: (z(3, 4), b(4), 2.5))
sample("copy.default", lambda: (z(3, 4), z(4)))
sample("copy.default", lambda: (z(3, 4), r(3, 1)))
sample("mm.default", lambda: (z(3, 4), z(4, 2)))
sample("bmm.default", lambda: (z(2, 3, 4), r(2, 4, 2).to(torch.complex128)))
sample("constant_pad_nd.default", lambda: (z(3, 4), [1, 2]))

# -- Fourier transforms
for _way in (0, 1, 2):
    sample("_fft_r2c.default", lambda way=_way: (r(2, 3, 5), [1, 2], way, True))
    sample("_fft_r2c.default", lambda way=_way: (r(2, 4, 6), [1], way, False))
    sample("_fft_c2c.default", lambda way=_way: (z(2, 3, 4), [1, 2], way, True))
    sample("_fft_c2c.default", lambda way=_way: (z(2, 3), [0], way, False))
    sample("_fft_c2r.default", lambda way=_way: (z(2, 3, 4), [1, 2], way, 6))
    sample("_fft_c2r.default", lambda way=_way: (z(2, 3), [1], way, 5))

# -- grids
for _mode in (0, 1, 2):
    sample("grid_sampler_2d.default", lambda mode=_mode: (r(2, 3, 4, 5), p(2, 3, 2, 2) * 2 - 1, mode, 0, False))
    sample(
        "grid_sampler_2d_backward.default",
        lambda mode=_mode: (r(2, 3, 3, 2), r(2, 3, 4, 5), p(2, 3, 2, 2) * 2 - 1, mode, 1, True, [True, True]),
    )
sample("grid_sampler_3d.default", lambda: (r(2, 3, 2, 4, 3), r(2, 3, 2, 1, 3), 0, 2, False))
sample(
    "grid_sampler_3d_backward.default",
    lambda: (r(2, 3, 3, 2, 1), r(2, 3, 2, 4, 3), r(2, 3, 2, 1, 3), 0, 0, False, [True, True]),
)
