"""What a normal form denotes is computed once for every kernel, so it costs no more than the kernels are many."""

import resource
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import Program, Result, Rounded, closed
from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation, _spread
from graphguard.relations.terms.kernels import Universe


@pytest.mark.timeout(60)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_value_that_is_used_twice_at_every_step(shape: tuple[int, ...]) -> None:
    def act(a: Any, x: Any) -> Any:
        value = a.sum(x, [len(shape)])
        for _ in range(40):
            half = a.scale(value, Fraction(1, 2))
            value = a.add([a.apply("tanh", (), [value], "float"), a.apply("sigmoid", (), [half], "float")])
        return value

    data = np.random.default_rng(0).uniform(0.6, 1.4, (*shape, 3))
    universe, numbers = Universe(), Numbers()
    form = act(NormalForm(universe), NormalForm(universe).leaf("x", data.shape, "float"))
    expected = act(numbers, numbers.literal(data)).array
    np.testing.assert_allclose(Denotation({"x": data}, closed, {}).value(form), expected)


def test_a_product_of_more_sums_than_an_array_has_dims_is_left_closed() -> None:
    algebra = NormalForm(Universe())
    x = algebra.leaf("x", (3, 2), "float")
    power = algebra.sum(algebra.multiply(x, x), [1])
    for _ in range(5):
        power = algebra.multiply(power, power)
    with pytest.raises(Unsupported, match="too many dims"):
        Denotation({"x": np.ones((3, 2))}).value(power)


def test_the_place_of_an_integer_that_is_a_sum_of_thirds() -> None:
    algebra, data = NormalForm(Universe()), np.random.default_rng(0).uniform(0.6, 1.4, (40, 6))
    x = algebra.leaf("x", data.shape, "float")

    def number(of: int) -> Any:
        return algebra.full((40,), Fraction(of), "int")

    top = place = None
    for low in (0, 2, 4):
        part = algebra.slice(x, 1, low, low + 2)
        largest = algebra.max_over(part, [1])
        there = algebra.add([algebra.place_of_largest(part, 1), number(low)])
        if top is not None:
            there = algebra.where(algebra.compare("le", top, largest), there, place)
            largest = algebra.maximum(top, largest)
        top, place = largest, there
    late = algebra.where(algebra.compare("lt", place, number(3)), number(0), algebra.add([place, number(-3)]))
    found = Denotation({"x": data}, closed, {}).value(algebra.one_hot(late, 6))
    np.testing.assert_array_equal(found, np.eye(6)[np.maximum(data.argmax(1) - 3, 0)])


def test_an_exponential_that_floats_hold_as_one_is_rounded() -> None:
    """It may be one of a large power: what the fuzz finds apart there is rounding, and what it knows exactly is not."""
    algebra = NormalForm(Universe())
    tiny = algebra.exp(algebra.leaf("x", (40,), "float"))
    leaves = {"x": np.linspace(1e-21, 2e-21, 40)}
    assert (Denotation(leaves, closed, {}).value(tiny) == 1).all()
    assert (Rounded(leaves, {}, np.random.default_rng(0)).value(tiny) != 1).any()
    exact = algebra.exp(algebra.full((40,), Fraction(0), "float"))
    assert (Rounded(leaves, {}, np.random.default_rng(0)).value(exact) == 1).all()


def test_a_large_product_that_is_summed_over_nothing_takes_no_memory() -> None:
    """Random program 5000026208: the factors with the empty dim come last, and what comes before them has 1.7 billion elements."""
    result = Result()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30), limits[1]))
    try:
        Program(5000026208, result).run()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not result.wrong
    assert result.nodes


def test_a_shape_of_more_elements_than_an_integer_counts() -> None:
    assert _spread([(3, 1), (1, 2)]) == np.broadcast_shapes((3, 1), (1, 2))
    assert _spread([(1,), (0,)]) == (0,)
    assert _spread([(4,), (2, 1)]) == (2, 4)
    assert _spread([]) == ()
    assert _spread([(1 << 40, 1), (1, 1 << 40)]) == (1 << 40, 1 << 40)


class _Little(Denotation):
    largest = 1 << 10


@pytest.mark.parametrize("masked", [True, False])
def test_a_sum_of_what_is_infinite_where_it_is_masked_is_not_written_down(masked: bool) -> None:
    algebra, rng = NormalForm(Universe()), np.random.default_rng(0)
    shapes = {"x": (8, 8), "w": (8, 32), "v": (32, 8)}
    leaves = {name: rng.uniform(0.5, 1.5, shape) for name, shape in shapes.items()}
    leaves["x"][2] = -1000 if masked else 1000  # of which the exponential is infinite
    x, w, v = (algebra.leaf(name, shape, "float") for name, shape in shapes.items())
    large = algebra.compare("lt", algebra.full((8, 8), Fraction(0), "float"), x)
    kept = algebra.multiply(algebra.number(large, "float"), algebra.exp(algebra.scale(x, -1)))
    value = algebra.contract([(kept, "ij"), (w, "jk"), (v, "kl")], "il")
    expected = np.where(leaves["x"] > 0, np.exp(-np.maximum(leaves["x"], 0)), 0) @ leaves["w"] @ leaves["v"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(_Little(leaves, closed, {}).value(value), expected)
