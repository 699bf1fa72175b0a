"""Truths as numbers: their largest and smallest, against numbers and in every spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.numbers import Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.rules.basis.arithmetic import compared, convert, smaller
from graphguard.rules.lines.reductions import all_rule, any_rule

ROWS, COLUMNS = 7, 6
Flag = Callable[[Any, Any], Any]


def beyond(bound: float) -> Flag:
    return lambda a, x: compared(a, "gt", x, bound)


def found(bound: float, start: int = 0, stop: int = COLUMNS) -> Flag:
    return lambda a, x: any_rule(a, beyond(bound)(a, a.slice(x, 1, start, stop)), [1])


def everywhere(bound: float, start: int = 0, stop: int = COLUMNS) -> Flag:
    return lambda a, x: all_rule(a, beyond(bound)(a, a.slice(x, 1, start, stop)), [1])


def opposite(flag: Flag) -> Flag:
    return lambda a, x: a.logical_not(flag(a, x))


def number(flag: Flag) -> Flag:
    return lambda a, x: convert(a, flag(a, x), "float")


def largest(*flags: Flag) -> Flag:
    def act(a: Any, x: Any) -> Any:
        out = number(flags[0])(a, x)
        for flag in flags[1:]:
            out = a.maximum(out, number(flag)(a, x))
        return out

    return act


def least(*flags: Flag) -> Flag:
    def act(a: Any, x: Any) -> Any:
        out = number(flags[0])(a, x)
        for flag in flags[1:]:
            out = smaller(a, out, number(flag)(a, x))
        return out

    return act


SAME: dict[str, tuple[Flag, Flag]] = {
    "any of parts": (number(found(0.5)), largest(found(0.5, 0, 4), found(0.5, 4))),
    "any of three parts": (number(found(0.5)), largest(found(0.5, 0, 1), found(0.5, 1, 4), found(0.5, 4))),
    "all of parts": (number(everywhere(-1)), least(everywhere(-1, 0, 4), everywhere(-1, 4))),
    "none of parts": (number(opposite(found(0.5))), least(opposite(found(0.5, 0, 4)), opposite(found(0.5, 4)))),
    "not all of parts": (
        number(opposite(everywhere(-1))),
        largest(opposite(everywhere(-1, 0, 4)), opposite(everywhere(-1, 4))),
    ),
    "or": (
        number(lambda a, x: a.logical_or(beyond(0.5)(a, x), opposite(beyond(-1))(a, x))),
        largest(beyond(0.5), opposite(beyond(-1))),
    ),
    "and": (
        number(lambda a, x: a.logical_and(beyond(-1)(a, x), opposite(beyond(0.5))(a, x))),
        least(beyond(-1), opposite(beyond(0.5))),
    ),
    "twice the same": (number(beyond(0.5)), largest(beyond(0.5), beyond(0.5))),
}
OTHER: dict[str, tuple[Flag, Flag]] = {
    "any of parts that leave one out": (number(found(0.5)), largest(found(0.5, 0, 3), found(0.5, 4))),
    "any of another bound": (number(found(0.5)), largest(found(0.5, 0, 4), found(0.6, 4))),
    "all for any": (number(found(0.5)), largest(everywhere(0.5, 0, 4), everywhere(0.5, 4))),
    "least for largest": (number(found(0.5)), least(found(0.5, 0, 4), found(0.5, 4))),
    "any for all": (number(everywhere(-1)), least(found(-1, 0, 4), found(-1, 4))),
    "all of parts that leave one out": (number(everywhere(-1)), least(everywhere(-1, 0, 3), everywhere(-1, 4))),
}
MIXED: dict[str, Flag] = {
    "any and all": largest(found(0.5, 0, 4), everywhere(-1, 4)),
    "least of any and all": least(found(0.5, 0, 4), everywhere(-1, 4)),
    "any and none": largest(found(0.5, 0, 4), opposite(found(0.5, 4))),
    "least of all and not all": least(everywhere(-1, 0, 4), opposite(everywhere(-1, 4))),
    "of two bounds": largest(found(0.5, 0, 4), found(-1, 2)),
}


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


@pytest.mark.parametrize("name", SAME)
def test_spellings(a: NormalForm, name: str) -> None:
    x = a.leaf("x", (ROWS, COLUMNS), "float")
    one, other = (flag(a, x) for flag in SAME[name])
    assert equal(a.universe, one, other)


@pytest.mark.parametrize("name", OTHER)
def test_others_differ(a: NormalForm, name: str) -> None:
    x = a.leaf("x", (ROWS, COLUMNS), "float")
    one, other = (flag(a, x) for flag in OTHER[name])
    assert not equal(a.universe, one, other)


@pytest.mark.parametrize(
    "flag", [*MIXED.values(), *(pair[1] for pair in SAME.values()), *(pair[1] for pair in OTHER.values())]
)
def test_numbers(a: NormalForm, flag: Flag) -> None:
    data = np.random.default_rng(3).uniform(-1.5, 1, (ROWS, COLUMNS))
    data[0], data[1], data[2, 4:], data[3, :4] = 0.9, -1.2, 0.9, 0.9
    value = flag(a, a.leaf("x", (ROWS, COLUMNS), "float"))
    tables = {kernel.id: table for kernel, table in a.universe.tables}
    numbers = Numbers()
    wanted = flag(numbers, numbers.literal(data)).array
    np.testing.assert_allclose(Denotation({"x": data}, closed, tables).value(value), wanted)
