"""What narrow float types hold: known numbers are rounded as PyTorch rounds them, and counts are told from what was rounded before."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.rules.basis.casting import held, nearest
from graphguard.rules.basis.registry import FLOAT_BITS

TYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")}


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_rounded_as_pytorch_rounds_them(dtype: str) -> None:
    generator = np.random.default_rng(1)
    numbers = np.concatenate(
        [generator.normal(size=500) * 10.0**power for power in range(-9, 2)]
        + [np.arange(-240, 241), np.arange(600) / 64 - 1]
    )
    numbers = numbers[np.abs(numbers) < 240]
    found = nearest(numbers, *FLOAT_BITS[dtype])
    assert found is not None
    assert np.array_equal(found, torch.from_numpy(numbers).float().to(TYPES[dtype]).double().numpy())


@pytest.mark.parametrize("number", [1e39, -1e39, np.inf, np.nan])
def test_numbers_that_are_too_large_are_none(number: float) -> None:
    assert nearest(np.array([1.0, number]), *FLOAT_BITS["bfloat16"]) is None


def test_known_numbers_become_those_of_the_type() -> None:
    a = NormalForm()
    tenth = held(a, a.full((2,), Fraction(1, 10), "float"), "bfloat16")
    assert tenth.key() == a.full((2,), Fraction(205, 2048), "float").key()
    half = a.full((2,), Fraction(1, 2), "float")
    assert held(a, half, "bfloat16").key() == half.key()
    positions = held(a, a.number(a.iota(300), "float"), "bfloat16")
    assert positions.key() == a.literal(torch.arange(300).bfloat16().double().numpy()).key()


@pytest.mark.parametrize("times", [2, 300, 100_000])
def test_how_often_a_number_is_repeated_does_not_decide_what_it_is(times: int) -> None:
    a = NormalForm()
    tenth = held(a, a.full((times, 3), Fraction(1, 10), "float"), "bfloat16")
    assert tenth.key() == a.full((times, 3), Fraction(205, 2048), "float").key()
    positions = held(a, a.expand(a.number(a.iota(300), "float"), (times, 300)), "bfloat16")
    assert positions.key() == a.expand(a.literal(torch.arange(300).bfloat16().double().numpy()), (times, 300)).key()


def test_dims_that_repeat_their_elements() -> None:
    a = NormalForm()
    rows = a.leaf("x", (4, 1), "float")
    assert [a.repeats(a.expand(rows, (4, 6)), dim) for dim in (0, 1)] == [False, True]
    assert [a.repeats(a.reshape(a.expand(rows, (4, 6)), (24,)), 0)] == [False]
    joined = a.concat([a.full((2, 3), Fraction(1), "float"), a.full((2, 3), Fraction(2), "float")], 0)
    assert [a.repeats(joined, dim) for dim in (0, 1)] == [False, True]


def counted(a: NormalForm, rows: int):
    truths = a.leaf("m", (rows,), "bool")
    return a.sum(a.number(truths, "float"), (0,))


@pytest.mark.parametrize(
    ("rows", "dtype", "exact"),
    [(256, "bfloat16", True), (257, "bfloat16", False), (2048, "float16", True), (2049, "float16", False)],
)
def test_counts_are_themselves_as_far_as_the_type_counts(rows: int, dtype: str, exact: bool) -> None:
    a = NormalForm()
    count = counted(a, rows)
    assert (held(a, count, dtype).key() == count.key()) is exact
    assert held(a, count, "float32").key() == count.key()


@pytest.mark.parametrize(("rows", "exact"), [(8, True), (256, True), (512, False), (6, False)])
def test_means_of_a_power_of_two_are_themselves(rows: int, exact: bool) -> None:
    a = NormalForm()
    mean = a.scale(counted(a, rows), Fraction(1, rows))
    assert (held(a, mean, "bfloat16").key() == mean.key()) is exact


def test_what_rests_on_a_float_is_left_to_casts() -> None:
    a = NormalForm()
    scaled = a.multiply(a.expand(a.reshape(counted(a, 600), (1,)), (3,)), a.leaf("x", (3,), "float"))
    assert a.most_counted(scaled, 24) is None
    assert held(a, scaled, "bfloat16") is scaled


def test_sizes_of_counts() -> None:
    a = NormalForm()
    low = a.leaf("i", (4,), "int", -3, 8)
    assert a.most_counted(counted(a, 600), 24) == 600
    assert a.most_counted(a.compare("lt", low, a.full((4,), Fraction(2), "int")), 24) == 1
    assert a.most_counted(a.multiply(low, low), 24) == 64
    assert a.most_counted(a.scale(a.number(low, "float"), Fraction(3, 4)), 24) == 24
    assert a.most_counted(a.scale(a.number(low, "float"), Fraction(1, 3)), 24) == np.inf
    assert a.most_counted(a.leaf("j", (4,), "int"), 24) == np.inf
    assert a.most_counted(a.exp(a.number(low, "float")), 24) == np.inf
    assert a.most_counted(a.apply("cast", ("bfloat16",), [a.number(low, "float")], "float"), 24) is None


@pytest.mark.parametrize("dtype", TYPES)
def test_the_least_number_of_a_type_is_the_last_that_is_itself(dtype: str) -> None:
    bits, exponent_bits = FLOAT_BITS[dtype]
    digits = (1 << exponent_bits - 1) - 3 + bits
    least = torch.tensor([0.5**digits], dtype=torch.float64).to(TYPES[dtype])
    assert least.double().item() == 0.5**digits
    assert torch.tensor([0.25 * 0.5**digits], dtype=torch.float64).to(TYPES[dtype]).double().item() == 0
    a = NormalForm()
    for more, exact in ((0, True), (2, False)):
        few = a.scale(counted(a, 2), Fraction(1, 2 ** (digits + more)))
        assert (held(a, few, dtype).key() == few.key()) is exact


def test_a_type_of_powers_of_two_alone_has_no_truths() -> None:
    a = NormalForm()
    assert held(a, counted(a, 2), "float8_e8m0fnu").key() != counted(a, 2).key()


def test_functions_of_positions_are_rounded_where_they_are_computed() -> None:
    a = NormalForm()
    angles = a.number(a.iota(4), "float")
    found = held(a, a.apply("cos", (), [angles], "float"), "bfloat16")
    assert found.key() == a.literal(torch.arange(4).bfloat16().cos().double().numpy()).key()
