"""Positions that are all different: where each is counted once, and where it may be counted more often."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.lines.selection import topk


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


def chosen(a: NormalForm) -> NormalValue:
    """Three places among ten for each of four tokens, none of them twice for one token: [4, 3]."""
    return topk(a, a.leaf("x", (4, 10), "float"), 3)[1]


def counted(a: NormalForm, places: NormalValue, dims: str) -> NormalValue:
    """How often every value comes, over the dims that are not named: ``t`` a token, ``k`` a choice, ``v`` a value."""
    return a.contract([(a.one_hot(places, 10), "tkv")], dims)


def test_the_choices_of_a_token_are_counted_once(a: NormalForm) -> None:
    places = chosen(a)
    assert a.distinct(places, 1)
    assert a.at_most_once(counted(a, places, "tv"))
    assert a.at_most_once(counted(a, places, "tkv"))
    assert a.at_most_once(counted(a, a.slice(places, 1, 1, 3), "tv"))


def test_the_choices_of_several_tokens_may_be_the_same(a: NormalForm) -> None:
    places = chosen(a)
    assert not a.distinct(places, 0)
    assert not a.at_most_once(counted(a, places, "kv"))
    assert not a.at_most_once(counted(a, places, "v"))


def test_any_integers_may_be_the_same(a: NormalForm) -> None:
    places = a.leaf("i", (4, 3), "int")
    assert a.at_most_once(counted(a, places, "tkv"))
    assert not a.at_most_once(counted(a, places, "tv"))


def test_twice_what_is_counted_once_is_not(a: NormalForm) -> None:
    once = counted(a, chosen(a), "tv")
    assert not a.at_most_once(a.scale(once, Fraction(2)))
    assert not a.at_most_once(a.add([once, once]))
    assert not a.at_most_once(a.leaf("y", (4, 10), "float"))


def test_a_choice_that_is_repeated_is_counted_more_than_once(a: NormalForm) -> None:
    places = chosen(a)
    assert not a.at_most_once(counted(a, a.concat([places, places], 1), "tv"))
    assert not a.at_most_once(counted(a, a.concat([places, a.slice(places, 1, 0, 1)], 1), "tv"))
    assert not a.at_most_once(counted(a, a.expand(a.slice(places, 1, 0, 1), (4, 3)), "tv"))
