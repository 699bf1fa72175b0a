"""Results of contractions as unknowns of their own, in the specification and wherever ranks have them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from graphguard.ir import Node, TensorType, Var
from graphguard.refine.evaluation.evaluate import OneEach
from graphguard.refine.evaluation.hidden import Hidden
from graphguard.refine.evaluation.shards import Shards
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue

ROWS, INNER, COLUMNS = 6, 4, 5


class Work:
    """A product ``x w`` whose result is hidden."""

    def __init__(self, shown: Collection[int] = ()) -> None:
        self.a = NormalForm()
        self.own = OneEach()
        self.hidden = Hidden(self.a, self.own, Shards(self.a, self.own), shown)
        self.x, self.w = self.a.leaf("x", (ROWS, INNER), "float"), self.a.leaf("w", (INNER, COLUMNS), "float")
        self.whole = self.product()

    def product(self, rows: tuple[int, int] = (0, ROWS), inner: tuple[int, int] = (0, INNER)) -> NormalValue:
        x = self.a.slice(self.a.slice(self.x, 0, *rows), 1, *inner)
        return self.own(self.a.contract([(x, "nk"), (self.a.slice(self.w, 0, *inner), "kj")], "nj"))

    def unknown(self, op: str = "aten.mm.default") -> NormalValue:
        """What stands for it from the specification's call on."""
        var = Var(0)
        types = {var: TensorType(self.whole.shape, "float32")}
        (found,) = self.hidden.of_specification(Node(op, (), {}, (var,)), types, (self.whole,))
        return found


def test_what_a_contraction_gives_is_hidden() -> None:
    work = Work()
    unknown = work.unknown()
    assert unknown is not work.whole
    assert unknown is work.unknown(), "once"
    assert work.hidden.of_rank(work.whole) is unknown
    assert work.unknown("aten.relu.default") is work.whole, "what is no contraction is not"


@pytest.mark.parametrize("multiple", [1, 2, -1])
@pytest.mark.parametrize("rows", [(0, 3), (3, 6), (1, 5)])
def test_parts_and_multiples_of_it(rows: tuple[int, int], multiple: int) -> None:
    work = Work()
    unknown = work.unknown()
    found = work.hidden.of_rank(work.own(work.a.scale(work.product(rows), multiple)))
    assert work.a.same(found, work.a.scale(work.a.slice(unknown, 0, *rows), multiple))
    assert not work.hidden.unmet


def test_what_is_something_else_stays() -> None:
    """A partial sum, other columns of another product, another type of numbers."""
    work = Work()
    work.unknown()
    partial = work.product(inner=(0, 2))
    turned = work.own(work.a.permute(work.whole, (1, 0)))
    sum_of_two = work.own(work.a.add([work.whole, work.a.expand(work.a.slice(work.whole, 0, 0, 1), (ROWS, COLUMNS))]))
    for value in (partial, turned, sum_of_two, work.own(work.x)):
        assert work.hidden.of_rank(value) is value
    assert work.hidden.unmet == {0}


def test_partial_sums_that_are_added_up() -> None:
    work = Work()
    unknown = work.unknown()
    parts = [work.hidden.of_rank(work.product(inner=inner)) for inner in ((0, 2), (2, 4))]
    assert work.hidden.of_rank(work.own(work.a.add(parts))) is unknown


def test_what_no_rank_had_can_be_shown() -> None:
    work = Work()
    work.unknown()
    again = Work(work.hidden.unmet)
    assert again.unknown() is again.whole
    assert again.hidden.unmet == {0}, "the same as before: nothing is left to try"
