"""Operators that a user declares in a line."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import TraitError, evaluate_node, parse_trait, parse_traits

X, W, Y = Var(0), Var(1), Var(2)


def call(algebra: NormalForm, trait: str, x: NormalValue, w: NormalValue, out: tuple[int, ...]) -> NormalValue:
    types = {X: TensorType(x.shape, "float64"), W: TensorType(w.shape, "float64"), Y: TensorType(out, "float64")}
    node = Node("my.op", (X, W, 3), {}, (Y,))
    notes: list[str] = []
    declared = parse_traits({"my.op": trait})
    (result,) = evaluate_node(algebra, node, Graph({}, {}, (node,), types, {}), {X: x, W: w}, notes.append, declared)
    assert notes == []
    return result


@pytest.fixture
def algebra() -> NormalForm:
    return NormalForm()


def test_elementwise_commutes_with_slices(algebra: NormalForm) -> None:
    x, w = algebra.leaf("x", (4, 6), "float"), algebra.leaf("w", (4, 6), "float")
    whole = call(algebra, "elementwise", x, w, (4, 6))
    part = call(algebra, "elementwise", algebra.slice(x, 1, 2, 5), algebra.slice(w, 1, 2, 5), (4, 3))
    assert equal(algebra.universe, algebra.slice(whole, 1, 2, 5), part)


def test_batched_commutes_with_slices_of_batch_dims_only(algebra: NormalForm) -> None:
    x, w = algebra.leaf("x", (4, 6), "float"), algebra.leaf("w", (6,), "float")
    whole = call(algebra, "batched(bH, H -> bH)", x, w, (4, 6))
    part = call(algebra, "batched(bH, H -> bH)", algebra.slice(x, 0, 1, 3), w, (2, 6))
    assert equal(algebra.universe, algebra.slice(whole, 0, 1, 3), part)
    cut = call(algebra, "batched(bH, H -> bH)", algebra.slice(x, 1, 0, 3), algebra.slice(w, 0, 0, 3), (4, 3))
    assert not equal(algebra.universe, algebra.slice(whole, 1, 0, 3), cut)


def test_linear_takes_sums_and_factors_out(algebra: NormalForm) -> None:
    x, w = algebra.leaf("x", (4, 6), "float"), algebra.leaf("w", (4, 6), "float")
    trait = "linear(0; bI, OI -> bO)"
    single = "linear(0; I, OI -> O)"
    of_sum = call(algebra, single, algebra.scale(algebra.sum(x, [0]), Fraction(1, 4)), w, (4,))
    of_rows = algebra.sum(call(algebra, trait, x, w, (4, 4)), [0])
    assert equal(algebra.universe, of_sum, algebra.scale(of_rows, Fraction(1, 4)))


def test_a_linear_operator_is_batched_too(algebra: NormalForm) -> None:
    x, w = algebra.leaf("x", (4, 6), "float"), algebra.leaf("w", (4, 6), "float")
    trait = "linear(0; bI, OI -> bO)"
    whole = call(algebra, trait, x, w, (4, 4))
    part = call(algebra, trait, algebra.slice(x, 0, 2, 4), w, (2, 4))
    assert equal(algebra.universe, algebra.slice(whole, 0, 2, 4), part)


def test_a_call_that_does_not_fit_stays_closed_and_says_so(algebra: NormalForm) -> None:
    x = algebra.leaf("x", (4, 6), "float")
    types = {X: TensorType((4, 6), "float64"), Y: TensorType((4, 6), "float64")}
    node = Node("my.op", (X,), {}, (Y,))
    notes: list[str] = []
    declared = parse_traits({"my.op": "batched(b -> b)"})
    evaluate_node(algebra, node, Graph({}, {}, (node,), types, {}), {X: x}, notes.append, declared)
    assert notes == ["my.op does not fit its declared trait: 1 tensors of other ranks"]


@pytest.mark.parametrize(
    "text", ["", "sharded", "batched(b b -> b)", "linear(3; a -> a)", "batched(aa -> a)", "batched(0; a -> a)"]
)
def test_a_wrong_declaration_is_an_error(text: str) -> None:
    with pytest.raises(TraitError):
        parse_trait(text)


def test_a_declaration_is_read() -> None:
    trait = parse_trait(" linear(1; bA, C -> bC) ")
    assert (trait.form, trait.inputs, trait.out, trait.argument) == ("linear", ("bA", "C"), "bC", 1)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)], ids=len)
def test_dims_before_are_whatever_there_are(algebra: NormalForm, lead: tuple[int, ...]) -> None:
    x, w = algebra.leaf("x", (*lead, 6, 5), "float"), algebra.leaf("w", (*lead, 6), "float")
    whole = call(algebra, "batched(...bH, ...b -> ...bO)", x, w, (*lead, 6, 3))
    for dim in range(len(lead) + 1):
        part = [algebra.slice(v, dim, 0, 1) for v in (x, w)]
        out = (*whole.shape[:dim], 1, *whole.shape[dim + 1 :])
        assert equal(
            algebra.universe,
            algebra.slice(whole, dim, 0, 1),
            call(algebra, "batched(...bH, ...b -> ...bO)", part[0], part[1], out),
        )


def test_dims_before_are_as_many_everywhere(algebra: NormalForm) -> None:
    x, w = algebra.leaf("x", (2, 6, 5), "float"), algebra.leaf("w", (6,), "float")
    types = {X: TensorType(x.shape, "float64"), W: TensorType(w.shape, "float64"), Y: TensorType((2, 6, 3), "float64")}
    node = Node("my.op", (X, W, 3), {}, (Y,))
    notes: list[str] = []
    declared = parse_traits({"my.op": "batched(...bH, ...b -> ...bO)"})
    evaluate_node(algebra, node, Graph({}, {}, (node,), types, {}), {X: x, W: w}, notes.append, declared)
    assert notes == ["my.op does not fit its declared trait: 2 tensors of other ranks"]
