"""Normalisation layers and their gradients.  eps is added to the variance, or to the mean of squares, under the root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from graphguard.relations.algebra import Algebra, Scalar, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, minus, plus, scaled, square, times
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.scalars import exact
from graphguard.rules.lines.reductions import mean, total

FLOAT32_EPSILON = 2.0**-23


def inverse_root(a: Algebra[V], v: V, eps: Number) -> V:
    """1 / sqrt(v + eps)."""
    return a.power(plus(a, v, eps), Fraction(-1, 2))


def moments(a: Algebra[V], v: V, dims: Sequence[int], eps: Number) -> tuple[V, V, V]:
    """Mean, v - mean, and 1 / sqrt(variance + eps), over dims that are kept."""
    middle = mean(a, v, dims, True)
    centred = minus(a, v, middle)
    return middle, centred, inverse_root(a, mean(a, square(a, centred), dims, True), eps)


def affine(a: Algebra[V], v: V, weight: V | None, bias: V | None) -> V:
    """v weight + bias."""
    result = v if weight is None else times(a, v, weight)
    return result if bias is None else plus(a, result, bias)


@rule("aten.native_layer_norm.default")
def native_layer_norm(
    a: Algebra[V], input: V, normalized_shape: Sequence[int], weight: V | None, bias: V | None, eps: Number
) -> tuple[V, V, V]:
    """((input - mean) rstd weight + bias, mean, rstd), rstd = 1 / sqrt(var + eps), over the dims of normalized_shape"""
    rank = len(input.shape)
    dims = range(rank - len(normalized_shape), rank)
    middle, centred, rstd = moments(a, input, dims, eps)
    out = affine(a, times(a, centred, rstd), weight, bias)
    return out, middle, rstd


@rule("aten.layer_norm.default")
def layer_norm(
    a: Algebra[V],
    input: V,
    normalized_shape: Sequence[int],
    weight: V | None = None,
    bias: V | None = None,
    eps: Number = 1e-5,
    cudnn_enable: bool = True,
) -> V:
    """out = (input - mean) / sqrt(var + eps) weight + bias"""
    return native_layer_norm(a, input, normalized_shape, weight, bias, eps)[0]


def normalised_gradient(
    a: Algebra[V], gradient: V, normalised: V, rstd: V, dims: Sequence[int], centred: bool = True
) -> V:
    """rstd (g - mean g - n mean(g n)); without centring the middle term is absent."""
    inner = times(a, normalised, mean(a, times(a, gradient, normalised), dims, True))
    rest = minus(a, gradient, inner)
    if centred:
        rest = minus(a, rest, mean(a, gradient, dims, True))
    return times(a, rstd, rest)


@rule("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    a: Algebra[V],
    grad_out: V,
    input: V,
    normalized_shape: Sequence[int],
    mean: V,
    rstd: V,
    weight: V | None,
    bias: V | None,
    output_mask: Sequence[bool],
) -> list[V | None]:
    """With n = (input - mean) rstd and g = grad_out weight: rstd (g - mean g - n mean(g n)); sum grad_out n; sum grad_out"""
    rank, inner = len(input.shape), len(normalized_shape)
    dims, lead = range(rank - inner, rank), range(rank - inner)
    normalised = times(a, minus(a, input, mean), rstd)
    gradient = grad_out if weight is None else times(a, grad_out, weight)
    return [
        normalised_gradient(a, gradient, normalised, rstd, dims) if output_mask[0] else None,
        total(a, times(a, grad_out, normalised), lead, False) if output_mask[1] else None,
        total(a, grad_out, lead, False) if output_mask[2] else None,
    ]


@rule("aten.rms_norm.default")
def rms_norm(
    a: Algebra[V],
    input: V,
    normalized_shape: Sequence[int],
    weight: V | None = None,
    eps: float | None = None,
) -> V:
    """out = input / sqrt(mean input^2 + eps) weight"""
    return fused_rms_norm(a, input, normalized_shape, weight, eps)[0]


@rule("aten._fused_rms_norm.default")
def fused_rms_norm(
    a: Algebra[V], input: V, normalized_shape: Sequence[int], weight: V | None, eps: float | None
) -> tuple[V, V]:
    """(input rstd weight, rstd), rstd = 1 / sqrt(mean input^2 + eps)"""
    rank = len(input.shape)
    dims = range(rank - len(normalized_shape), rank)
    rstd = inverse_root(a, mean(a, square(a, input), dims, True), FLOAT32_EPSILON if eps is None else eps)
    return affine(a, times(a, input, rstd), weight, None), rstd


@rule("aten._fused_rms_norm_backward.default")
def fused_rms_norm_backward(
    a: Algebra[V],
    grad_out: V,
    input: V,
    normalized_shape: Sequence[int],
    rstd: V,
    weight: V | None,
    output_mask: Sequence[bool],
) -> list[V | None]:
    """With n = input rstd and g = grad_out weight: rstd (g - n mean(g n)); sum grad_out n"""
    rank, inner = len(input.shape), len(normalized_shape)
    dims = range(rank - inner, rank)
    normalised = times(a, input, rstd)
    gradient = grad_out if weight is None else times(a, grad_out, weight)
    return [
        normalised_gradient(a, gradient, normalised, rstd, dims, centred=False) if output_mask[0] else None,
        total(a, times(a, grad_out, normalised), range(rank - inner), False) if output_mask[1] else None,
    ]


def _per_channel(a: Algebra[V], v: V, rank: int) -> V:
    """A vector of channels as a tensor that is broadcast over all dims but dim 1."""
    return a.reshape(v, (1, v.shape[0], *(1 for _ in range(rank - 2))))


def _groups(a: Algebra[V], v: V, n: int, group: int) -> V:
    """v as (n, groups, elements of a group)."""
    return a.reshape(v, (n, group, math.prod(v.shape) // max(n * group, 1)))


@rule("aten.native_group_norm.default")
def native_group_norm(
    a: Algebra[V], input: V, weight: V | None, bias: V | None, N: int, C: int, HxW: int, group: int, eps: Number
) -> tuple[V, V, V]:
    """((input - mean) rstd weight + bias, mean, rstd) per group of channels, weight and bias per channel"""
    groups = _groups(a, input, N, group)
    middle, centred, rstd = moments(a, groups, [2], eps)
    out = a.reshape(times(a, centred, rstd), input.shape)
    scale, shift = (None if v is None else _per_channel(a, v, len(input.shape)) for v in (weight, bias))
    return affine(a, out, scale, shift), a.reshape(middle, (N, group)), a.reshape(rstd, (N, group))


@rule("aten.group_norm.default")
def group_norm(
    a: Algebra[V],
    input: V,
    num_groups: int,
    weight: V | None = None,
    bias: V | None = None,
    eps: Number = 1e-5,
    cudnn_enabled: bool = True,
) -> V:
    """out = (input - mean) / sqrt(var + eps) weight + bias, per group of channels"""
    n, channels = input.shape[:2]
    return native_group_norm(a, input, weight, bias, n, channels, 0, num_groups, eps)[0]


@rule("aten.native_group_norm_backward.default")
def native_group_norm_backward(
    a: Algebra[V],
    grad_out: V,
    input: V,
    mean: V,
    rstd: V,
    weight: V | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> list[V | None]:
    """As for layer norm, per group; weight and bias gradients summed per channel"""
    rank = len(input.shape)
    middle, spread = (a.reshape(v, (N, group, 1)) for v in (mean, rstd))
    normalised = times(a, minus(a, _groups(a, input, N, group), middle), spread)
    whole = a.reshape(normalised, input.shape)
    gradient = grad_out if weight is None else times(a, grad_out, _per_channel(a, weight, rank))
    inner = normalised_gradient(a, _groups(a, gradient, N, group), normalised, spread, [2])
    others = [0, *range(2, rank)]
    return [
        a.reshape(inner, input.shape) if output_mask[0] else None,
        total(a, times(a, grad_out, whole), others, False) if output_mask[1] else None,
        total(a, grad_out, others, False) if output_mask[2] else None,
    ]


def _batch_norm(
    a: Algebra[V],
    v: V,
    weight: V | None,
    bias: V | None,
    middle: V,
    rstd: V,
) -> V:
    rank = len(v.shape)
    scale, shift = (None if x is None else _per_channel(a, x, rank) for x in (weight, bias))
    normalised = times(a, minus(a, v, _per_channel(a, middle, rank)), _per_channel(a, rstd, rank))
    return affine(a, normalised, scale, shift)


def _updated(a: Algebra[V], running: V, batch: V, momentum: Scalar) -> V:
    return plus(a, scaled(a, running, 1 - momentum), scaled(a, batch, momentum))


def _batch_moments(a: Algebra[V], v: V) -> tuple[V, V, int]:
    """Mean and variance per channel, and how many elements a channel has."""
    dims = [0, *range(2, len(v.shape))]
    middle = mean(a, v, dims, True)
    spread = mean(a, square(a, minus(a, v, middle)), dims, False)
    return a.reshape(middle, (v.shape[1],)), spread, math.prod(v.shape[d] for d in dims)


@rule("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    a: Algebra[V],
    input: V,
    weight: V | None,
    bias: V | None,
    running_mean: V,
    running_var: V,
    training: bool,
    momentum: Number,
    eps: Number,
    *,
    call: Call,
) -> tuple[V, V, V, V, V]:
    """(out, mean, rstd, new running mean, new running variance); the running variance takes the unbiased one"""
    out, saved, rstd = native_batch_norm(
        a, input, weight, bias, running_mean, running_var, training, momentum, eps, call=call
    )
    if not training:
        return out, saved, rstd, running_mean, running_var
    running = running_statistics(a, input, running_mean, running_var, momentum)
    return out, saved, rstd, *running


def running_statistics(a: Algebra[V], v: V, running_mean: V, running_var: V, momentum: Number) -> tuple[V, V]:
    """(1 - momentum) old + momentum new, the new variance unbiased."""
    middle, spread, count = _batch_moments(a, v)
    unbiased = scaled(a, spread, Fraction(count, max(count - 1, 1)))
    rate = exact(momentum)
    return _updated(a, running_mean, middle, rate), _updated(a, running_var, unbiased, rate)


@rule("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def native_batch_norm(
    a: Algebra[V],
    input: V,
    weight: V | None,
    bias: V | None,
    running_mean: V | None,
    running_var: V | None,
    training: bool,
    momentum: Number,
    eps: Number,
    *,
    call: Call,
) -> tuple[V, V, V]:
    """(out, mean, rstd): per channel over the batch when training, else with the running statistics (and nothing saved)"""
    if training or running_mean is None or running_var is None:
        middle, spread, _ = _batch_moments(a, input)
        rstd = inverse_root(a, spread, eps)
        return _batch_norm(a, input, weight, bias, middle, rstd), middle, rstd
    rstd = inverse_root(a, running_var, eps)
    nothing = a.full(call.shape(1), Fraction(0), "float")
    out = _batch_norm(a, input, weight, bias, running_mean, rstd)
    return out, nothing, nothing


@rule("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    a: Algebra[V],
    input: V,
    weight: V | None,
    bias: V | None,
    training: bool,
    momentum: Number,
    eps: Number,
    *,
    call: Call,
) -> tuple[V, V, V]:
    """(out, mean, rstd) per channel over the batch"""
    return native_batch_norm(a, input, weight, bias, None, None, True, momentum, eps, call=call)


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    a: Algebra[V],
    input: V,
    weight: V | None,
    bias: V | None,
    running_mean: V,
    running_var: V,
    momentum: Number,
    eps: Number,
    *,
    call: Call,
) -> tuple[V, V, V]:
    """(out, nothing, nothing) with the running statistics"""
    return native_batch_norm(a, input, weight, bias, running_mean, running_var, False, momentum, eps, call=call)


@rule("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(
    a: Algebra[V],
    grad_out: V,
    input: V,
    weight: V | None,
    running_mean: V | None,
    running_var: V | None,
    save_mean: V | None,
    save_invstd: V | None,
    train: bool,
    eps: Number,
    output_mask: Sequence[bool],
) -> list[V | None]:
    """As for layer norm, per channel over the batch; in evaluation grad_out rstd weight"""
    rank = len(input.shape)
    dims = [0, *range(2, rank)]
    if train and save_mean is not None and save_invstd is not None:
        middle, rstd = save_mean, save_invstd
    elif running_mean is not None and running_var is not None:
        middle, rstd = running_mean, inverse_root(a, running_var, eps)
    else:
        raise Unsupported("the gradient of a batch norm of which no statistics are kept")
    spread = _per_channel(a, rstd, rank)
    normalised = times(a, minus(a, input, _per_channel(a, middle, rank)), spread)
    gradient = grad_out if weight is None else times(a, grad_out, _per_channel(a, weight, rank))
    grad_input = normalised_gradient(a, gradient, normalised, spread, dims) if train else times(a, gradient, spread)
    return [
        grad_input if output_mask[0] else None,
        total(a, times(a, grad_out, normalised), dims, False) if output_mask[1] else None,
        total(a, grad_out, dims, False) if output_mask[2] else None,
    ]


@rule("aten._weight_norm_interface.default")
def weight_norm(a: Algebra[V], v: V, g: V, dim: int = 0) -> tuple[V, V]:
    """(v g / norm, norm), norm the root of the sum of squares over all dims but one"""
    norms = a.power(total(a, square(a, v), _all_but(v, dim), True), Fraction(1, 2))
    return times(a, v, times(a, g, a.power(norms, Fraction(-1)))), norms


@rule("aten._weight_norm_interface_backward.default")
def weight_norm_backward(a: Algebra[V], grad_w: V, saved_v: V, saved_g: V, saved_norms: V, dim: int) -> tuple[V, V]:
    """(g / norm (grad_w - v inner / norm^2), inner / norm), inner the sum of grad_w v over all dims but one"""
    inner = total(a, times(a, grad_w, saved_v), _all_but(saved_v, dim), True)
    along = times(a, saved_v, times(a, inner, a.power(saved_norms, Fraction(-2))))
    scale = times(a, saved_g, a.power(saved_norms, Fraction(-1)))
    return times(a, scale, minus(a, grad_w, along)), times(a, inner, a.power(saved_norms, Fraction(-1)))


def _all_but(v: V, dim: int) -> list[int]:
    return [each for each in range(len(v.shape)) if each != dim % len(v.shape)]
