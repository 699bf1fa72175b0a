"""Which targets may be ignored ones, and what a claim without them says."""

from __future__ import annotations

import pytest

from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType
from graphguard.ir.building import Builder
from graphguard.ir.lookups import counted_apart, implied, marked, without_ignored

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
