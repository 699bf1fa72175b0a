"""Casts to a type in which the numbers are already change nothing; all others round."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.precision import same_digits
from graphguard.relations.terms.kernels import Universe
from graphguard.rules.basis.casting import cast

TYPE = "bfloat16"


def narrowed(a: NormalForm, value):
    return cast(a, value, "float32", TYPE)


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


def test_a_number_of_the_type_is_itself(a: NormalForm) -> None:
    x = a.leaf("x", (4, 6), "float")
    assert narrowed(a, x).key() != x.key()
    a.hold(x, TYPE)
    assert narrowed(a, x).key() == x.key()
    part = a.slice(a.permute(x, (1, 0)), 0, 2, 5)
    assert narrowed(a, part).key() == part.key()
    assert cast(a, x, "float32", "float16").key() != x.key()


def test_a_sum_that_is_held_is_known_in_part(a: NormalForm) -> None:
    x, y = a.leaf("x", (4, 6), "float"), a.leaf("y", (4, 6), "float")
    a.hold(a.add([x, y]), TYPE)
    a.universe.specifying = False
    part = a.add([a.slice(x, 0, 1, 3), a.slice(y, 0, 1, 3)])
    assert narrowed(a, part).key() == part.key()
    shifted = a.add([a.slice(x, 0, 1, 3), a.slice(y, 0, 0, 2)])
    assert narrowed(a, shifted).key() != shifted.key()
    assert narrowed(a, x).key() != x.key()
    twice = a.scale(part, 2)
    assert narrowed(a, twice).key() != twice.key()


def test_a_partial_sum_is_another_number(a: NormalForm) -> None:
    x, w = a.leaf("x", (4, 6), "float"), a.leaf("w", (6, 5), "float")
    a.hold(a.contract([(x, "ik"), (w, "kj")], "ij"), TYPE)
    half = a.contract([(a.slice(x, 1, 0, 3), "ik"), (a.slice(w, 0, 0, 3), "kj")], "ij")
    assert narrowed(a, half).key() != half.key()


def test_only_what_is_read_of_a_tensor_is_held(a: NormalForm) -> None:
    x = a.leaf("x", (6, 4), "float")
    a.hold(a.slice(x, 0, 0, 3), TYPE)
    a.hold(a.slice(x, 0, 1, 6, 2), TYPE)
    assert narrowed(a, a.slice(x, 0, 1, 3)).key() == a.slice(x, 0, 1, 3).key()
    rest = a.slice(x, 0, 2, 5)
    assert narrowed(a, rest).key() != rest.key()


def test_the_specification_rounds_what_only_ranks_have_in_the_type(a: NormalForm) -> None:
    x = a.leaf("x", (4, 6), "float")
    a.universe.specifying = False
    a.hold(x, TYPE)
    assert narrowed(a, x).key() == x.key()
    a.universe.specifying = True
    assert narrowed(a, x).key() != x.key()


@pytest.mark.parametrize("factor", [2, -1, Fraction(1, 3)])
def test_a_cast_of_a_multiple_is_the_multiple_of_the_cast(factor) -> None:
    a = NormalForm(Universe(relative=True))
    x = a.leaf("x", (4, 6), "float")
    assert narrowed(a, a.scale(x, factor)).key() == a.scale(narrowed(a, x), factor).key()
    other = cast(a, a.scale(x, factor), "float32", "float8_e4m3fn")
    assert other.key() != a.scale(cast(a, x, "float32", "float8_e4m3fn"), factor).key()


def test_a_cast_of_a_sum_is_no_sum_of_casts() -> None:
    a = NormalForm(Universe(relative=True))
    x, y = a.leaf("x", (4,), "float"), a.leaf("y", (4,), "float")
    assert narrowed(a, a.add([x, y])).key() != a.add([narrowed(a, x), narrowed(a, y)]).key()
    assert narrowed(a, a.scale(x, 0)).key() == a.scale(x, 0).key()


WIDER, OTHERS = ("float32", "float64"), (TYPE, "float16")


def test_what_the_specification_has_in_a_wider_type_alone(a: NormalForm) -> None:
    x, w = a.leaf("x", (4, 6), "float"), a.leaf("w", (6, 5), "float")
    product = a.contract([(x, "ik"), (w, "kj")], "ij")
    for value in (x, w):
        a.hold(value, TYPE)
    a.hold(product, "float32")
    a.universe.specifying = False
    half = a.contract([(a.slice(x, 1, 0, 3), "ik"), (a.slice(w, 0, 0, 3), "kj")], "ij")
    assert a.only_wider(product, WIDER, OTHERS) == "float32"
    assert a.only_wider(a.slice(product, 0, 1, 3), WIDER, OTHERS) == "float32"
    assert a.only_wider(half, WIDER, OTHERS) == "float32"
    assert a.only_wider(a.scale(half, Fraction(1, 3)), WIDER, OTHERS) is None
    assert a.only_wider(x, WIDER, OTHERS) is None
    assert a.only_wider(a.add([x, x]), WIDER, OTHERS) is None


def test_a_part_or_a_power_of_two_of_it_in_the_narrow_type_is_enough(a: NormalForm) -> None:
    x = a.leaf("x", (4, 6), "float")
    total, root = a.sum(x, (1,)), a.apply("exp", (), [x], "float")
    a.hold(total, "float32")
    a.hold(a.sum(a.slice(x, 1, 0, 2), (1,)), TYPE)
    a.hold(a.scale(root, 3), "float32")
    a.hold(a.scale(root, Fraction(-3, 8)), TYPE)
    a.universe.specifying = False
    assert a.only_wider(total, WIDER, OTHERS) is None
    assert a.only_wider(a.scale(root, 3), WIDER, OTHERS) is None


def test_what_a_rank_has_in_the_narrow_type_says_nothing_of_the_specification(a: NormalForm) -> None:
    x = a.apply("exp", (), [a.leaf("x", (4, 6), "float")], "float")
    a.hold(x, "float32")
    a.universe.specifying = False
    a.hold(x, TYPE)
    assert a.holds(x, TYPE)
    assert not a.specifies(x, TYPE)
    assert a.only_wider(x, WIDER, OTHERS) == "float32"


def test_digits_are_the_same_but_for_signs_and_powers_of_two(a: NormalForm) -> None:
    x, y = a.leaf("x", (4,), "float"), a.leaf("y", (4,), "float")
    assert same_digits(x, a.scale(x, Fraction(-1, 4)))
    assert same_digits(a.add([x, a.scale(y, 3)]), a.add([a.scale(x, 2), a.scale(y, 6)]))
    assert not same_digits(x, a.scale(x, 3))
    assert not same_digits(a.add([x, y]), a.add([x, a.scale(y, 2)]))
