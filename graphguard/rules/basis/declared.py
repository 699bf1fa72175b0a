"""Operators of which one line says all that is used of them: closed functions of single elements, or of whole dims.

An elementwise operator is a closed function of the elements at one place.  What is *batched* sees the dims with upper-case letters whole and acts alone on every position along those with lower-case
letters; what is *linear* in an argument besides commutes with sums of it (:mod:`graphguard.rules.basis.traits`).  One line for all results, or one for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.traits import Trait, attributes_of, evaluate_trait, parse_trait

#: Functions of single elements, by the operator's name or name and overload.
ELEMENTWISE: Final = """
    digamma polygamma mvlgamma igamma igammac erfinv sinc signbit angle round.decimals frexp.Tensor ldexp.Tensor heaviside
    copysign.Tensor copysign.Scalar gcd lcm i0 special_i0e special_i1 special_i1e special_entr special_erfcx special_log_ndtr special_ndtri special_zeta
    special_zeta.self_scalar special_zeta.other_scalar special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_spherical_bessel_j0
"""
POLYNOMIALS: Final = """
    chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p
"""
#: Functions of whole dims: a line for all results, or one for each.
DIMS: Final[dict[str, str | tuple[str, ...]]] = {
    # matrices
    "cholesky_inverse": "batched(...AB -> ...AB)",
    "geqrf": ("batched(...AB -> ...AB)", "batched(...AB -> ...C)"),
    "linalg_householder_product": "batched(...AB, ...C -> ...AB)",
    "ormqr": "batched(...AB, ...C, ...DE -> ...FG)",
    "linalg_ldl_factor_ex": ("batched(...AB -> ...AB)", "batched(...AB -> ...C)", "batched(...AB -> ...)"),
    "linalg_ldl_solve": "linear(2; ...AB, ...C, ...Dk -> ...Ek)",
    "linalg_lu": ("batched(...AB -> ...CD)", "batched(...AB -> ...CD)", "batched(...AB -> ...CD)"),
    "triangular_solve": ("batched(...AB, ...CD -> ...EF)", "batched(...AB, ...CD -> ...GH)"),
    "lu_unpack": ("batched(...AB, ...C -> ...DE)", "batched(...AB, ...C -> ...DE)", "batched(...AB, ...C -> ...DE)"),
    "_cdist_backward": "batched(...yZ, ...yA, ...ZA, ...yZ -> ...yA)",
    # planes
    "adaptive_max_pool2d": "batched(...AB -> ...CD)",
    "adaptive_max_pool2d_backward": "linear(0; ...CD, ...AB, ...EF -> ...GH)",
    "adaptive_max_pool3d": "batched(...ABC -> ...DEF)",
    "adaptive_max_pool3d_backward": "linear(0; ...DEF, ...ABC, ...GHI -> ...JKL)",
    "fractional_max_pool2d": "batched(ncAB, ncC -> ncDE)",
    "fractional_max_pool2d_backward": "linear(0; ncCD, ncAB, ncEF -> ncGH)",
    "fractional_max_pool3d": "batched(ncABC, ncD -> ncEFG)",
    "fractional_max_pool3d_backward": "linear(0; ncDEF, ncABC, ncGHI -> ncJKL)",
    "max_unpool2d": "linear(0; ...AB, ...CD -> ...EF)",
    "max_unpool3d": "linear(0; ...ABC, ...DEF -> ...GHI)",
}


def traits_of(lines: str | tuple[str, ...]) -> tuple[Trait, ...]:
    """One trait for all results, or one for each."""
    return tuple(map(parse_trait, (lines,) if isinstance(lines, str) else lines))


def _closed(op: str, traits: tuple[Trait, ...], meaning: str) -> Callable[..., Any]:
    def closed(a: Algebra[V], *arguments: Any, call: Call, **options: Any) -> tuple[V, ...]:
        operands = [v for v in (*arguments, *options.values()) if hasattr(v, "kind")]
        return evaluate_trait(a, traits, op, call, operands, attributes_of(call.node))

    closed.__doc__ = meaning
    closed.__name__ = op
    return closed


def _declare(name: str, lines: str | tuple[str, ...]) -> None:
    op = f"aten.{name}" if "." in name else f"aten.{name}.default"
    said = (lines,) if isinstance(lines, str) else lines
    rule(op)(_closed(op, traits_of(lines), f"Closed, {'; '.join(dict.fromkeys(said))}"))


for _name in ELEMENTWISE.split():
    _declare(_name, "elementwise")
for _name in POLYNOMIALS.split():
    for _overload in ("", ".n_scalar", ".x_scalar"):
        _declare(f"special_{_name}{_overload}", "elementwise")
for _name, _lines in DIMS.items():
    _declare(_name, _lines)
