"""Variances of a projection, merged from those of parts, where products of sums are written out: the blocks on a diagonal are put beside those off it."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

WIDTH, CHANNELS = 3, 5
EPSILON = Fraction(1, 100000)
CUTS = [(0, 4, 8), (0, 4, 7), (0, 3, 6, 9), (0, 2, 4, 6, 8), (0, 2, 5, 9)]


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe(16, relative=True))


def projected(a: NormalForm, low: int, high: int, rows: int) -> NormalValue:
    x = a.slice(a.leaf("x", (rows, WIDTH), "float"), 0, low, high)
    return a.contract([(x, "nk"), (a.leaf("u", (WIDTH, CHANNELS), "float"), "kj")], "nj")


def moments(a: NormalForm, h: NormalValue) -> tuple[NormalValue, NormalValue]:
    """Mean and variance of the columns."""
    part = Fraction(1, h.shape[0])
    mean = a.scale(a.sum(h, [0]), part)
    gap = a.add([h, a.scale(a.expand(a.reshape(mean, (1, CHANNELS)), h.shape), -1)])
    return mean, a.scale(a.sum(a.multiply(gap, gap), [0]), part)


def beside(a: NormalForm, v: NormalValue, number: Fraction) -> NormalValue:
    return a.add([v, a.full(v.shape, number, "float")])


def merged(a: NormalForm, cuts: tuple[int, ...], *, inverses: bool = False, wrong: str = "") -> NormalValue:
    """Chan's merge of the parts' moments; the variances may come as ``1 / sqrt(variance + epsilon)``, as CUDA's kernels hand them on."""
    rows = cuts[-1]
    parts = [(high - low, *moments(a, projected(a, low, high, rows))) for low, high in pairwise(cuts)]
    mean = a.scale(a.add([a.scale(own, count) for count, own, _ in parts]), Fraction(1, rows))
    summands = []
    for count, own, variance in parts:
        if inverses:
            kept = a.power(beside(a, variance, EPSILON), Fraction(-1, 2))
            variance = beside(a, a.power(kept, Fraction(-2)), -EPSILON)
        gap = a.add([own, a.scale(mean, -1)])
        between = a.scale(a.multiply(gap, gap), 2 if wrong == "twice between" else 1)
        summands.append(a.scale(a.add([variance] if wrong == "within alone" else [variance, between]), count))
    return a.scale(a.add(summands), Fraction(1, rows))


@pytest.mark.parametrize("inverses", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
def test_parts_merge(a: NormalForm, cuts: tuple[int, ...], inverses: bool) -> None:
    _, whole = moments(a, projected(a, 0, cuts[-1], cuts[-1]))
    variance = merged(a, cuts, inverses=inverses)
    assert a.same(variance, whole)
    for exponent in (Fraction(-1), Fraction(-1, 2)):
        one, other = (a.power(beside(a, v, EPSILON), exponent) for v in (variance, whole))
        assert a.same(one, other), "closed by a function, too"


@pytest.mark.parametrize("wrong", ["within alone", "twice between"])
@pytest.mark.parametrize("cuts", CUTS)
def test_parts_that_are_merged_otherwise(a: NormalForm, cuts: tuple[int, ...], wrong: str) -> None:
    _, whole = moments(a, projected(a, 0, cuts[-1], cuts[-1]))
    assert not a.same(merged(a, cuts, wrong=wrong), whole)


@pytest.mark.parametrize("wrong", ["", "within alone", "twice between"])
@pytest.mark.parametrize("cuts", CUTS)
def test_what_is_merged_denotes_its_numbers(a: NormalForm, cuts: tuple[int, ...], wrong: str) -> None:
    rng = np.random.default_rng(len(cuts))
    x, u = rng.standard_normal((cuts[-1], WIDTH)), rng.standard_normal((WIDTH, CHANNELS))
    h = x @ u
    parts = [h[low:high] for low, high in pairwise(cuts)]
    between = {"": 1, "within alone": 0, "twice between": 2}[wrong]
    number = sum(len(p) * (p.var(0) + between * (p.mean(0) - h.mean(0)) ** 2) for p in parts) / len(h)
    found = Denotation({"x": x, "u": u}).value(merged(a, cuts, wrong=wrong))
    np.testing.assert_allclose(found, number, rtol=1e-9)
