"""Functions known by their name only see the dims that they take whole, in order."""

from collections.abc import Callable

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

ROWS, LENGTH = 4, 5
Closed = Callable[[NormalForm, NormalValue], NormalValue]


def position(a: NormalForm, v: NormalValue) -> NormalValue:
    """One number a line, as the place of its largest element."""
    return a.opaque("place", (), [(v, "aN")], "a", (ROWS,), "int")


def ordered(a: NormalForm, v: NormalValue) -> NormalValue:
    """A new line for a line, as sorting."""
    return a.opaque("sorted", (), [(v, "aN")], "aM", (ROWS, LENGTH), "float")


def running(a: NormalForm, v: NormalValue) -> NormalValue:
    """A line along the same dim, as a running sum."""
    return a.opaque("running", (), [(v, "aN")], "aN", (ROWS, LENGTH), "float")


@pytest.mark.parametrize("closed", [position, ordered, running])
@pytest.mark.parametrize("specifying", [True, False])
def test_a_reversed_line_is_another_line(closed: Closed, specifying: bool) -> None:
    universe = Universe()
    a = NormalForm(universe)
    x = a.leaf("x", (ROWS, LENGTH), "float")
    of_x = closed(a, x)
    universe.specifying = specifying
    assert not equal(universe, closed(a, a.flip(x, 1)), of_x)
    if closed is running:
        assert not equal(universe, closed(a, a.flip(x, 1)), a.flip(of_x, 1))


@pytest.mark.parametrize("closed", [position, ordered, running])
def test_reversed_rows_are_the_rows_reversed(closed: Closed) -> None:
    universe = Universe()
    a = NormalForm(universe)
    x = a.leaf("x", (ROWS, LENGTH), "float")
    assert equal(universe, closed(a, a.flip(x, 0)), a.flip(closed(a, x), 0))
