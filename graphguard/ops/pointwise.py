"""Operators that make every element of the result of those in its place."""

from __future__ import annotations

from functools import partial
from typing import Final

from graphguard.ops.spec import Family, Traits

_Each: Final = partial(Traits, pointwise=True)

ARITHMETIC: Final[Family] = {
    "add.Tensor,Scalar": _Each(symbol="+", shifts=True),
    "sub.Tensor,Scalar subtract.Tensor": _Each(symbol="-", shifts=True),
    "rsub.Tensor,Scalar": _Each(shifts=True),
    "mul.Tensor,Scalar multiply.Tensor": _Each(symbol="*"),
    "div.Tensor,Scalar divide.Tensor true_divide.Tensor": _Each(symbol="/", poles=True),
    "div.Tensor_mode,Scalar_mode addcdiv reciprocal sqrt rsqrt pow.Tensor_Scalar,Scalar,Tensor_Tensor": _Each(
        poles=True
    ),
    """
    floor_divide.default,Scalar remainder.Scalar,Tensor fmod.Scalar,Tensor addcmul lerp.Scalar,Tensor square bitwise_left_shift.Tensor,Tensor_Scalar
    __lshift__.Tensor,Scalar bitwise_right_shift.Tensor,Tensor_Scalar __rshift__.Tensor,Scalar frac
    """: _Each(),
    "neg negative abs maximum max.other fmax minimum min.other fmin": _Each(exact="chosen"),
    "sign floor ceil round": _Each(exact="written", steps=True),
    "sgn trunc fix": _Each(exact="written"),
    "round.decimals": _Each(steps=True),
    "clamp.default,Tensor clip.default,Tensor clamp_min.default,Tensor clamp_max.default,Tensor": _Each(
        exact="written", bounds=True
    ),
}
FUNCTIONS: Final[Family] = {
    "exp expm1 sigmoid tanh cosh sinh logaddexp": _Each(exponential=True),
    "sigmoid_backward tanh_backward": _Each(exponential=True),
    "log log2 log10": _Each(poles=True, of_fractions=True),
    "log1p": _Each(poles=True, of_fractions=True, exponential=True),
    "logit acos asin atanh erfinv special_entr": _Each(of_fractions=True),
    """
    exp2 logaddexp2 xlogy.Tensor,Scalar_Other,Scalar_Self special_xlog1py.default,other_scalar,self_scalar logit_backward hypot deg2rad rad2deg erf erfc
    sin cos tan atan asinh acosh lgamma atan2 hlo:logistic digamma polygamma mvlgamma igamma igammac sinc signbit angle frexp.Tensor ldexp.Tensor
    heaviside copysign.Tensor,Scalar gcd lcm i0 special_i0e special_i1 special_i1e special_erfcx special_log_ndtr special_ndtri
    special_zeta.default,self_scalar,other_scalar special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_spherical_bessel_j0 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    """: _Each(),
    " ".join(
        f"special_{polynomial}.default,n_scalar,x_scalar"
        for polynomial in (
            *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
            *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
        )
    ): _Each(),
}
ACTIVATIONS: Final[Family] = {
    "relu": _Each(exact="chosen"),
    "relu6 threshold_backward": _Each(exact="written"),
    "hardtanh threshold": _Each(exact="written", bounds=True),
    "log_sigmoid log_sigmoid_forward silu softplus mish gelu": _Each(exponential=True),
    "log_sigmoid_backward silu_backward softplus_backward mish_backward gelu_backward": _Each(exponential=True),
    """
    hardtanh_backward _add_relu.Tensor softshrink softshrink_backward hardshrink hardshrink_backward leaky_relu leaky_relu_backward elu elu_backward celu
    selu hardsigmoid hardsigmoid_backward hardswish hardswish_backward native_dropout_backward
    """: _Each(),
    # One slope a channel, and halves of a dim.
    "prelu _prelu_kernel _prelu_kernel_backward glu glu_backward": Traits(),
}
TRUTH: Final[Family] = {
    "lt.Tensor,Scalar less.Tensor,Scalar": _Each(symbol="<", steps=True),
    "le.Tensor,Scalar less_equal.Tensor,Scalar": _Each(symbol="<=", steps=True),
    "gt.Tensor,Scalar greater.Tensor,Scalar": _Each(symbol=">", steps=True),
    "ge.Tensor,Scalar greater_equal.Tensor,Scalar": _Each(symbol=">=", steps=True),
    "eq.Tensor,Scalar": _Each(symbol="=="),
    "ne.Tensor,Scalar": _Each(symbol="!="),
    "isnan isinf isposinf isneginf isfinite": _Each(asks_finite=True),
    """
    logical_not bitwise_not logical_and logical_or logical_xor nan_to_num gg:assume bitwise_and.Tensor,Scalar __and__.Tensor,Scalar
    bitwise_or.Tensor,Scalar __or__.Tensor,Scalar bitwise_xor.Tensor,Scalar __xor__.Tensor isin.Tensor_Tensor,Tensor_Scalar,Scalar_Tensor
    """: _Each(),
    "where.self,ScalarSelf,Scalar": _Each(mask_at=0),
    "where.ScalarOther": _Each(mask_at=0, number_at=2),
    "masked_fill.Scalar": _Each(mask_at=1, number_at=2),
    "masked_fill.Tensor": _Each(mask_at=1),
    "equal allclose is_nonzero _local_scalar_dense _assert_async.msg": Traits(),
}
CASTS: Final[Family] = {
    "_to_copy to.dtype type_as prims:convert_element_type.default gg:rounded": Traits(casts=True),
    "_autocast_to_reduced_precision _autocast_to_full_precision": Traits(),
    "view.dtype": Traits(),  # other numbers, of the same bits
}
FAMILIES: Final = (ARITHMETIC, FUNCTIONS, ACTIVATIONS, TRUTH, CASTS)
