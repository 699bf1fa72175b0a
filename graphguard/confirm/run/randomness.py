"""Random operators on numbers: what a draw yields depends on generator, call, distribution and shape alone.

Two operators that draw from one distribution at the same call see the same numbers, as in the rules of :mod:`graphguard.rules.elements.random_draws`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import torch

from graphguard.ops import aten

Shape = tuple[int, ...]
Draw = tuple[str, int]


def generator_of(*what: object) -> torch.Generator:
    """A generator whose state is a function of its arguments."""
    seed = int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "little")
    return torch.Generator().manual_seed(seed)


def _uniform(draw: Draw, shape: Shape) -> torch.Tensor:
    return torch.rand(shape, generator=generator_of(draw, "uniform", shape), dtype=torch.float64)


def _normal(draw: Draw, shape: Shape) -> torch.Tensor:
    return torch.randn(shape, generator=generator_of(draw, "normal", shape), dtype=torch.float64)


def _true(draw: Draw, shape: Shape, probability: float) -> torch.Tensor:
    generator = generator_of(draw, "bernoulli", round(probability, 12), shape)
    return torch.rand(shape, generator=generator, dtype=torch.float64) < probability


def _dropout(
    draw: Draw, shape: Shape, x: torch.Tensor, p: float, train: bool | None = True
) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or p == 0:
        return x, torch.ones(shape, dtype=torch.bool)
    kept = _true(draw, shape, 1 - p)
    return (torch.zeros_like(x) if p == 1 else x * kept / (1 - p)), kept


def _between(
    draw: Draw, shape: Shape, _: torch.Tensor, low: float = 0.0, high: float = 1.0, **named: Any
) -> torch.Tensor:
    low = named.get("from", low)
    return low + (named.get("to", high) - low) * _uniform(draw, shape)


def _spread(draw: Draw, shape: Shape, mean: float = 0.0, deviation: float = 1.0, *_: Any) -> torch.Tensor:
    return mean + deviation * _normal(draw, shape)


def _integers(draw: Draw, shape: Shape, low: int, high: int) -> torch.Tensor:
    generator = generator_of(draw, "randint", high - low, shape)
    return low + torch.randint(high - low, shape, generator=generator)


def _exponential(draw: Draw, shape: Shape, _: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    return (
        -torch.log1p(-torch.rand(shape, generator=generator_of(draw, "exponential", shape), dtype=torch.float64)) / rate
    )


Kernel = Callable[..., Any]

#: By operator: a function of the draw, the result's shape and the arguments.
KERNELS: Final[dict[str, Kernel]] = {
    **dict.fromkeys(
        (aten.rand.default, aten.rand_like.default, aten.rand.generator),
        lambda draw, shape, *_, **__: _uniform(draw, shape),
    ),
    **dict.fromkeys(
        (aten.randn.default, aten.randn_like.default, aten.randn.generator),
        lambda draw, shape, *_, **__: _normal(draw, shape),
    ),
    **dict.fromkeys(
        (aten.randint.default, aten.randint.generator),
        lambda draw, shape, high, *_, **__: _integers(draw, shape, 0, high),
    ),
    **dict.fromkeys(
        (aten.randint.low, aten.randint.low_generator),
        lambda draw, shape, low, high, *_, **__: _integers(draw, shape, low, high),
    ),
    aten.randint_like.low_dtype: lambda draw, shape, _, low, high, **__: _integers(draw, shape, low, high),
    aten.uniform.default: _between,
    aten.normal.float_float: _spread,
    aten.normal_functional.default: lambda draw, shape, _, *rest: _spread(draw, shape, *rest),
    aten.exponential.default: _exponential,
    aten.bernoulli.p: lambda draw, shape, _, p=0.5: _true(draw, shape, p),
    aten.bernoulli.default: lambda draw, shape, x: _uniform(draw, shape) < x,
    aten.bernoulli.Tensor: lambda draw, shape, _, p: _uniform(draw, shape) < p,
    aten.native_dropout.default: _dropout,
    aten.dropout.default: lambda draw, shape, *rest: _dropout(draw, shape, *rest)[0],
}
