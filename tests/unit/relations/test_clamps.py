"""Numbers that are held between two, in every order of the two, and what a maximum leaves out because another number is never less."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

SHAPE = (3, 4)
CONSTANTS = [Fraction(n, 2) for n in range(-4, 5)]
Spelt = Callable[["Numbers"], NormalValue]


class Numbers:
    """Maxima and minima over one algebra."""

    def __init__(self) -> None:
        self.a = NormalForm(Universe())
        self.x, self.y = (self.a.leaf(name, SHAPE, "float") for name in "xy")

    def full(self, number: float | Fraction) -> NormalValue:
        return self.a.full(SHAPE, Fraction(number), "float")

    def minus(self, v: NormalValue) -> NormalValue:
        return self.a.scale(v, Fraction(-1))

    def larger(self, v: NormalValue, number: float | Fraction) -> NormalValue:
        return self.a.maximum(v, self.full(number))

    def smaller(self, v: NormalValue, number: float | Fraction) -> NormalValue:
        return self.minus(self.larger(self.minus(v), -number))

    def least(self, v: NormalValue, w: NormalValue) -> NormalValue:
        return self.minus(self.a.maximum(self.minus(v), self.minus(w)))

    def clamp(self, v: NormalValue, low: float | Fraction, high: float | Fraction) -> NormalValue:
        return self.smaller(self.larger(v, low), high)

    def difference(self) -> NormalValue:
        return self.a.add([self.x, self.minus(self.y)])


RIGHT: list[tuple[Spelt, Spelt]] = [
    (lambda n: n.clamp(n.x, -1, 1), lambda n: n.larger(n.smaller(n.x, 1), -1)),
    (lambda n: n.clamp(n.x, -1, 2), lambda n: n.minus(n.clamp(n.minus(n.x), -2, 1))),
    (lambda n: n.clamp(n.difference(), -1, 2), lambda n: n.minus(n.larger(n.smaller(n.minus(n.difference()), 1), -2))),
    (lambda n: n.clamp(n.clamp(n.x, -1, 1), -2, 2), lambda n: n.clamp(n.x, -1, 1)),
    (lambda n: n.clamp(n.clamp(n.x, -1, 1), -2, 0), lambda n: n.clamp(n.x, -1, 0)),
    (lambda n: n.clamp(n.x, 1, -1), lambda n: n.full(-1)),
    (lambda n: n.larger(n.larger(n.x, 0), -1), lambda n: n.larger(n.x, 0)),
    (lambda n: n.clamp(n.a.exp(n.x), 0, 3), lambda n: n.smaller(n.a.exp(n.x), 3)),
    (lambda n: n.clamp(n.a.apply("tanh", (), [n.x], "float"), -1, 1), lambda n: n.a.apply("tanh", (), [n.x], "float")),
    (lambda n: n.clamp(n.least(n.x, n.y), -1, 2), lambda n: n.larger(n.least(n.smaller(n.x, 2), n.y), -1)),
    (lambda n: n.clamp(n.a.maximum(n.x, n.y), -1, 2), lambda n: n.smaller(n.a.maximum(n.larger(n.x, -1), n.y), 2)),
]
WRONG: list[tuple[Spelt, Spelt]] = [
    (lambda n: n.clamp(n.x, -1, 1), lambda n: n.smaller(n.larger(n.x, 1), -1)),
    (lambda n: n.clamp(n.x, -1, 2), lambda n: n.clamp(n.minus(n.x), -2, 1)),
    (lambda n: n.clamp(n.x, -1, 2), lambda n: n.minus(n.clamp(n.minus(n.x), -1, 2))),
    (lambda n: n.clamp(n.clamp(n.x, -1, 1), -2, 0), lambda n: n.clamp(n.x, -2, 0)),
    (lambda n: n.clamp(n.x, 1, -1), lambda n: n.full(1)),
    (lambda n: n.clamp(n.a.exp(n.x), 0.5, 3), lambda n: n.smaller(n.a.exp(n.x), 3)),
    (lambda n: n.clamp(n.a.maximum(n.x, n.y), -1, 2), lambda n: n.clamp(n.least(n.x, n.y), -1, 2)),
]


@pytest.mark.parametrize(("spelt", "wanted"), [(RIGHT, True), (WRONG, False)], ids=["right", "wrong"])
def test_spellings(spelt: list[tuple[Spelt, Spelt]], wanted: bool) -> None:
    for at, (one, other) in enumerate(spelt):
        n = Numbers()
        assert equal(n.a.universe, one(n), other(n)) is wanted, at


def _drawn(n: Numbers, draw: Random, depth: int) -> NormalValue:
    """Maxima and minima of the two leaves, numbers, multiples, a sum and bounded functions."""
    if not depth:
        return draw.choice([n.x, n.y, n.difference(), n.a.exp(n.x), n.a.apply("sigmoid", (), [n.y], "float")])
    v = _drawn(n, draw, depth - 1)
    match draw.randrange(5):
        case 0:
            return n.larger(v, draw.choice(CONSTANTS))
        case 1:
            return n.smaller(v, draw.choice(CONSTANTS))
        case 2:
            return n.a.scale(v, draw.choice([number for number in CONSTANTS if number]))
        case 3:
            return n.clamp(v, draw.choice(CONSTANTS), draw.choice(CONSTANTS))
    return draw.choice([n.a.maximum, n.least])(v, _drawn(n, draw, draw.randrange(depth)))


def _meant(n: Numbers, v: NormalValue, elements: dict[str, np.ndarray]) -> np.ndarray:
    return Denotation(elements).value(v)


@pytest.mark.parametrize("seed", range(60))
def test_nested(seed: int) -> None:
    """Step by step a normal form has the elements of what NumPy works out, ties included."""
    draw, n = Random(seed), Numbers()
    grid = np.random.default_rng(seed)
    elements = {name: grid.integers(-3, 4, SHAPE) / 2 for name in "xy"}
    v = _drawn(n, draw, 3)
    for _ in range(4):
        number = draw.choice(CONSTANTS)
        before = _meant(n, v, elements)
        larger, smaller = n.larger(v, number), n.smaller(v, number)
        assert np.allclose(_meant(n, larger, elements), np.maximum(before, float(number)))
        assert np.allclose(_meant(n, smaller, elements), np.minimum(before, float(number)))
        v = draw.choice([larger, smaller, n.minus(larger)])
