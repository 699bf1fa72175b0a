"""Operators of which one line says all: what the line says holds of PyTorch, at every place where it may be cut, and a part of the normal form is the form of the part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.rules import evaluate_node
from graphguard.rules.basis.declared import DIMS, ELEMENTWISE, POLYNOMIALS, traits_of
from graphguard.rules.basis.traits import Trait

from .bench import operator, tensors_of
from .samples import definite, i, p, r

Operands = Callable[[], tuple[Any, ...]]
POSITIVE = (
    "digamma mvlgamma igamma igammac special_zeta special_entr special_ndtri erfinv special_bessel_y0 special_bessel_y1"
)
BESSEL_K = "special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1"
#: Operands of elementwise operators that do not take one tensor of any numbers.
OPERANDS: dict[str, Operands] = {
    "polygamma": lambda: (2, p(4, 6)),
    "mvlgamma": lambda: (p(4, 6) + 2, 2),
    "igamma": lambda: (p(4, 6), p(6)),
    "igammac": lambda: (p(4, 6), p(4, 1)),
    "round.decimals": lambda: (r(4, 6), {"decimals": 2}),
    "ldexp.Tensor": lambda: (r(4, 6), i(5, 6)),
    "heaviside": lambda: (r(4, 6), r(6)),
    "copysign.Tensor": lambda: (r(4, 6), r(4, 1)),
    "copysign.Scalar": lambda: (r(4, 6), -2.0),
    "gcd": lambda: (i(30, 4, 6), i(30, 6)),
    "lcm": lambda: (i(30, 4, 6), i(30, 6)),
    "special_zeta": lambda: (p(4, 6) + 2, p(6) + 1),
    "special_zeta.self_scalar": lambda: (2.5, p(4, 6) + 1),
    "special_zeta.other_scalar": lambda: (p(4, 6) + 2, 1.5),
}
for _name in (*POSITIVE.split(), *BESSEL_K.split()):
    OPERANDS.setdefault(_name, lambda: (p(4, 6),))
for _name in POLYNOMIALS.split():
    OPERANDS[f"special_{_name}"] = lambda: (p(4, 6), i(4, 6))
    OPERANDS[f"special_{_name}.n_scalar"] = lambda: (p(4, 6), 3)
    OPERANDS[f"special_{_name}.x_scalar"] = lambda: (0.4, i(4, 4, 6))


def _pooled(dims: int) -> tuple[Any, ...]:
    x = r(2, 4, *[6] * dims)
    out, places = getattr(torch.ops.aten, f"adaptive_max_pool{dims}d")(x, [3] * dims)
    return torch.randn_like(out), x, places


def _drawn(dims: int, back: bool) -> tuple[Any, ...]:
    x, draws, sizes = r(2, 4, *[6] * dims), p(2, 4, dims), ([2] * dims, [3] * dims)
    if not back:
        return x, *sizes, draws
    out, places = getattr(torch.ops.aten, f"fractional_max_pool{dims}d")(x, *sizes, draws)
    return torch.randn_like(out), x, *sizes, places


def _unpooled(dims: int) -> tuple[Any, ...]:
    out, places = getattr(torch.nn.functional, f"max_pool{dims}d")(r(2, 4, *[4] * dims), 2, return_indices=True)
    return (out, places, [4] * dims) if dims == 2 else (out, places, [4] * dims, [2] * dims, [0] * dims)


#: Operands of what acts on whole dims.
WHOLE: dict[str, Operands] = {
    "cholesky_inverse": lambda: (torch.linalg.cholesky(definite(4, 3)),),
    "geqrf": lambda: (r(4, 3, 3),),
    "linalg_householder_product": lambda: (r(4, 5, 3), r(4, 3)),
    "ormqr": lambda: (r(4, 5, 3), r(4, 3), r(4, 5, 2)),
    "linalg_ldl_factor_ex": lambda: (definite(4, 3),),
    "linalg_ldl_solve": lambda: (*torch.linalg.ldl_factor(definite(4, 3)), r(4, 3, 6)),
    "linalg_lu": lambda: (r(4, 3, 3),),
    "triangular_solve": lambda: (r(4, 3, 2), definite(4, 3)),
    "lu_unpack": lambda: torch.linalg.lu_factor(r(4, 3, 3)),
    "_cdist_backward": lambda: (r(4, 6, 5), x := r(4, 6, 3), y := r(4, 5, 3), 1.5, torch.cdist(x, y, 1.5)),
    "adaptive_max_pool2d": lambda: (r(4, 2, 6, 5), [3, 2]),
    "adaptive_max_pool3d": lambda: (r(4, 2, 4, 6, 5), [2, 3, 2]),
    "adaptive_max_pool2d_backward": lambda: _pooled(2),
    "adaptive_max_pool3d_backward": lambda: _pooled(3),
    "fractional_max_pool2d": lambda: _drawn(2, back=False),
    "fractional_max_pool3d": lambda: _drawn(3, back=False),
    "fractional_max_pool2d_backward": lambda: _drawn(2, back=True),
    "fractional_max_pool3d_backward": lambda: _drawn(3, back=True),
    "max_unpool2d": lambda: _unpooled(2),
    "max_unpool3d": lambda: _unpooled(3),
}
POLYNOMIAL_OVERLOADS = [
    f"special_{name}{kind}" for name in POLYNOMIALS.split() for kind in ("", ".n_scalar", ".x_scalar")
]
ELEMENTWISE_OPS = [*ELEMENTWISE.split(), *POLYNOMIAL_OVERLOADS]


def operands_of(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    make = OPERANDS.get(name) or WHOLE.get(name) or (lambda: (r(4, 6),))
    args = make()
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})


def full_name(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


def run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    kept = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    return tensors_of(operator(full_name(name))(*kept, **kwargs))


def cut(v: Any, dim: int | None, part: slice) -> Any:
    return v if dim is None or not isinstance(v, torch.Tensor) else v.narrow(dim, part.start, part.stop - part.start)


Cut = tuple[list[int | None], int, int]
"""Where every tensor operand is cut, where the result, and how long these dims are."""


def cuts_of_elements(args: tuple[Any, ...], result: torch.Tensor) -> Iterator[Cut]:
    rank = result.dim()
    for dim, extent in enumerate(result.shape):
        own = [(v, dim - rank + v.dim()) for v in args if isinstance(v, torch.Tensor)]
        yield [place if place >= 0 and v.shape[place] == extent else None for v, place in own], dim, extent


def cuts_of_letters(trait: Trait, tensors: list[torch.Tensor], result: torch.Tensor) -> Iterator[Cut]:
    before = {
        v.dim() - len(letters.removeprefix("..."))
        for v, letters in zip(tensors, trait.inputs, strict=True)
        if "." in letters
    }
    lead = "αβγδ"[: before.pop()] if before else ""
    inputs, out = [letters.replace("...", lead) for letters in trait.inputs], trait.out.replace("...", lead)
    for dim, letter in enumerate(out):
        if letter.islower():
            yield [group.index(letter) if letter in group else None for group in inputs], dim, result.shape[dim]


def cuts(name: str, args: tuple[Any, ...], results: list[torch.Tensor]) -> Iterator[tuple[int, Cut]]:
    traits = traits_of(DIMS.get(name, "elementwise"))
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    for place, result in enumerate(results):
        trait = traits[place if len(traits) > 1 else 0]
        found = (
            cuts_of_elements(args, result) if trait.form == "elementwise" else cuts_of_letters(trait, tensors, result)
        )
        yield from ((place, one) for one in found)


def parted(args: tuple[Any, ...], dims: list[int | None], part: slice) -> tuple[Any, ...]:
    places = iter(dims)
    return tuple(cut(arg, next(places), part) if isinstance(arg, torch.Tensor) else arg for arg in args)


@pytest.mark.parametrize("name", [*ELEMENTWISE_OPS, *DIMS])
def test_pytorch_does_what_the_line_says(name: str) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        args, kwargs = operands_of(name)
        whole = run(name, args, kwargs)
        found = list(cuts(name, args, whole))
        assert found
        for place, (dims, dim, extent) in found:
            middle = 1 + seed % (extent - 1) if extent > 1 else 1
            for part in (slice(0, middle), slice(middle, extent)):
                if part.start < part.stop:
                    made = run(name, parted(args, dims, part), kwargs)[place]
                    torch.testing.assert_close(made, cut(whole[place], dim, part), equal_nan=True)


@pytest.mark.parametrize("name", [name for name in DIMS if traits_of(DIMS[name])[0].form == "linear"])
def test_what_is_linear_is_so(name: str) -> None:
    torch.manual_seed(1)
    args, kwargs = operands_of(name)
    tensors = [place for place, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    place = tensors[traits_of(DIMS[name])[0].argument]
    other = torch.randn_like(args[place])
    first, second, both = (
        run(name, (*args[:place], v, *args[place + 1 :]), kwargs)[0]
        for v in (args[place], other, args[place] + 2 * other)
    )
    torch.testing.assert_close(both, first + 2 * second)


@pytest.mark.parametrize("name", [*ELEMENTWISE_OPS, *DIMS])
def test_a_part_of_the_form_is_the_form_of_the_part(name: str) -> None:
    torch.manual_seed(1)
    args, kwargs = operands_of(name)
    results = run(name, args, kwargs)
    algebra = NormalForm()
    leaves = []
    for place, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            kind = "float" if arg.is_floating_point() else "int"
            leaves.append(algebra.leaf(f"x{place}", tuple(arg.shape), kind))
    whole = evaluated(algebra, name, args, kwargs, leaves, results)
    algebra.universe.specifying = False
    for place, (dims, dim, extent) in cuts(name, args, results):
        part = slice(0, (extent + 1) // 2)
        parts = [
            v if at is None else algebra.slice(v, at, part.start, part.stop) for v, at in zip(leaves, dims, strict=True)
        ]
        outs = run(name, parted(args, dims, part), kwargs)
        made = evaluated(algebra, name, parted(args, dims, part), kwargs, parts, outs)[place]
        wanted = algebra.slice(whole[place], dim, part.start, part.stop)
        assert equal(algebra.universe, made, wanted), (name, place, dim)


def evaluated(
    algebra: NormalForm, name: str, args: Any, kwargs: Any, values: list[Any], results: list[torch.Tensor]
) -> tuple[Any, ...]:
    """What the normal form makes of a call, which does not stay closed as a whole."""
    types: dict[Var, TensorType] = {}

    def variable(tensor: torch.Tensor) -> Var:
        var = Var(len(types))
        types[var] = TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        return var

    named = [
        variable(arg) if isinstance(arg, torch.Tensor) else tuple(arg) if isinstance(arg, list) else arg for arg in args
    ]
    held = dict(zip([arg for arg in named if isinstance(arg, Var)], values, strict=True))
    outs = tuple(map(variable, results))
    node = Node(full_name(name), tuple(named), kwargs, outs)
    notes: list[str] = []
    made = evaluate_node(algebra, node, Graph({}, {}, (node,), types, {}), held, notes.append)
    assert notes == []
    return made
