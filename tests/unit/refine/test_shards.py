"""Calls on parts of the operands of a call: known from it, where they are seen to be the same parts."""

from __future__ import annotations

import pytest

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.refine.evaluation.shards import Shards
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import evaluate_node
from graphguard.rules.basis.traits import parse_trait


class Work:
    """Calls over one universe, made by their rules or known from others."""

    def __init__(self) -> None:
        self.algebra = NormalForm()
        self.shards = Shards(self.algebra, self.own, ["my.mix"])
        self._owned: dict[object, NormalValue] = {}

    def own(self, value: NormalValue) -> NormalValue:
        return self._owned.setdefault(value.key(), value)

    def leaf(self, name: str, *shape: int) -> NormalValue:
        return self.own(self.algebra.leaf(name, shape, "float"))

    def rows(self, value: NormalValue, low: int, high: int, dim: int = 0) -> NormalValue:
        return self.own(self.algebra.slice(value, dim, low, high))

    def call(
        self, op: str, args: tuple[object, ...], *shapes: tuple[int, ...]
    ) -> tuple[Node, Graph, dict[Var, NormalValue]]:
        values: dict[Var, NormalValue] = {}
        types: dict[Var, TensorType] = {}

        def named(arg: object) -> object:
            if isinstance(arg, NormalValue):
                var = Var(len(types))
                values[var], types[var] = arg, TensorType(arg.shape, "float32")
                return var
            return arg

        bound = tuple(named(arg) for arg in args)
        outs = tuple(Var(len(values) + index) for index in range(len(shapes)))
        types |= {out: TensorType(shape, "float32") for out, shape in zip(outs, shapes, strict=True)}
        node = Node(op, bound, {}, outs)  # type: ignore[arg-type]
        return node, Graph({}, {}, (node,), types, {}), values

    def evaluated(self, node: Node, graph: Graph, values: dict[Var, NormalValue]) -> tuple[NormalValue, ...]:
        return evaluate_node(self.algebra, node, graph, values, traits={"my.mix": parse_trait("elementwise")})

    def learn(self, op: str, args: tuple[object, ...], *shapes: tuple[int, ...]) -> tuple[NormalValue, ...]:
        node, graph, values = self.call(op, args, *shapes)
        results = tuple(map(self.own, self.evaluated(node, graph, values)))
        self.shards.learn(node, graph.types, values, results)
        return results

    def known(self, op: str, args: tuple[object, ...], *shapes: tuple[int, ...]) -> tuple[NormalValue, ...] | None:
        """The results by the specification's; they must be what the rule makes of the parts."""
        node, graph, values = self.call(op, args, *shapes)
        found = self.shards.results(node, graph.types, values)
        if found is not None:
            made = self.evaluated(node, graph, values)
            assert all(equal(self.algebra.universe, a, b) for a, b in zip(found, made, strict=True))
        return found


@pytest.fixture
def work() -> Work:
    return Work()


MM = "aten.mm.default"
ADD = "aten.add.Tensor"


def test_rows_and_columns_of_a_product_are_known(work: Work) -> None:
    x, w = work.leaf("x", 6, 4), work.leaf("w", 4, 8)
    work.learn(MM, (x, w), (6, 8))
    assert work.known(MM, (work.rows(x, 2, 4), w), (2, 8)) is not None
    assert work.known(MM, (x, work.rows(w, 4, 8, 1)), (6, 4)) is not None
    assert work.known(MM, (work.rows(x, 5, 6), work.rows(w, 3, 4, 1)), (1, 1)) is not None


def test_a_part_of_a_sum_is_not(work: Work) -> None:
    x, w = work.leaf("x", 6, 4), work.leaf("w", 4, 8)
    work.learn(MM, (x, w), (6, 8))
    assert work.known(MM, (work.rows(x, 0, 2, 1), work.rows(w, 0, 2)), (6, 8)) is None


def test_parts_that_do_not_belong_together_are_not(work: Work) -> None:
    x, y = work.leaf("x", 6, 4), work.leaf("y", 6, 4)
    work.learn(ADD, (x, y), (6, 4))
    assert work.known(ADD, (work.rows(x, 0, 3), work.rows(y, 0, 3)), (3, 4)) is not None
    assert work.known(ADD, (work.rows(x, 0, 3), work.rows(y, 3, 6)), (3, 4)) is None
    assert work.known(ADD, (work.rows(y, 0, 3), work.rows(x, 0, 3)), (3, 4)) is None
    assert work.known(ADD, (work.rows(x, 0, 3), work.rows(y, 0, 3, 0), 2), (3, 4)) is None
    assert work.known("aten.sub.Tensor", (work.rows(x, 0, 3), work.rows(y, 0, 3)), (3, 4)) is None


def test_what_is_no_part_is_not(work: Work) -> None:
    x = work.leaf("x", 6, 6)
    work.learn("aten.exp.default", (x,), (6, 6))
    assert work.known("aten.exp.default", (work.rows(x, 1, 4),), (3, 6)) is not None
    assert work.known("aten.exp.default", (work.rows(work.algebra.permute(x, (1, 0)), 1, 4),), (3, 6)) is None
    assert work.known("aten.exp.default", (work.own(work.algebra.flip(work.rows(x, 1, 4), 0)),), (3, 6)) is None
    assert work.known("aten.exp.default", (work.own(work.algebra.scale(work.rows(x, 1, 4), 2)),), (3, 6)) is None


def test_rows_that_begin_in_the_whole_and_end_beyond_it_are_no_part(work: Work) -> None:
    x = work.leaf("x", 9, 4)
    work.learn("aten.exp.default", (work.rows(x, 1, 6),), (5, 4))
    assert work.known("aten.exp.default", (work.rows(x, 3, 6),), (3, 4)) is not None
    for first, last in ((4, 8), (0, 2), (6, 8)):
        assert work.known("aten.exp.default", (work.rows(x, first, last),), (last - first, 4)) is None


def test_a_repeated_operand_leaves_the_place_to_the_others(work: Work) -> None:
    x, bias = work.leaf("x", 6, 4), work.leaf("b", 4)
    wide = work.own(work.algebra.expand(bias, (6, 4)))
    work.learn(ADD, (x, wide), (6, 4))
    assert work.known(ADD, (work.rows(x, 4, 6), work.rows(wide, 0, 2)), (2, 4)) is not None
    assert work.known(ADD, (work.rows(x, 4, 6), work.rows(wide, 0, 2)), (2, 4)) == work.known(
        ADD, (work.rows(x, 4, 6), work.rows(wide, 4, 6)), (2, 4)
    )


def test_all_terms_of_a_sum_begin_at_one_place(work: Work) -> None:
    x, y, bias = work.leaf("x", 6, 4), work.leaf("y", 6, 4), work.leaf("b", 4)
    wide = work.algebra.expand(bias, (6, 4))

    def rows(low: int, other: int) -> NormalValue:
        parts = [work.rows(x, low, low + 2), work.rows(y, other, other + 2), work.rows(wide, 0, 2)]
        return work.own(work.algebra.add(parts))

    work.learn("aten.exp.default", (work.own(work.algebra.add([x, y, wide])),), (6, 4))
    assert work.known("aten.exp.default", (rows(2, 2),), (2, 4)) is not None
    assert work.known("aten.exp.default", (rows(2, 3),), (2, 4)) is None
    assert work.known("aten.exp.default", (rows(3, 2),), (2, 4)) is None


def test_merged_dims_are_a_part_where_the_cut_meets_the_outer_one(work: Work) -> None:
    x = work.leaf("x", 8, 4, 6)
    flat = work.own(work.algebra.reshape(x, (32, 6)))
    work.learn("aten.exp.default", (flat,), (32, 6))
    outer = work.own(work.algebra.reshape(work.rows(work.own(x), 4, 8), (16, 6)))
    inner = work.own(work.algebra.reshape(work.algebra.slice(x, 1, 0, 2), (16, 6)))
    assert work.known("aten.exp.default", (outer,), (16, 6)) is not None
    assert work.known("aten.exp.default", (inner,), (16, 6)) is None


def test_operands_of_other_ranks_are_no_parts(work: Work) -> None:
    x, row = work.leaf("x", 6, 4), work.leaf("r", 4)
    work.learn(ADD, (x, row), (6, 4))
    assert work.known(ADD, (work.own(work.algebra.reshape(x, (6, 4, 1))), row), (6, 4, 4)) is None
    assert work.known(ADD, (work.rows(x, 0, 3), row), (3, 4)) is not None


def test_pieces_are_parts_together(work: Work) -> None:
    x, y = work.leaf("x", 3, 6), work.leaf("y", 3, 6)
    both = work.own(work.algebra.concat([x, y], 0))
    work.learn("aten.exp.default", (both,), (6, 6))
    assert work.known("aten.exp.default", (work.rows(both, 2, 4, 1),), (6, 2)) is not None


def test_an_operator_that_is_declared_elementwise_is_known(work: Work) -> None:
    x, y = work.leaf("x", 6, 4), work.leaf("y", 6, 4)
    work.learn("my.mix", (x, y, 3), (6, 4))
    work.learn("my.other", (x, y, 3), (6, 4))
    assert work.known("my.mix", (work.rows(x, 1, 3), work.rows(y, 1, 3), 3), (2, 4)) is not None
    assert work.known("my.mix", (work.rows(x, 1, 3), work.rows(y, 1, 3), 4), (2, 4)) is None
    assert work.known("my.other", (work.rows(x, 1, 3), work.rows(y, 1, 3), 3), (2, 4)) is None


def test_heads_of_queries_go_with_the_heads_they_share(work: Work) -> None:
    q, k, v = work.leaf("q", 4, 3, 2), work.leaf("k", 2, 3, 2), work.leaf("v", 2, 3, 2)
    rest = (None, 0.0, True, None, True)
    work.learn("gg.sdpa", (q, k, v, *rest), (4, 3, 2))
    mine = (work.rows(k, 1, 2), work.rows(v, 1, 2))
    assert work.known("gg.sdpa", (work.rows(q, 2, 4), *mine, *rest), (2, 3, 2)) is not None
    assert work.known("gg.sdpa", (work.rows(q, 0, 2), *mine, *rest), (2, 3, 2)) is None
    assert work.known("gg.sdpa", (work.rows(q, 2, 3), *mine, *rest), (1, 3, 2)) is None


def test_calls_that_look_alike_are_tried_in_turns(work: Work) -> None:
    """Every rank makes parts of many calls on one tensor in the order in which the specification made these."""
    x = work.leaf("x", 40, 4)
    for start in range(0, 40, 2):
        rows = work.rows(x, start, start + 2)
        work.learn(ADD, (rows, rows), (2, 4))
    for rank in (0, 1):
        for start in range(rank, 40, 2):
            row = work.rows(x, start, start + 1)
            assert work.known(ADD, (row, row), (1, 4)) is not None
