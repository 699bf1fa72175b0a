"""What a comparison of two numbers chooses between them is the larger or the smaller."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

SHAPE = (4, 5)
Chosen = Callable[[NormalForm, NormalValue, NormalValue], NormalValue]


def minus(a: NormalForm, x: NormalValue, y: NormalValue) -> NormalValue:
    return a.add([x, a.scale(y, Fraction(-1))])


def zero(a: NormalForm) -> NormalValue:
    return a.full(SHAPE, Fraction(0), "float")


def fifth(a: NormalForm, x: NormalValue) -> NormalValue:
    return a.scale(x, Fraction(1, 5))


LARGER: list[tuple[Chosen, Chosen]] = [
    (lambda a, x, y: a.where(a.compare("lt", y, x), x, y), lambda a, x, y: a.maximum(x, y)),
    (lambda a, x, y: a.where(a.compare("le", y, x), x, y), lambda a, x, y: a.maximum(x, y)),
    (lambda a, x, y: a.where(a.logical_not(a.compare("lt", y, x)), y, x), lambda a, x, y: a.maximum(x, y)),
    (lambda a, x, _: a.where(a.compare("lt", zero(a), x), x, zero(a)), lambda a, x, _: a.maximum(x, zero(a))),
    (
        lambda a, x, _: a.multiply(x, a.number(a.compare("lt", zero(a), x), "float")),
        lambda a, x, _: a.maximum(x, zero(a)),
    ),
    (lambda a, x, _: a.where(a.compare("lt", zero(a), x), x, fifth(a, x)), lambda a, x, _: a.maximum(x, fifth(a, x))),
]
OTHERS: list[tuple[Chosen, Chosen]] = [
    (lambda a, x, y: a.where(a.compare("lt", x, y), x, y), lambda a, x, y: a.maximum(x, y)),
    (lambda a, x, y: a.where(a.compare("lt", zero(a), x), x, y), lambda a, x, y: a.maximum(x, y)),
    (lambda a, x, y: a.where(a.compare("lt", y, x), x, zero(a)), lambda a, x, y: a.maximum(x, zero(a))),
    (lambda a, x, _: a.where(a.compare("lt", zero(a), x), zero(a), x), lambda a, x, _: a.maximum(x, zero(a))),
    (
        lambda a, x, _: a.multiply(x, a.number(a.compare("lt", x, zero(a)), "float")),
        lambda a, x, _: a.maximum(x, zero(a)),
    ),
]


@pytest.mark.parametrize(("pairs", "wanted"), [(LARGER, True), (OTHERS, False)], ids=["larger", "others"])
def test_larger(pairs: list[tuple[Chosen, Chosen]], wanted: bool) -> None:
    for chosen, larger in pairs:
        universe = Universe()
        a = NormalForm(universe)
        x, y = a.leaf("x", SHAPE, "float"), a.leaf("y", SHAPE, "float")
        assert equal(universe, chosen(a, x, y), larger(a, x, y)) is wanted


def test_smaller() -> None:
    universe = Universe()
    a = NormalForm(universe)
    x, y = a.leaf("x", SHAPE, "float"), a.leaf("y", SHAPE, "float")
    smaller = a.scale(a.maximum(a.scale(x, Fraction(-1)), a.scale(y, Fraction(-1))), Fraction(-1))
    assert equal(universe, a.where(a.compare("lt", x, y), x, y), smaller)
