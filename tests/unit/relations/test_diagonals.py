"""Functions of numbers that differ on a diagonal: one form with the choice between two functions, and what they denote."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.arithmetic import function, minus, negative, times
from graphguard.rules.elements.activations import log_sigmoid

SIZE = 4


def diagonal(a: NormalForm, shift: int = 0) -> NormalValue:
    row = a.expand(a.reshape(a.iota(SIZE), (SIZE, 1)), (SIZE, SIZE))
    column = a.expand(a.reshape(a.iota(SIZE), (1, SIZE)), (SIZE, SIZE))
    return a.number(a.compare("eq", a.add([row, a.full((SIZE, SIZE), shift, "int")]), column), "float")


def applied(a: NormalForm, name: str, x: NormalValue) -> NormalValue:
    return log_sigmoid(a, x) if name == "log_sigmoid" else function(a, name, x)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf", "log_sigmoid"])
@pytest.mark.parametrize("shift", [0, 1])
def test_signs_that_differ_on_a_diagonal(name: str, shift: int) -> None:
    a = NormalForm(Universe(expand=12))
    x = a.leaf("x", (SIZE, SIZE), "float")
    on = diagonal(a)
    signs = minus(a, a.scale(on, 2), 1)
    inside = applied(a, name, times(a, signs, x))
    chosen = a.where(a.truth(diagonal(a, shift)), applied(a, name, x), applied(a, name, negative(a, x)))
    assert a.same(inside, chosen) is (shift == 0)

    elements = np.random.default_rng(0).normal(size=(SIZE, SIZE))
    z = (2 * np.eye(SIZE) - 1) * elements
    meant = {
        "sigmoid": lambda: 1 / (1 + np.exp(-z)),
        "tanh": lambda: np.tanh(z),
        "log_sigmoid": lambda: -np.log1p(np.exp(-z)),
    }
    if name in meant:
        assert np.allclose(Denotation({"x": elements}).value(inside), meant[name]())
