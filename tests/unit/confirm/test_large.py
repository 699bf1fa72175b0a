"""Programs too wide for chance: indices at which masks part them are tried, costs are not overrated, large outputs need no sorting."""

from __future__ import annotations

import pytest
import torch

from graphguard.confirm import promises
from graphguard.confirm.check import confirm
from graphguard.confirm.promises import Slack
from graphguard.confirm.run.operators import cost_of
from graphguard.confirm.run.ranges import edges_of, index_ranges
from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType
from graphguard.ir.building import Builder

F32 = "float32"
ROWS, TOKENS = 60_000, 6


def capture(spec: Graph, ranks: list[Graph], leaves: tuple[Leaf, ...], wanted) -> Capture:
    check = CheckRef("checks.py::c", "c", Span("checks.py", 1))
    return Capture(check, {"tp": len(ranks)}, leaves, spec, tuple(ranks), (Promise("out", wanted),))


def scored(rank: int, late: int = 0) -> Graph:
    """The score of every token's target in a vocabulary of which the rank has half; its mask ends ``late`` targets too late."""
    half = ROWS // 2
    start = rank * half
    b = Builder(phase="prelude")
    scores, targets = b.input("scores", (ROWS,)), b.input("targets", (TOKENS,), "int64")
    mine = b.call("aten.slice.Tensor", scores, 0, start, start + half, out=((half,), F32))
    b.phase = "forward"
    below = b.call("aten.lt.Scalar", targets, start, out=((TOKENS,), "bool"))
    above = b.call("aten.gt.Scalar", targets, start + half - 1 + late, out=((TOKENS,), "bool"))
    outside = b.call("aten.bitwise_or.Tensor", below, above, out=((TOKENS,), "bool"))
    local = b.call("aten.sub.Tensor", targets, start, out=((TOKENS,), "int64"))
    local = b.call("aten.masked_fill.Scalar", local, outside, 0, out=((TOKENS,), "int64"))
    local = b.call("aten.clamp.default", local, 0, half - 1, out=((TOKENS,), "int64"))
    found = b.call("aten.gather.default", mine, 0, local, out=((TOKENS,), F32))
    found = b.call("aten.masked_fill.Scalar", found, outside, 0.0, out=((TOKENS,), F32))
    b.outputs["out"] = b.call("gg.all_reduce", found, "sum", (0, 1), out=((TOKENS,), F32))
    return b.graph()


def scores() -> Capture:
    b = Builder()
    found = b.call(
        "aten.gather.default",
        b.input("scores", (ROWS,)),
        0,
        b.input("targets", (TOKENS,), "int64"),
        out=((TOKENS,), F32),
    )
    b.outputs["out"] = found
    leaves = (
        Leaf("scores", "input", TensorType((ROWS,), F32)),
        Leaf("targets", "input", TensorType((TOKENS,), "int64"), 0, ROWS),
    )
    return capture(b.graph(), [scored(0), scored(1)], leaves, {"tp": Placement("replicate")})


def test_a_mask_that_ends_one_target_too_late_is_found_in_a_wide_vocabulary():
    right = scores()
    wrong = capture(right.spec, [scored(0, 1), scored(1)], right.leaves, right.promises[0].wanted)
    assert confirm(right).status == "equal"
    assert confirm(wrong).status == "differs"


def test_edges_lie_next_to_the_literals_that_integers_are_compared_with():
    found = index_ranges(scores())["targets"]
    assert (found.low, found.high) == (0, ROWS)
    assert {0, 1, ROWS // 2 - 1, ROWS // 2, ROWS // 2 + 1, ROWS - 1} <= set(found.edges)
    assert max(found.edges) < ROWS
    b = Builder()
    b.outputs["out"] = b.call("aten.gt.Scalar", b.input("x", (4,)), 3, out=((4,), "bool"))
    assert edges_of(capture(b.graph(), [], (), "infer")) == []  # floats are not told apart at whole numbers


@pytest.mark.parametrize(
    ("op", "operands", "out", "cost"),
    [
        ("aten.mm.default", ((64, 8), (8, 5000)), (64, 5000), 64 * 8 * 5000),
        ("aten.addmm.default", ((5000,), (64, 8), (8, 5000)), (64, 5000), 64 * 8 * 5000),
        ("aten.bmm.default", ((3, 4, 2), (3, 2, 7)), (3, 4, 7), 3 * 4 * 2 * 7),
        ("gg.sdpa", ((2, 3, 10, 4), (2, 3, 50, 4), (2, 3, 50, 4)), (2, 3, 10, 4), 2 * (2 * 3 * 10 * 4) * 50),
        ("aten.convolution.default", ((1, 3, 8, 8), (5, 3, 3, 3)), (1, 5, 6, 6), 5 * 6 * 6 * 27),
    ],
)
def test_a_contraction_costs_the_extent_that_is_summed(op, operands, out, cost):
    b = Builder()
    b.outputs["out"] = b.call(op, *(b.input(f"x{i}", shape) for i, shape in enumerate(operands)), out=(out, F32))
    graph = b.graph()
    assert cost_of(graph, graph.nodes[-1]) == cost


def test_what_is_nowhere_in_a_large_pool_is_found_without_sorting_it(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    pool = torch.randn(300_000, generator=generator, dtype=torch.float64)
    moved = pool.roll(5)
    assert torch.equal(promises._nearest(moved, pool), moved)

    def refused(*_: object) -> None:
        raise AssertionError("sorted")

    monkeypatch.setattr(torch.Tensor, "sort", refused)
    found = promises._nearest(moved * 3 + 1, pool)
    assert bool(Slack(0.0).apart(moved * 3 + 1, found).all())
