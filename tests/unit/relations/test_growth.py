"""Exponentials of an index: whatever a program counts from, a decay is the same decay, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.arithmetic import minus, over, plus, times
from graphguard.rules.elements.elementwise import pow_base, pow_tensor

HEADS, TOKENS, WIDTH = 2, 12, 3
Rate = Callable[[NormalForm], NormalValue]


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe())


def learned(a: NormalForm) -> NormalValue:
    return a.leaf("rate", (HEADS,), "float")


def squashed(a: NormalForm) -> NormalValue:
    return a.log(a.apply("sigmoid", (), [learned(a)], "float"))


def written_down(a: NormalForm) -> NormalValue:
    return a.literal(np.array([-0.125, -0.0625]))


def computed(a: NormalForm) -> NormalValue:
    """RetNet's: the logarithm of 1 - 2 ** (-5 - head)."""
    return a.log(minus(a, 1, pow_base(a, 2.0, plus(a, -5, a.scale(a.iota(HEADS), -1)))))


def halved(a: NormalForm) -> NormalValue:
    return a.scale(learned(a), Fraction(-1, 2))


RATES = [learned, squashed, written_down, computed, halved]


def decay(a: NormalForm, rate: NormalValue, index: NormalValue) -> NormalValue:
    """exp(rate * index), of every head; ``index`` is of one or two dims."""
    shape = (HEADS, *index.shape)
    wide = a.expand(a.reshape(rate, (HEADS, *(1 for _ in index.shape))), shape)
    return a.exp(a.multiply(wide, a.expand(a.number(index, "float"), shape)))


def distances(a: NormalForm, rows: int, columns: int, shift: int = 0) -> NormalValue:
    """i - j + shift."""
    down = a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns))
    across = a.expand(a.reshape(a.iota(columns), (1, columns)), (rows, columns))
    return plus(a, shift, minus(a, down, across))


def causal(a: NormalForm, table: NormalValue, index: NormalValue) -> NormalValue:
    """A table where an index is not negative."""
    seen = a.compare("le", a.full(index.shape, 0, "int"), index)
    return a.where(a.expand(seen, table.shape), table, a.full(table.shape, 0, "float"))


def read(a: NormalForm, q: NormalValue, k: NormalValue, weights: NormalValue) -> NormalValue:
    scores = a.multiply(a.contract([(q, "hid"), (k, "hjd")], "hij"), weights)
    return a.contract([(scores, "hij"), (k, "hje")], "hie")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_state_carried_from_rank_to_rank(a: NormalForm, rate: Rate, ranks: int) -> None:
    q, k = (a.leaf(name, (HEADS, TOKENS, WIDTH), "float") for name in "qk")
    every = distances(a, TOKENS, TOKENS)
    whole = read(a, q, k, causal(a, decay(a, rate(a), every), every))
    a.universe.specifying = False
    local, rates = TOKENS // ranks, rate(a)
    state = late = a.full((HEADS, WIDTH, WIDTH), 0, "float")
    for rank in range(ranks):
        rows, keys = (a.slice(x, 1, rank * local, (rank + 1) * local) for x in (q, k))
        near = distances(a, local, local)
        own = read(a, rows, keys, causal(a, decay(a, rates, near), near))
        wanted = a.slice(whole, 1, rank * local, (rank + 1) * local)
        since = decay(a, rates, plus(a, 1, a.iota(local)))
        for held, right in ((state, True), (late, rank < 2)):
            found = a.add([own, a.contract([(rows, "hid"), (since, "hi"), (held, "hde")], "hie")])
            assert equal(a.universe, wanted, found) == right
        left = decay(a, rates, minus(a, local - 1, a.iota(local)))
        mine = a.contract([(keys, "hjd"), (left, "hj"), (keys, "hje")], "hde")
        faded = a.exp(a.scale(rates, local))
        state = a.add([mine, a.contract([(faded, "h"), (state, "hde")], "hde")])
        late = a.add([mine, late])


@pytest.mark.parametrize("gamma", [0.9, 0.5, 0.96875, 2.0])
def test_powers_of_a_number(a: NormalForm, gamma: float) -> None:
    index = distances(a, 4, 6, 3)
    table = pow_base(a, gamma, index)
    assert np.allclose(Denotation({}).value(table), gamma ** (np.arange(4.0)[:, None] - np.arange(6.0) + 3))
    rows = pow_base(a, gamma, a.iota(4))
    columns = pow_base(a, gamma, minus(a, 3, a.iota(6)))
    outer = a.contract([(rows, "i"), (columns, "j")], "ij")
    x = a.leaf("x", (4, 6), "float")
    assert equal(a.universe, a.multiply(x, table), a.multiply(x, outer))
    assert equal(
        a.universe,
        a.multiply(x, pow_base(a, gamma, plus(a, 2, index))),
        a.scale(a.multiply(x, table), Fraction(gamma).limit_denominator(100) ** 2),
    )
    assert not equal(a.universe, a.multiply(x, pow_base(a, gamma, plus(a, 1, index))), a.multiply(x, table))


def test_clamped_exponents(a: NormalForm) -> None:
    index = distances(a, 5, 5)
    clamped = a.maximum(index, a.full((5, 5), 0, "int"))
    rates = np.array([0.5, 0.75, 0.875]).reshape(3, 1, 1)
    base = a.literal(rates)
    found = pow_tensor(a, base, clamped)
    numbers = rates ** np.maximum(np.arange(5)[:, None] - np.arange(5), 0)
    assert np.allclose(Denotation({}).value(found), numbers)
    assert equal(a.universe, causal(a, found, index), causal(a, pow_tensor(a, base, index), index))


@pytest.mark.parametrize("base", [-0.5, 0.0])
def test_powers_of_what_may_not_be_positive_stay_closed(a: NormalForm, base: float) -> None:
    table = a.literal(np.array([0.5, base, 0.25]))
    for index in (a.iota(3), a.leaf("e", (3,), "int")):
        found = pow_tensor(a, table, index)
        assert not equal(a.universe, a.power(a.multiply(found, found), Fraction(1, 2)), found)
    leaf = a.leaf("b", (3,), "float")
    found = pow_tensor(a, leaf, a.iota(3))
    assert not equal(a.universe, a.power(a.multiply(found, found), Fraction(1, 2)), found)


def test_a_table_of_distances_is_a_function_of_the_distance(a: NormalForm) -> None:
    table = decay(a, learned(a), distances(a, 12, 12))
    apart = a.multiply(
        a.expand(a.reshape(decay(a, learned(a), a.iota(12)), (HEADS, 12, 1)), (HEADS, 12, 12)),
        a.expand(a.reshape(decay(a, learned(a), a.scale(a.iota(12), -1)), (HEADS, 1, 12)), (HEADS, 12, 12)),
    )
    assert equal(a.universe, table, apart)
    corner = decay(a, learned(a), distances(a, 4, 4))
    assert equal(a.universe, a.slice(a.slice(table, 1, 8, 12), 2, 8, 12), corner)
    assert not equal(a.universe, a.slice(a.slice(table, 1, 8, 12), 2, 7, 11), corner)


def test_running_normalisers_cancel(a: NormalForm) -> None:
    """What all tokens are multiplied by leaves a quotient, wherever it is counted from."""
    x = a.leaf("x", (HEADS, TOKENS), "float")
    rate = learned(a)
    quotients = []
    for start in (0, 5):
        weights = a.multiply(decay(a, rate, plus(a, start, a.iota(TOKENS))), a.exp(x))
        total = a.expand(a.reshape(a.sum(weights, [1]), (HEADS, 1)), (HEADS, TOKENS))
        quotients.append(over(a, weights, total))
    assert equal(a.universe, *quotients)


@pytest.mark.parametrize("seed", range(60))
def test_against_numbers(a: NormalForm, seed: int) -> None:
    """Products of exponentials of random indices, masks and unknowns, some of them summed and reshaped, are what numpy says."""
    dice = np.random.default_rng(seed)
    rows, columns = 4, 6
    data = {"q": dice.normal(size=(HEADS, 8)), "k": dice.normal(size=(HEADS, 9)), "rate": dice.normal(size=HEADS) / 4}
    low, left = int(dice.integers(0, 5)), int(dice.integers(0, 4))
    found = a.full((HEADS, rows, columns), 1, "float")
    wanted = np.ones((HEADS, rows, columns))
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    for _ in range(int(dice.integers(1, 5))):
        kind = dice.choice(["grows", "grows", "row", "column", "mask"])
        p, r, c = (int(dice.integers(-2, 3)) for _ in range(3))
        index = plus(a, c, a.scale(distances(a, rows, columns), p))
        index = plus(a, index, a.scale(a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns)), r))
        numbers = p * (i - j) + r * i + c
        if kind == "grows":
            found = a.multiply(found, decay(a, RATES[seed % len(RATES)](a), index))
            rate = Denotation(data).value(RATES[seed % len(RATES)](a))
            wanted = wanted * np.exp(rate[:, None, None] * numbers)
        elif kind == "mask":
            found = causal(a, found, index)
            wanted = np.where(numbers >= 0, wanted, 0)
        else:
            name, start, size = ("q", low, rows) if kind == "row" else ("k", left, columns)
            shape = (HEADS, rows, 1) if kind == "row" else (HEADS, 1, columns)
            part = a.slice(a.leaf(name, data[name].shape, "float"), 1, start, start + size)
            found = times(a, found, a.expand(a.reshape(part, shape), (HEADS, rows, columns)))
            wanted = wanted * data[name][:, start : start + size].reshape(shape)
    if dice.integers(2):
        found, wanted = a.reshape(found, (HEADS, 2, 12)), wanted.reshape(HEADS, 2, 12)
    if dice.integers(2):
        found, wanted = a.sum(found, [2]), wanted.sum(2)
    assert np.allclose(Denotation(data).value(found), wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("start", [0, 4, -7])
def test_the_largest_of_what_fades_under_a_mask(a: NormalForm, start: int) -> None:
    """An index that an exponential alone has begins where the masks on the others let it: a factor taken out of a maximum does not come back for ever."""
    shape = (4, 5, 6)
    lines = [
        a.expand(a.reshape(a.iota(size), tuple(size if d == dim else 1 for d in range(3))), shape)
        for dim, size in enumerate(shape)
    ]
    grown = a.exp(a.scale(a.number(plus(a, start, plus(a, lines[0], lines[1])), "float"), Fraction(1, 3)))
    seen = a.number(a.compare("le", a.full(shape, 3, "int"), plus(a, lines[1], lines[2])), "float")
    value = times(a, times(a, grown, seen), a.number(plus(a, 2, minus(a, lines[1], lines[2])), "float"))
    found = a.max_over(value, [0])
    i, j, k = np.indices(shape)
    numbers = np.exp((start + i + j) / 3) * (j + k >= 3) * (2 + j - k)
    assert np.allclose(Denotation({}).value(found), numbers.max(0))
    again = a.multiply(a.exp(a.full(shape, Fraction(1, 3), "float")), value)
    later = times(
        a,
        times(
            a, a.exp(a.scale(a.number(plus(a, start + 1, plus(a, lines[0], lines[1])), "float"), Fraction(1, 3))), seen
        ),
        a.number(plus(a, 2, minus(a, lines[1], lines[2])), "float"),
    )
    assert equal(a.universe, again, later)


@pytest.mark.parametrize("dim", [0, 1])
def test_the_largest_of_sums_of_several_rates(a: NormalForm, dim: int) -> None:
    """Where nothing but exponentials carries any index, each begins where the others let it."""
    i, j = (a.expand(a.reshape(a.iota(n), shape), (3, 4)) for n, shape in ((3, (3, 1)), (4, (1, 4))))
    third = a.exp(a.scale(a.number(plus(a, -3, minus(a, i, j)), "float"), Fraction(1, 3)))
    other = a.exp(a.multiply(a.literal(np.full((3, 4), 0.3)), a.number(plus(a, 2, i if dim else j), "float")))
    weights = times(a, times(a, pow_base(a, 2.0, plus(a, 5, i if dim else j)), third), other)
    found = a.max_over(a.sum(weights, [1 - dim]), [0])
    rows, columns = np.indices((3, 4))
    numbers = 2.0 ** ((rows if dim else columns) + 5) * np.exp(
        (rows - columns - 3) / 3 + 0.3 * ((rows if dim else columns) + 2)
    )
    assert np.allclose(Denotation({}).value(found), numbers.sum(1 - dim).max())


@pytest.mark.parametrize("first", [0, 1, 3])
def test_what_fades_under_a_mask_is_not_positive_everywhere(a: NormalForm, first: int) -> None:
    """An exponential of an index alone may be looked at anywhere, also where the mask is 0."""
    steps = a.iota(6)
    rate = minus(a, a.log(a.full((6,), 31, "float")), a.log(a.full((6,), 32, "float")))
    grown = a.exp(a.multiply(rate, a.number(plus(a, -1, a.scale(steps, 2)), "float")))
    value = times(a, grown, a.number(a.compare("le", a.full((6,), first, "int"), steps), "float"))
    found = a.compare("lt", a.full((6,), 0, "float"), value)
    assert (Denotation({}).value(found) == (np.arange(6) >= first)).all()
    assert not a.positive(value) or first == 0
