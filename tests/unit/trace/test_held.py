"""Whether a program may read an array again."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphguard.trace.source.held import is_read_later


def asks(owners: list[Any]) -> bool:
    return is_read_later(lambda: owners[0], 1, sys._getframe(1))


def read_afterwards() -> bool:
    owners = [np.zeros(3)]
    array = owners[0]
    found = asks(owners)
    assert array.size == 3
    return found


def read_before() -> bool:
    owners = [np.zeros(3)]
    array = owners[0]
    assert array.size == 3
    return asks(owners)


def read_in_the_next_turn() -> bool:
    owners, found = [np.zeros(3)], False
    array = owners[0]
    for _ in range(2):
        assert array.size == 3
        found = found or asks(owners)
    return found


def made_anew_in_every_turn() -> bool:
    found = False
    for _ in range(2):
        array = np.zeros(3)
        owners = [array]
        found = found or asks(owners)
    return found


def view_read_afterwards() -> bool:
    owners = [np.zeros(3)]
    view = owners[0][1:]
    found = asks(owners)
    assert view.size == 2
    return found


def view_read_before() -> bool:
    owners = [np.zeros(3)]
    view = owners[0][1:]
    assert view.size == 2
    return asks(owners)


def in_a_list() -> bool:
    owners = [np.zeros(3)]
    others = [owners[0]]
    found = asks(owners)
    assert others
    return found


def in_a_function_that_lives_on() -> bool:
    owners = [np.zeros(3)]
    array = owners[0]

    def size() -> int:
        return int(array.size)

    found = asks(owners)
    assert size() == 3
    return found


def in_a_handler() -> bool:
    owners, found = [np.zeros(3)], False
    array = owners[0]
    try:
        found = asks(owners)
        raise ValueError  # noqa: TRY301 - what a handler keeps is the point
    except ValueError:
        assert array.size == 3
    return found


def by_the_caller() -> bool:
    owners = [np.zeros(3)]
    array = owners[0]
    found = _passed_on(owners)
    assert array.size == 3
    return found


def _passed_on(owners: list[Any]) -> bool:
    return asks(owners)


@pytest.mark.parametrize(
    "program",
    [read_afterwards, read_in_the_next_turn, view_read_afterwards, in_a_list, in_a_function_that_lives_on, in_a_handler, by_the_caller],
)  # fmt: skip
def test_it_may(program: Callable[[], bool]) -> None:
    assert program()


@pytest.mark.parametrize("program", [read_before, made_anew_in_every_turn, view_read_before])
def test_it_does_not(program: Callable[[], bool]) -> None:
    assert not program()
    assert not program()  # asking leaves nothing behind that holds it
