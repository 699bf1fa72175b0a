"""Which targets may be ignored ones, and what a claim without them says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType, Var
from graphguard.ir.building import Builder
from graphguard.ir.ignored import counted_apart, marked, without_ignored
from graphguard.ir.lookups import implied

F32, I64 = "float32", "int64"


def loss(rows: int, of: int, ignored: int = -100, compares: bool = False) -> Graph:
    b = Builder()
    scores, targets = b.input("scores", (of, 5)), b.input("targets", (of,), I64)
    if rows < of:
        scores = b.call("aten.slice.Tensor", scores, 0, 0, rows, out=((rows, 5), F32))
        targets = b.call("aten.slice.Tensor", targets, 0, 0, rows, out=((rows,), I64))
    if compares:
        b.call("aten.ne.Scalar", targets, ignored, out=((rows,), "bool"))
    b.outputs["out"] = b.call(
        "aten.nll_loss_forward.default", scores, targets, None, 1, ignored, out=[((), F32), ((), F32)]
    )
    return b.graph()


def capture(rank: Graph, spec: Graph | None = None, low: int | None = None, high: int | None = None) -> Capture:
    leaves = (
        Leaf("scores", "input", TensorType((6, 5), F32)),
        Leaf("targets", "input", TensorType((6,), I64), low, high),
    )
    check = CheckRef("checks.py::c", "c", Span("checks.py", 1))
    promise = Promise("out", {"dp": Placement("replicate")})
    return Capture(check, {"dp": 2}, leaves, spec or loss(6, 6), (rank, rank), (promise,))


def targets_of(found: Capture) -> Leaf:
    return found.leaves[1]


def test_look_ups_bound_their_indices():
    assert implied(loss(6, 6)) == {"targets": (0, 5)}


def test_nothing_is_ignored_where_nothing_says_so():
    assert targets_of(marked(capture(loss(3, 6)))).ignored is None


@pytest.mark.parametrize("ignored", [-1, 9])
def test_an_index_that_is_not_the_default_says_so(ignored):
    leaf = targets_of(marked(capture(loss(3, 6), loss(6, 6, ignored))))
    assert (leaf.low, leaf.high, leaf.ignored) == (min(0, ignored), max(5, ignored + 1), ignored)


def test_a_comparison_of_a_rank_says_so_and_it_is_told():
    found = marked(capture(loss(3, 6, compares=True)))
    assert (targets_of(found).low, targets_of(found).high, targets_of(found).ignored) == (-100, 5, -100)
    assert found.assumed == ("targets is -100 (ignored) or 0 <= targets < 5, as the specification's own look-ups need",)


def test_a_declared_range_says_so_and_is_kept():
    found = marked(capture(loss(3, 6), low=-100, high=4))
    assert (targets_of(found).low, targets_of(found).high, targets_of(found).ignored) == (-100, 4, -100)
    assert found.assumed == ()


def test_a_declared_range_without_the_number_has_none_ignored():
    assert targets_of(marked(capture(loss(3, 6, compares=True), low=0, high=5))).ignored is None


def test_a_class_is_not_ignored_beside_the_classes():
    assert targets_of(marked(capture(loss(3, 6), loss(6, 6, 2)))).ignored is None


def test_a_mean_over_a_part_is_cautioned_about_and_one_over_all_is_not():
    assert [number for _, number in counted_apart(capture(loss(3, 6)))] == [-100]
    assert not list(counted_apart(capture(loss(6, 6))))
    assert not list(counted_apart(capture(loss(3, 6), low=0, high=5)))


def test_the_claim_without_them_says_what_it_leaves_out():
    narrower = without_ignored(marked(capture(loss(3, 6), low=-100, high=5)))
    leaf = targets_of(narrower)
    assert (leaf.low, leaf.high, leaf.ignored) == (None, None, None)
    assert narrower.assumed == (
        "the proof is for a 'targets' without ignored targets; with some, the programs agree on numbers",
    )
    assert without_ignored(capture(loss(3, 6))) == capture(loss(3, 6))


@dataclass(frozen=True)
class Way:
    """How labels come to be an index: the operators, and what is ignored then."""

    steps: Callable[[Builder, Var], Var]
    ignored: int | None


def _mask(b: Builder, labels: Var, relation: str = "eq", number: int = -100) -> Var:
    return b.call(f"aten.{relation}.Scalar", labels, number, out=((6,), "bool"))


def _filled(relation: str, number: int = -100) -> Callable[[Builder, Var], Var]:
    return lambda b, v: b.call("aten.masked_fill.Scalar", v, _mask(b, v, relation, number), 0, out=((6,), I64))


def _negated(b: Builder, v: Var) -> Var:
    mask = b.call("aten.bitwise_not.default", _mask(b, v, "ne"), out=((6,), "bool"))
    return b.call("aten.masked_fill.Scalar", v, mask, 0, out=((6,), I64))


def _chosen(relation: str, mine: int) -> Callable[[Builder, Var], Var]:
    def steps(b: Builder, v: Var) -> Var:
        zeros = b.call("aten.full.default", (6,), 0, out=((6,), I64))
        operands = (zeros, v) if mine else (v, zeros)
        return b.call("aten.where.self", _mask(b, v, relation), *operands, out=((6,), I64))

    return steps


def _multiplied(relation: str) -> Callable[[Builder, Var], Var]:
    def steps(b: Builder, v: Var) -> Var:
        mask = b.call("aten._to_copy.default", _mask(b, v, relation), out=((6,), I64))
        return b.call("aten.mul.Tensor", v, mask, out=((6,), I64))

    return steps


@pytest.mark.parametrize(
    "way",
    [
        Way(_filled("eq"), -100),
        Way(_filled("ne"), None),
        Way(_filled("eq", 2), None),
        Way(_negated, -100),
        Way(_chosen("ne", 0), -100),
        Way(_chosen("eq", 1), -100),
        Way(_chosen("eq", 0), None),
        Way(_multiplied("ne"), -100),
        Way(_multiplied("eq"), None),
        Way(lambda b, v: v, None),
    ],
)
def test_a_number_that_is_replaced_before_a_look_up_is_ignored(way: Way):
    def looked_up(steps: Callable[[Builder, Var], Var], twice: bool) -> Leaf:
        b = Builder()
        scores, labels = b.input("scores", (6, 5)), b.input("targets", (6,), I64)
        places = b.call("aten.unsqueeze.default", steps(b, labels), 1, out=((6, 1), I64))
        b.outputs["out"] = b.call("aten.gather.default", scores, 1, places, out=((6, 1), F32))
        if twice:
            b.outputs["more"] = b.call("aten.embedding.default", scores, labels, out=((6, 5), F32))
        graph = b.graph()
        return targets_of(marked(capture(graph, graph, low=-100, high=5)))

    assert looked_up(way.steps, twice=False).ignored == way.ignored
    assert looked_up(way.steps, twice=True).ignored is None
