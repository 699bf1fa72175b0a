"""Residues: the laws that random interpretation rests on, and the opinions that come of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graphguard.confirm.fields.fields import Fields
from graphguard.confirm.fields.residues import P, Q, Residues, powers
from graphguard.confirm.opinion import second_opinion
from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType
from graphguard.ir.building import Builder
from graphguard.relations.algebra import Unsupported

F = Fields()
X, Y = F.leaf("x", (3, 4), "float"), F.leaf("y", (3, 4), "float")


def same(a: Residues, b: Residues) -> bool:
    return a.shape == b.shape and bool((a.p == b.p).all()) and (a.q is None or b.q is None or bool((a.q == b.q).all()))


def test_the_fields_are_those_of_the_method():
    assert P == 2 * Q + 1
    assert all(number % d for number in (P, Q) for d in range(2, int(number**0.5) + 1))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (F.multiply(F.add([X, Y]), X), F.add([F.multiply(X, X), F.multiply(X, Y)])),
        (F.exp(F.add([X, Y])), F.multiply(F.exp(X), F.exp(Y))),
        (F.exp(F.scale(X, Fraction(-2))), F.power(F.exp(X), Fraction(-2))),
        (F.multiply(F.power(X, Fraction(-1)), X), F.full((3, 4), Fraction(1), "float")),
        (F.power(F.power(F.multiply(X, X), Fraction(1, 2)), Fraction(2)), F.multiply(X, X)),
        (
            F.contract([(X, "ij"), (Y, "kj")], "ik"),
            F.sum(
                F.multiply(F.expand(F.reshape(X, (3, 1, 4)), (3, 3, 4)), F.expand(F.reshape(Y, (1, 3, 4)), (3, 3, 4))),
                [2],
            ),
        ),
        (F.maximum(X, Y), F.maximum(Y, X)),
        (F.scale(F.scale(X, Fraction(1, 3)), Fraction(3)), X),
    ],
)
def test_laws(left, right):
    assert same(left, right)


def test_powers_of_a_generator():
    generator = int(powers(np.array(1)))
    exponents = [0, 1, 2, 1023, 1024, 1025, Q - 1, Q]
    assert powers(np.array(exponents)).tolist() == [pow(generator, each, P) for each in exponents]
    assert int(powers(np.array(Q))) == 1


def test_what_differs_differs():
    assert not same(F.exp(F.add([X, Y])), F.exp(X))
    assert not same(F.apply("tanh", (), [X], "float"), F.apply("tanh", (), [Y], "float"))
    assert not same(F.scale(X, Fraction(2)), X)


def test_minus_infinity_is_a_mask_and_nothing_else():
    masked = F.where(F.literal(np.array([[True, False, True, True]] * 3)), X, F.full((3, 4), float("-inf"), "float"))
    assert (F.exp(masked).p[:, 1] == 0).all()
    with pytest.raises(Unsupported, match="minus infinity"):
        F.multiply(masked, X)


def test_closed_functions_are_split_along_batch_letters_only():
    whole = F.opaque("f", (), [(X, "iK")], "iM", (3, 2), "float")
    row = F.opaque("f", (), [(F.slice(X, 0, 1, 2), "iK")], "iM", (1, 2), "float")
    assert same(F.slice(whole, 0, 1, 2), row)
    assert not same(F.opaque("f", (), [(F.flip(X, 1), "iK")], "iM", (3, 2), "float"), whole)


def halves(op: str, rank: int) -> Graph:
    b = Builder()
    x = b.input("x", (6, 4))
    part = b.call("aten.slice.Tensor", x, 1, 2 * rank, 2 * rank + 2, out=((6, 2), "float32"))
    total = b.call(
        "aten.sum.dim_IntList", b.call("aten.exp.default", part, out=((6, 2), "float32")), (1,), out=((6,), "float32")
    )
    total = b.call("gg.all_reduce", total, op, (0, 1), out=((6,), "float32"))
    b.outputs["out"] = b.call("aten.reciprocal.default", total, out=((6,), "float32"))
    return b.graph()


@pytest.mark.parametrize(("op", "status"), [("sum", "equal"), ("avg", "differs")])
def test_opinion(op, status):
    b = Builder()
    e = b.call("aten.exp.default", b.input("x", (6, 4)), out=((6, 4), "float32"))
    b.outputs["out"] = b.call(
        "aten.reciprocal.default", b.call("aten.sum.dim_IntList", e, (1,), out=((6,), "float32")), out=((6,), "float32")
    )
    promise = Promise("out", {"tp": Placement("replicate")})
    leaves = (Leaf("x", "input", TensorType((6, 4), "float32")),)
    check = CheckRef("c.py::c", "c", Span("c.py", 1))
    capture = Capture(check, {"tp": 2}, leaves, b.graph(), tuple(halves(op, r) for r in (0, 1)), (promise,))
    assert second_opinion(capture) == status
