"""Steps of random programs as autograd and data parallelism make them: gradients by their formulas, sums over uneven parts, casts to narrow types."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from graphguard.relations.numbers import CASTS

if TYPE_CHECKING:
    from benchmarks.trust.fuzz import Program
    from benchmarks.trust.steps import Made

_NUDGED = 1e-9  # relative: a number that rounds elsewhere when it is nudged says nothing, as both sides are computed with rounding


def _parts(p: Program, size: int) -> list[tuple[int, int]]:
    """Uneven parts of a dim that cover it; now and then one of them is lost, or comes twice."""
    cuts = sorted({0, size, *(p.rng.randint(0, size) for _ in range(2))})
    parts = list(pairwise(cuts))
    chance = p.rng.random()
    if chance < 0.1 and len(parts) > 1:
        parts.pop(p.rng.randrange(len(parts)))
    elif chance < 0.2:
        parts.append(p.rng.choice(parts))
    p.rng.shuffle(parts)
    return parts


def _again(a: Any, v: Any, shape: tuple[int, ...], dim: int) -> Any:
    """A tensor without a dim, repeated along it."""
    return a.expand(a.reshape(v, (*shape[:dim], 1, *shape[dim + 1 :])), shape)


def _dim(p: Program, index: int) -> int:
    return p.rng.randrange(len(p.shape(index)))


def uneven_sum(p: Program) -> Made:
    """A sum, or the largest element, over parts of different sizes."""
    i = p.pick()
    dim = _dim(p, i)
    parts = _parts(p, p.shape(i)[dim])
    largest = p.rng.random() < 0.2

    def act(a: Any, v: Any) -> Any:
        cut = [a.slice(v, dim, low, high) for low, high in parts]
        if not largest:
            return a.add([a.sum(part, [dim]) for part in cut])
        found = a.max_over(cut[0], [dim])
        for part in cut[1:]:
            found = a.maximum(found, a.max_over(part, [dim]))
        return found

    return act, [i]


def uneven_product(p: Program) -> Made:
    """A product of two tensors summed over one dim of both, part by part: the gradient of a weight over uneven batches."""
    i = p.pick()
    j = p.partner(i)
    shape = p.shape(i)
    dim = _dim(p, i)
    parts = _parts(p, shape[dim])
    letters = "abcdefgh"[: len(shape)]
    other = "".join(letter if at == dim else letter.upper().translate(_LOWERED) for at, letter in enumerate(letters))
    out = "".join(letter for letter in dict.fromkeys(letters + other) if letter != letters[dim])

    def act(a: Any, x: Any, y: Any) -> Any:
        return a.add(
            [
                a.contract([(a.slice(x, dim, low, high), letters), (a.slice(y, dim, low, high), other)], out)
                for low, high in parts
            ]
        )

    return act, [i, j]


_LOWERED = str.maketrans("ABCDEFGH", "stuvwxyz")


def softmax_gradient(p: Program) -> Made:
    """y (g - sum of g y), y the softmax over a dim."""
    i = p.pick()
    j = p.partner(i)
    dim = _dim(p, i)
    shape = p.shape(i)

    def act(a: Any, x: Any, g: Any) -> Any:
        e = a.exp(x)
        y = a.multiply(e, a.power(_again(a, a.sum(e, [dim]), shape, dim), Fraction(-1)))
        inner = _again(a, a.sum(a.multiply(g, y), [dim]), shape, dim)
        return a.multiply(y, a.add([g, a.scale(inner, Fraction(-1))]))

    return act, [i, j]


def norm_gradient(p: Program) -> Made:
    """r (g - mean of g - h mean of g h), h the normalised tensor and r one over its deviation."""
    i = p.pick()
    j = p.partner(i)
    dim = _dim(p, i)
    shape = p.shape(i)

    def act(a: Any, x: Any, g: Any) -> Any:
        def mean(v: Any) -> Any:
            return _again(a, a.scale(a.sum(v, [dim]), Fraction(1, shape[dim])), shape, dim)

        centred = a.add([x, a.scale(mean(x), Fraction(-1))])
        variance = a.add([mean(a.multiply(centred, centred)), a.full(shape, Fraction(1, 2), "float")])
        r = a.power(variance, Fraction(-1, 2))
        h = a.multiply(centred, r)
        rest = [g, a.scale(mean(g), Fraction(-1)), a.scale(a.multiply(h, mean(a.multiply(g, h))), Fraction(-1))]
        return a.multiply(r, a.add(rest))

    return act, [i, j]


def masked_gradient(p: Program) -> Made:
    """g where x > 1: the gradient of a maximum."""
    i = p.pick()
    j = p.partner(i)
    if (np.abs(p.pairs[i][0].array - 1) < _NUDGED).any():
        return None
    shape = p.shape(i)

    def act(a: Any, x: Any, g: Any) -> Any:
        holds = a.compare("lt", a.full(shape, Fraction(1), "float"), x)
        return a.where(holds, g, a.full(shape, Fraction(0), "float"))

    return act, [i, j]


def table_gradient(p: Program) -> Made:
    """Rows added up at the places they were looked up from."""
    i = p.pick("int")
    shape = p.shape(i)
    choices = [
        k for k, (n, _) in enumerate(p.pairs) if n.kind == "float" and n.shape[: len(shape)] == shape and len(shape) < 4
    ]
    j = p.rng.choice(choices)
    places = "abcd"[: len(shape)]
    rest = "uwxyz"[: len(p.shape(j)) - len(shape)]
    return (
        lambda a, index, g: a.contract([(a.one_hot(index, 6), places + "v"), (g, places + rest)], "v" + rest),
        [i, j],
    )


def narrow(p: Program) -> Made:
    """Rounded to a narrow float type, or wrapped in a narrow integer type."""
    kind = p.rng.choice(("float", "float", "int"))
    i = p.pick(kind)
    array = p.pairs[i][0].array
    target = p.rng.choice(("bfloat16", "float16") if kind == "float" else ("int8", "uint8"))
    if kind == "float" and not (CASTS[target](array * (1 + _NUDGED)) == CASTS[target](array * (1 - _NUDGED))).all():
        return None
    return lambda a, v: a.apply("cast", (target,), [v], kind), [i]


GRADIENTS: dict[str, Callable[[Program], Made]] = {
    "uneven_sum": uneven_sum,
    "uneven_product": uneven_product,
    "softmax_gradient": softmax_gradient,
    "norm_gradient": norm_gradient,
    "masked_gradient": masked_gradient,
    "table_gradient": table_gradient,
    "narrow": narrow,
}
