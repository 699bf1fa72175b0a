"""Random numbers: unknowns named by generator, call, distribution and shape."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import Number, is_number, plus, scaled, times
from graphguard.rules.basis.registry import Call, choosing
from graphguard.rules.basis.scalars import exact, inverse


def uniform_draw(a: Algebra[V], call: Call) -> V:
    """Numbers in [0, 1), in the shape of the result."""
    return a.random(call.draw, "uniform", _width(call), call.shape(), "float")


def normal_draw(a: Algebra[V], call: Call) -> V:
    """Normal numbers of mean 0 and deviation 1, in the shape of the result."""
    return a.random(call.draw, "normal", _width(call), call.shape(), "float")


def _width(call: Call) -> tuple[str, ...]:
    """Numbers in float64 are others than those in narrower types, which are one another's roundings."""
    return ("float64",) if call.type().dtype == "float64" else ()


@choosing("aten.rand.default", "aten.rand_like.default", "aten.rand.generator")
def rand(a: Algebra[V], size: object, *, call: Call, **options: object) -> V:
    """Uniform draws in [0, 1)"""
    return uniform_draw(a, call)


@choosing("aten.uniform.default")
def uniform(a: Algebra[V], self: V, from_: Number = 0.0, to: Number = 1.0, *, call: Call, **options: object) -> V:
    """out = from + (to - from) u, u uniform in [0, 1)"""
    low, high = exact(options.get("from", from_)), exact(to)  # type: ignore[arg-type]
    return plus(a, scaled(a, uniform_draw(a, call), high - low), low)


@choosing("aten.randn.default", "aten.randn_like.default", "aten.randn.generator")
def randn(a: Algebra[V], size: object, *, call: Call, **options: object) -> V:
    """Normal draws of mean 0 and deviation 1"""
    return normal_draw(a, call)


@choosing("aten.normal_functional.default")
def normal_functional(
    a: Algebra[V], self: V, mean: Number = 0.0, std: Number = 1.0, *, call: Call, **options: object
) -> V:
    """out = mean + std n, n normal of mean 0 and deviation 1"""
    return normal(a, mean, std, call=call)


@choosing("aten.normal.float_float")
def normal(
    a: Algebra[V], mean: Number = 0.0, std: Number = 1.0, size: object = (), *, call: Call, **options: object
) -> V:
    """out = mean + std n, n normal of mean 0 and deviation 1"""
    return plus(a, scaled(a, normal_draw(a, call), exact(std)), mean)


@choosing("aten.randint.low", "aten.randint.low_generator", "aten.randint_like.low_dtype")
def randint_low(a: Algebra[V], low: Any, high: int, *size: Any, call: Call, **options: object) -> V:
    """Uniform draws of the integers low, ..., high - 1"""
    if not is_number(low):
        low, high = high, size[0]
    return plus(a, a.random(call.draw, "randint", (0, int(high) - int(low)), call.shape(), call.kind()), int(low))


@choosing("aten.randint.default", "aten.randint.generator")
def randint(a: Algebra[V], high: int, size: Sequence[int], *, call: Call, **options: object) -> V:
    """Uniform draws of the integers 0, ..., high - 1"""
    return a.random(call.draw, "randint", (0, int(high)), call.shape(), call.kind())


@choosing("aten.randperm.default", "aten.randperm.generator")
def randperm(a: Algebra[V], n: int, *, call: Call, **options: object) -> V:
    """A permutation of 0, ..., n - 1"""
    return a.random(call.draw, "randperm", (n,), call.shape(), call.kind())


@choosing("aten.exponential.default")
def exponential(a: Algebra[V], self: V, lambd: Number = 1.0, *, call: Call, **options: object) -> V:
    """out = e / lambd, e drawn with density exp(-e)"""
    return scaled(a, a.random(call.draw, "exponential", (), call.shape(), "float"), inverse(lambd))


@choosing("aten.bernoulli.p", "aten.bernoulli.float")
def bernoulli_p(a: Algebra[V], self: V, p: Number = 0.5, *, call: Call, **options: object) -> V:
    """1 with probability p, else 0"""
    return _kept(a, call, exact(p), call.shape())


@choosing("aten.bernoulli.default", "aten.bernoulli.Tensor")
def bernoulli(a: Algebra[V], self: V, p: V | None = None, *, call: Call, **options: object) -> V:
    """[u < probability], u uniform in [0, 1)"""
    return a.compare("lt", uniform_draw(a, call), self if p is None else p)


def _kept(a: Algebra[V], call: Call, probability: object, shape: tuple[int, ...]) -> V:
    """True with the given probability."""
    return a.random(call.draw, "bernoulli", (probability,), shape, "bool")


@choosing("aten.native_dropout.default")
def native_dropout(a: Algebra[V], input: V, p: Number, train: bool | None, *, call: Call) -> tuple[V, V]:
    """(input mask / (1 - p), mask), mask true with probability 1 - p; without train (input, true)"""
    if train is False or p == 0:
        return input, a.full(input.shape, Fraction(1), "bool")
    mask = _kept(a, call, exact(1 - p), input.shape)
    if p == 1:
        return a.full(input.shape, Fraction(0), "float"), mask
    return times(a, scaled(a, input, inverse(1 - p)), a.number(mask, "float")), mask


@choosing("aten.native_dropout_backward.default")
def native_dropout_backward(a: Algebra[V], grad_output: V, mask: V, scale: Number) -> V:
    """out = grad_output mask scale"""
    return scaled(a, times(a, grad_output, a.number(mask, "float")), exact(scale))


@choosing("aten.dropout.default")
def dropout(a: Algebra[V], input: V, p: Number, train: bool, *, call: Call) -> V:
    """out = input mask / (1 - p), mask true with probability 1 - p; without train input"""
    return native_dropout(a, input, p, train, call=call)[0]
