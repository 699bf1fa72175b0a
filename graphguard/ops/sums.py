"""Operators that sum, order or normalise along dims: reductions, contractions, norms, losses, attention, convolutions."""

from __future__ import annotations

from functools import partial
from typing import Final

from graphguard.ops.spec import Family, Traits

_Along: Final = partial(Traits, along=True, dim_at=1, keepdim_at=2)

REDUCTIONS: Final[Family] = {
    "sum.dim_IntList": _Along(reduces="sum", sums=True),
    "sum": Traits(reduces="sum", sums=True),
    "mean.dim": _Along(reduces="mean", poles=True),
    "mean": Traits(reduces="mean", poles=True),
    "amax": _Along(reduces="max", exact="chosen"),
    "max": Traits(reduces="max", exact="chosen"),
    "max.dim": Traits(reduces="max", exact="chosen", dim_at=1, places=1),
    "amin": _Along(reduces="min", exact="chosen"),
    "min": Traits(reduces="min", exact="chosen"),
    "min.dim": Traits(reduces="min", exact="chosen", dim_at=1, places=1),
    "aminmax": Traits(exact="chosen"),
    "argmax argmin": _Along(steps=True, places=0),
    "any.dim": _Along(reduces="any"),
    "any.default,dims": Traits(reduces="any"),
    "all.dim": _Along(reduces="all"),
    "all.default,dims": Traits(reduces="all"),
    "prod.dim_int": _Along(reduces="prod"),
    "prod": Traits(reduces="prod"),
    "count_nonzero.default,dim_IntList": Traits(reduces="count"),
    "var.correction,default,dim std.correction,default,dim var_mean.correction std_mean.correction": Traits(
        reduces="spread", poles=True
    ),
    "linalg_vector_norm norm.Scalar,ScalarOpt_dim,ScalarOpt_dtype,ScalarOpt_dim_dtype": Traits(reduces="norm"),
    "nansum logsumexp special_logsumexp trace cumsum cumprod logcumsumexp histc": Traits(),
    "cummax cummin": Traits(exact="chosen"),
}
ORDERS: Final[Family] = {
    "topk": Traits(steps=True, ties=True, dim_at=2, places=1),
    "kthvalue": Traits(steps=True, ties=True, dim_at=2),
    "sort argsort": Traits(steps=True, ties=True, dim_at=1),
    "sort.stable argsort.stable": Traits(steps=True, ties=True),
    "median.dim mode": Traits(steps=True, ties=True, dim_at=1),
    "nanmedian.dim": Traits(ties=True, dim_at=1),
    "median": Traits(steps=True),
    "nanmedian searchsorted.Tensor bucketize.Tensor": Traits(),
}
CONTRACTIONS: Final[Family] = {
    "mm": Traits(einsum=("ij", "jk", "ik"), contracts=True, sums=True),
    "bmm": Traits(einsum=("bij", "bjk", "bik"), contracts=True, sums=True),
    "addmm": Traits(einsum=("ij", "jk", "ik"), product="aten.mm.default", contracts=True, sums=True),
    "baddbmm": Traits(einsum=("bij", "bjk", "bik"), product="aten.bmm.default", contracts=True, sums=True),
    "mv convolution_backward gg:sdpa gg:sdpa_backward": Traits(contracts=True),
    "convolution": Traits(contracts=True, sums=True),
    """
    dot vdot inner outer ger addmv addr addbmm matmul linear linear_backward einsum tensordot kron _trilinear cdist _cdist_forward _cdist_backward
    mm.dtype bmm.dtype _int_mm _scaled_mm _grouped_mm _convolution convolution_overrideable im2col col2im _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward
    """: Traits(),
}
NORMALISATIONS: Final[Family] = {
    "_softmax _log_softmax softmax.int": Traits(along=True, dim_at=1),
    "_softmax_backward_data _log_softmax_backward_data": Traits(along=True, dim_at=2),
    """
    special_softmax _safe_softmax log_softmax.int special_log_softmax native_layer_norm layer_norm native_layer_norm_backward rms_norm _fused_rms_norm
    _fused_rms_norm_backward native_group_norm group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward
    _native_batch_norm_legit_functional _native_batch_norm_legit.default,no_stats _native_batch_norm_legit_no_training _weight_norm_interface
    _weight_norm_interface_backward
    """: Traits(),
}
POOLS: Final[Family] = {
    """
    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
    _adaptive_avg_pool3d_backward adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool2d_backward
    adaptive_max_pool3d adaptive_max_pool3d_backward fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d
    fractional_max_pool3d_backward max_unpool2d max_unpool3d max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
    max_pool3d_with_indices_backward
    """: Traits(),
    " ".join(
        f"{name}{gradient}"
        for gradient in ("", "_backward")
        for name in (
            *(f"{kind}{dims}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)),
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
            *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler_2d", "grid_sampler_3d"),
        )
    ): Traits(),
}
LINEAR_ALGEBRA: Final[Family] = {
    """
    linalg_inv_ex _linalg_solve_ex linalg_lu_factor_ex linalg_lu_solve linalg_cholesky_ex linalg_solve_triangular linalg_qr _linalg_eigh _linalg_svd
    _linalg_det _linalg_slogdet linalg_pinv.atol_rtol_tensor cholesky cholesky_solve cholesky_inverse linalg_cross linalg_matrix_exp geqrf
    linalg_householder_product ormqr linalg_ldl_factor_ex linalg_ldl_solve linalg_lu triangular_solve lu_unpack
    """: Traits(),
}
OPTIMISERS: Final[Family] = {
    """
    _fused_adam.default,tensor_lr _fused_adamw.default,tensor_lr _fused_sgd.default,tensor_lr _fused_adagrad.default,tensor_lr
    """: Traits(),
}
FAMILIES: Final = (REDUCTIONS, ORDERS, CONTRACTIONS, NORMALISATIONS, POOLS, LINEAR_ALGEBRA, OPTIMISERS)
