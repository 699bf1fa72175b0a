"""Small captures made by hand: numbers agree, differ with a readable counterexample, or say why they cannot run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from graphguard.confirm import check, trial
from graphguard.confirm.check import confirm
from graphguard.confirm.opinion import second_opinion
from graphguard.confirm.run.draws import (
    DRAWS,
    FURTHER_DRAWS,
    MILD_DRAWS,
    MIXED_DRAWS,
    SPARSE,
    Draw,
    leaf_value,
    leaf_values,
)
from graphguard.confirm.run.ranges import IndexRange, index_ranges
from graphguard.confirm.run.replay import run_graph
from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType
from graphguard.ir.building import Builder
from graphguard.ir.capture import Like
from graphguard.ir.fuel import Fuel
from graphguard.ir.graph import DType

TP2 = (0, 1)
F32 = "float32"


def capture(spec: Graph, ranks: list[Graph], leaves: list[Leaf], wanted, mesh=None, promise="out") -> Capture:
    reference = CheckRef("checks.py::c", "c", Span("checks.py", 1))
    return Capture(
        reference, mesh or {"tp": len(ranks)}, tuple(leaves), spec, tuple(ranks), (Promise(promise, wanted),)
    )


def leaf(name: str, *shape: int, dtype: str = F32, low=None, high=None, kind="input") -> Leaf:
    return Leaf(name, kind, TensorType(shape, dtype), low, high)


def row_parallel(rank: int, reduce: str | None) -> Graph:
    b = Builder(phase="prelude")
    x, w = b.input("x", (2, 8)), b.input("w", (8, 3))
    xs = b.call("aten.slice.Tensor", x, 1, 4 * rank, 4 * rank + 4, out=((2, 4), F32))
    ws = b.call("aten.slice.Tensor", w, 0, 4 * rank, 4 * rank + 4, out=((4, 3), F32))
    b.phase = "forward"
    y = b.call("aten.mm.default", xs, ws, out=((2, 3), F32))
    if reduce:
        y = b.call("gg.all_reduce", y, reduce, TP2, out=((2, 3), F32))
    b.outputs["out"] = y
    return b.graph()


def product() -> Graph:
    b = Builder()
    b.outputs["out"] = b.call("aten.mm.default", b.input("x", (2, 8)), b.input("w", (8, 3)), out=((2, 3), F32))
    return b.graph()


LEAVES = [leaf("x", 2, 8), leaf("w", 8, 3, kind="parameter")]
REPLICATED = {"tp": Placement("replicate")}


def test_row_parallel_with_its_reduction_agrees():
    said = confirm(capture(product(), [row_parallel(r, "sum") for r in TP2], LEAVES, REPLICATED))
    assert (said.status, said.counterexample, said.draws) == ("equal", None, len(DRAWS + FURTHER_DRAWS))


def test_missing_reduction_differs_and_shows_small_numbers():
    said = confirm(capture(product(), [row_parallel(r, None) for r in TP2], LEAVES, REPLICATED))
    assert said.status == "differs"
    assert said.differing == ("out",)
    assert said.ratios is None
    assert said.counterexample is not None
    assert str(said.counterexample) == "rank 0, out[0, 0]: 4, specification 8"
    assert said.counterexample.inputs == {"x": "all ones", "w": "all ones"}


def inverse_squares(*, weighed: bool) -> Graph:
    """One over the squared length of every row, or over almost zero."""
    b = Builder()
    x = b.input("x", (60, 2))
    squares = b.call("aten.mul.Tensor", x, x, out=((60, 2), F32))
    length = b.call("aten.sum.dim_IntList", squares, (1,), out=((60,), F32))
    clamped = b.call("aten.clamp.default", length, 1e-12, out=((60,), F32))
    y = b.call("aten.reciprocal.default", clamped, out=((60,), F32))
    first = b.call("aten.select.int", x, 1, 0, out=((60,), F32))
    b.outputs["out"] = b.call("aten.mul.Tensor", y, first, out=((60,), F32)) if weighed else y
    return b.graph()


def test_rows_of_zeros_over_their_own_length_are_no_example_that_a_person_reads():
    ranks = [inverse_squares(weighed=True) for _ in TP2]
    said = confirm(capture(inverse_squares(weighed=False), ranks, [leaf("x", 60, 2)], REPLICATED))
    assert said.counterexample is not None
    assert said.counterexample.inputs["x"].startswith("normal")


def steep(factor: float) -> Graph:
    """A number times the slope of a saturated function: 1 - tanh(8 x)^2 is 5e-7 at one, and at zero there is nothing left to see."""
    b = Builder()
    x, shape = b.input("x", (4, 3)), ((4, 3), F32)
    y = b.call("aten.tanh.default", b.call("aten.mul.Tensor", x, 8.0, out=shape), out=shape)
    slope = b.call("aten.rsub.Scalar", b.call("aten.mul.Tensor", y, y, out=shape), 1.0, out=shape)
    b.outputs["out"] = b.call("aten.mul.Tensor", b.call("aten.mul.Tensor", x, slope, out=shape), factor, out=shape)
    return b.graph()


def test_numbers_that_look_like_rounding_are_no_example_that_a_person_reads():
    said = confirm(capture(steep(1.0), [steep(2.0)] * 2, [leaf("x", 4, 3)], REPLICATED))
    assert said.counterexample is not None
    assert abs(said.counterexample.expected - said.counterexample.found) > 1e-4, said.counterexample
    assert said.counterexample.inputs == {"x": "0.25 times integers -2..2, seed 1"}


def test_partial_sums_satisfy_a_promise_of_partial_sums():
    graphs = [row_parallel(r, None) for r in TP2]
    assert confirm(capture(product(), graphs, LEAVES, {"tp": Placement("partial")})).status == "equal"
    assert confirm(capture(product(), graphs, LEAVES, "infer")).status == "equal"


def test_mean_instead_of_sum_names_the_constant_factor():
    said = confirm(capture(product(), [row_parallel(r, "avg") for r in TP2], LEAVES, REPLICATED))
    assert said.ratios == {"out": pytest.approx(0.5)}


def times_counts(rank: int | None) -> Graph:
    """A tensor times how many are counted: all, or three times those of one rank."""
    b = Builder()
    x, counts = b.input("x", (3,)), b.input("counts", (2,), "int64")
    if rank is not None:
        counts = b.call("aten.slice.Tensor", counts, 0, rank, rank + 1, out=((1,), "int64"))
    total = b.call("aten.sum.default", counts, out=((), "int64"))
    y = b.call("aten.mul.Tensor", x, total, out=((3,), F32))
    b.outputs["out"] = y if rank is None else b.call("aten.mul.Tensor", y, 3.0, out=((3,), F32))
    return b.graph()


def test_a_factor_that_only_equal_counts_on_the_ranks_give_is_none(monkeypatch):
    leaves = [leaf("x", 3), leaf("counts", 2, dtype="int64", low=1, high=9)]
    wrong = capture(times_counts(None), [times_counts(rank) for rank in TP2], leaves, REPLICATED)
    drawn = {seed: leaf_values(wrong, Draw(seed), index_ranges(wrong))["counts"].tolist() for seed in range(60)}
    alike = [Draw(seed) for seed, (first, second) in drawn.items() if first == second][:2]
    other = next(Draw(seed) for seed, (first, second) in drawn.items() if first != second)
    monkeypatch.setattr(check, "DRAWS", (*alike, other))
    said = confirm(wrong)
    assert (said.status, said.ratios) == ("differs", None)


def column_parallel(rank: int, position: int) -> Graph:
    b = Builder(phase="prelude")
    x, w = b.input("x", (2, 8)), b.input("w", (8, 4))
    ws = b.call("aten.slice.Tensor", w, 1, 2 * position, 2 * position + 2, out=((8, 2), F32))
    b.phase = "forward"
    b.outputs["out"] = b.call("aten.mm.default", x, ws, out=((2, 2), F32))
    return b.graph()


def wide_product() -> Graph:
    b = Builder()
    b.outputs["out"] = b.call("aten.mm.default", b.input("x", (2, 8)), b.input("w", (8, 4)), out=((2, 4), F32))
    return b.graph()


WIDE = [leaf("x", 2, 8), leaf("w", 8, 4, kind="parameter")]


def test_shards_in_another_order_break_the_placement_but_are_some_relation():
    swapped = [column_parallel(r, 1 - r) for r in TP2]
    assert (
        confirm(
            capture(wide_product(), [column_parallel(r, r) for r in TP2], WIDE, {"tp": Placement("shard", 1)})
        ).status
        == "equal"
    )
    assert confirm(capture(wide_product(), swapped, WIDE, {"tp": Placement("shard", 1)})).status == "differs"
    assert confirm(capture(wide_product(), swapped, WIDE, "infer")).status == "equal"


def test_same_shard_twice_has_no_relation():
    assert confirm(capture(wide_product(), [column_parallel(r, 0) for r in TP2], WIDE, "infer")).status == "differs"


def gradient_like(rank: int, position: int) -> Graph:
    """A parameter of which the rank holds some columns, and twice that parameter as its 'gradient'."""
    b = Builder(phase="prelude")
    w = b.input("w", (8, 4))
    ws = b.call("aten.slice.Tensor", w, 1, 2 * rank, 2 * rank + 2, out=((8, 2), F32))
    other = b.call("aten.slice.Tensor", w, 1, 2 * position, 2 * position + 2, out=((8, 2), F32))
    b.labels[ws] = "w"
    b.phase = "backward"
    b.outputs["grad(w)"] = b.call("aten.mul.Scalar", other, 2.0, out=((8, 2), F32))
    return b.graph()


def test_like_means_the_layout_of_the_parameter():
    b = Builder()
    b.outputs["grad(w)"] = b.call("aten.mul.Scalar", b.input("w", (8, 4)), 2.0, out=((8, 4), F32))
    # leaves without a gradient of their own count as zero
    right = capture(b.graph(), [gradient_like(r, r) for r in TP2], WIDE, Like("w"), promise="grad(w)")
    wrong = capture(b.graph(), [gradient_like(r, 0) for r in TP2], WIDE, Like("w"), promise="grad(w)")
    assert confirm(right).status == "equal"
    said = confirm(wrong)
    assert said.status == "differs"
    assert said.counterexample is not None
    assert said.counterexample.rank == 1


def looked_up(rows: int, start: int, reduce: bool) -> Graph:
    b = Builder(phase="prelude")
    ids, table = b.input("ids", (5,), "int64"), b.input("table", (8, 2))
    mine = b.call("aten.slice.Tensor", table, 0, start, start + rows, out=((rows, 2), F32))
    b.phase = "forward"
    below = b.call("aten.lt.Scalar", ids, start, out=((5,), "bool"))
    above = b.call("aten.ge.Scalar", ids, start + rows, out=((5,), "bool"))
    outside = b.call("aten.bitwise_or.Tensor", below, above, out=((5,), "bool"))
    local = b.call("aten.sub.Tensor", ids, start, out=((5,), "int64"))
    local = b.call("aten.masked_fill.Scalar", local, outside, 0, out=((5,), "int64"))
    found = b.call("aten.embedding.default", mine, local, out=((5, 2), F32))
    mask = b.call("aten.unsqueeze.default", outside, 1, out=((5, 1), "bool"))
    found = b.call("aten.masked_fill.Scalar", found, mask, 0.0, out=((5, 2), F32))
    b.outputs["out"] = b.call("gg.all_reduce", found, "sum", TP2, out=((5, 2), F32)) if reduce else found
    return b.graph()


def test_indices_are_drawn_within_the_table_of_the_specification():
    b = Builder()
    b.outputs["out"] = b.call(
        "aten.embedding.default", b.input("table", (8, 2)), b.input("ids", (5,), "int64"), out=((5, 2), F32)
    )
    leaves = [leaf("ids", 5, dtype="int64"), leaf("table", 8, 2, kind="parameter")]
    right = [looked_up(4, 0, True), looked_up(4, 4, True)]
    wrong = [looked_up(4, 0, True), looked_up(4, 3, True)]
    assert confirm(capture(b.graph(), right, leaves, REPLICATED)).status == "equal"
    assert confirm(capture(b.graph(), wrong, leaves, REPLICATED)).status == "differs"


def cast_then_reduce(rank: int, narrow: bool) -> Graph:
    b = Builder()
    x = b.input("x", (4,))
    half = b.call("aten.slice.Tensor", x, 0, 2 * rank, 2 * rank + 2, out=((2,), F32))
    if narrow:
        half = b.call("aten._to_copy.default", half, out=((2,), "bfloat16"), dtype="bfloat16")
    kind = "bfloat16" if narrow else F32
    total = b.call("aten.sum.default", half, out=((), kind))
    b.outputs["out"] = b.call("gg.all_reduce", total, "sum", TP2, out=((), kind))
    return b.graph()


def test_a_reduction_in_a_narrower_type_differs():
    b = Builder()
    b.outputs["out"] = b.call("aten.sum.default", b.input("x", (4,)), out=((), F32))
    assert (
        confirm(capture(b.graph(), [cast_then_reduce(r, False) for r in TP2], [leaf("x", 4)], REPLICATED)).status
        == "equal"
    )


def test_ill_conditioned_but_equal_values_are_not_called_different():
    """log-sum-exp written with and without the shift, at inputs that make the plain form lose digits."""

    def form(shift: float) -> Graph:
        b = Builder()
        x = b.input("x", (6,))
        y = b.call("aten.add.Scalar", x, shift, out=((6,), F32))
        y = b.call("aten.sub.Scalar", y, shift, out=((6,), F32))
        b.outputs["out"] = b.call("aten.mul.Scalar", y, 1e6, out=((6,), F32))
        return b.graph()

    assert confirm(capture(form(0.0), [form(1e7)] * 2, [leaf("x", 6)], REPLICATED)).status == "equal"


@pytest.mark.parametrize(
    ("op", "reason"),
    [("aten.from_file.default", "no kernel"), ("mylib.fused.default", "no kernel"), ("aten.add_.Tensor", "mutates")],
)
def test_operators_that_cannot_or_must_not_run_give_a_reason(op: str, reason: str):
    b = Builder()
    b.outputs["out"] = b.call(op, b.input("x", (6,)), b.input("x", (6,)), out=((6,), F32))
    said = confirm(capture(b.graph(), [b.graph()] * 2, [leaf("x", 6)], REPLICATED))
    assert said.status == "not-run"
    assert reason in said.reason


def wide_exponential(first: str, size: int) -> Graph:
    b = Builder()
    y = b.call(first, b.input("x", (size, size)), out=((size, size), F32))
    b.outputs["out"] = b.call("aten.mul.Scalar", y, 7.0, out=((size, size), F32))
    return b.graph()


def test_a_capture_too_large_for_numbers_runs_at_reduced_extents():
    spec, size = wide_exponential("aten.exp.default", 100_000), 100_000
    said = confirm(capture(spec, [spec] * 2, [leaf("x", size, size)], REPLICATED))
    assert (said.status, said.reason) == ("equal", "at reduced extents")
    said = confirm(capture(spec, [wide_exponential("aten.sin.default", size)] * 2, [leaf("x", size, size)], REPLICATED))
    assert said.status == "differs"
    assert said.counterexample is not None
    assert said.counterexample.shapes == {"x": (8, 8)}


def test_what_can_neither_run_nor_shrink_is_not_run():
    size = 100_000
    unknown = wide_exponential("aten.fft_fft.default", size)
    said = confirm(capture(unknown, [unknown] * 2, [leaf("x", size, size)], REPLICATED))
    assert said.status == "not-run"
    assert "GB" in said.reason


def test_random_draws_are_functions_of_generator_and_call():
    def dropout(call: int) -> Graph:
        b = Builder()
        x = b.input("x", (50,))
        b.outputs["out"] = b.call(
            "aten.native_dropout.default", x, 0.5, True, out=[((50,), F32), ((50,), "bool")], draw=("cpu", call)
        )
        return b.graph()

    assert confirm(capture(dropout(0), [dropout(0)] * 2, [leaf("x", 50)], REPLICATED)).status == "equal"
    assert confirm(capture(dropout(0), [dropout(1)] * 2, [leaf("x", 50)], REPLICATED)).status == "differs"


def counted(total: int) -> Graph:
    """The sign of what a count lacks to a number: a step in the middle of which the count stands."""
    b = Builder()
    x = b.input("x", (2,))
    ones = b.call("aten.full.default", (4,), 1.0, out=((4,), F32))
    count = b.call("aten.sum.default", ones, out=((), F32))
    sign = b.call("aten.sign.default", b.call("aten.sub.Tensor", count, float(total), out=((), F32)), out=((), F32))
    b.outputs["out"] = b.call("aten.add.Tensor", x, sign, out=((2,), F32))
    return b.graph()


def test_counts_are_compared_exactly():
    said = confirm(capture(counted(3), [counted(4)] * 2, [leaf("x", 2)], REPLICATED))
    assert said.status == "differs"


def test_kernels_that_want_dense_operands_get_them():
    def normed(order: tuple[int, ...]) -> Graph:
        b = Builder()
        x = b.call("aten.permute.default", b.input("x", (3, 2, 4)), order, out=((2, 4, 3), F32))
        kinds = [((2, 4, 3), F32), ((2, 2), F32), ((2, 2), F32)]
        b.outputs["out"] = b.call("aten.native_group_norm.default", x, None, None, 2, 4, 3, 2, 1e-5, out=kinds)
        return b.graph()

    graph = normed((1, 2, 0))
    assert confirm(capture(graph, [graph] * 2, [leaf("x", 3, 2, 4)], REPLICATED)).status == "equal"


def test_results_that_a_call_does_not_have_are_left_out():
    def gradients(factor: float) -> Graph:
        b = Builder()
        x, d, w = b.input("x", (4, 3)), b.input("d", (4, 3)), b.input("w", (3,))
        kinds = [((4, 3), F32), ((4, 1), F32), ((4, 1), F32)]
        b.call("aten.native_layer_norm.default", x, (3,), w, None, 1e-5, out=kinds)
        _, mean, rstd = b.nodes[-1].outs
        asked, kinds = (False, True, False), [((), "none"), ((3,), F32), ((), "none")]
        b.call("aten.native_layer_norm_backward.default", d, x, (3,), mean, rstd, w, None, asked, out=kinds)
        b.outputs["out"] = b.call("aten.mul.Scalar", b.nodes[-1].outs[1], factor, out=((3,), F32))
        return b.graph()

    leaves = [leaf("x", 4, 3), leaf("d", 4, 3), leaf("w", 3)]
    for factor, status in ((1.0, "equal"), (2.0, "differs")):
        assert confirm(capture(gradients(1.0), [gradients(factor)] * 2, leaves, REPLICATED)).status == status


def nearest(ties_up: bool) -> Graph:
    """The nearest whole numbers: of two the even one, or the larger."""
    b = Builder()
    x = b.input("x", (2, 8))
    if ties_up:
        more = b.call("aten.add.Scalar", x, 0.5, out=((2, 8), F32))
        b.outputs["out"] = b.call("aten.floor.default", more, out=((2, 8), F32))
    else:
        b.outputs["out"] = b.call("aten.round.default", x, out=((2, 8), F32))
    return b.graph()


def test_halves_are_tried_on_small_programs():
    said = confirm(capture(nearest(ties_up=False), [nearest(ties_up=True) for _ in TP2], [leaf("x", 2, 8)], REPLICATED))
    assert said.status == "differs"


def places_of_the_largest(shift: int | None, dtype: str, rows: int = 2, width: int = 8) -> Graph:
    """The place of the largest element; with a shift, found in the reversed line, told as places of the line itself, and moved."""
    b = Builder()
    x = b.input("x", (rows, width), dtype)
    if shift is not None:
        x = b.call("aten.flip.default", x, (1,), out=((rows, width), dtype))
    b.call("aten.topk.default", x, 1, 1, out=(((rows, 1), dtype), ((rows, 1), "int64")))
    at = b.nodes[-1].outs[1]
    if shift is not None:
        at = b.call("aten.rsub.Scalar", at, width - 1 + shift, out=((rows, 1), "int64"))
    b.outputs["out"] = at
    return b.graph()


@pytest.mark.parametrize(("dtype", "shift", "status"), [("int64", 0, "equal"), (F32, 0, "equal"), (F32, 1, "differs")])
def test_which_of_equal_elements_is_taken_counts_only_where_torch_promises_it(dtype: str, shift: int, status: str):
    drawn = leaf("x", 2, 8, dtype=dtype, low=0 if dtype == "int64" else None, high=3 if dtype == "int64" else None)
    spec, rank = places_of_the_largest(None, dtype), places_of_the_largest(shift, dtype)
    assert confirm(capture(spec, [rank], [drawn], {}, {"tp": 1})).status == status


@pytest.mark.parametrize("seed", range(40))
def test_a_choice_between_equals_is_seen_to_be_open_on_every_draw(seed: int):
    """One run may choose by chance as the first one did."""
    drawn = leaf("x", 1, 2, dtype="int64", low=0, high=2)
    spec, rank = places_of_the_largest(None, "int64", 1, 2), places_of_the_largest(0, "int64", 1, 2)
    one = capture(spec, [rank], [drawn], {}, {"tp": 1})
    assert not trial.Trial(one, one.promises, Fuel("a run", math.inf)).run(Draw(seed))


def tripled(factors: tuple[int, ...], factor: int = 1) -> Graph:
    b = Builder()
    x = b.input("x", (2, 3))
    for number in factors:
        b.outputs[f"out[{number}]"] = b.call("aten.mul.Scalar", x, factor * number, out=((2, 3), F32))
    return b.graph()


@pytest.mark.parametrize("factor", [1, 3])
def test_what_is_the_same_on_all_ranks_is_found_for_all_outputs_at_once(factor: int, monkeypatch):
    def runs(factors: tuple[int, ...]) -> int:
        ran: list[Graph] = []
        monkeypatch.setattr(
            trial, "run_graph", lambda graph, *args, **how: ran.append(graph) or run_graph(graph, *args, **how)
        )
        one = capture(tripled(factors), [tripled(factors, factor)] * 2, [leaf("x", 2, 3)], "infer")
        promises = tuple(Promise(f"out[{number}]", "infer") for number in factors)
        found = trial.Trial(replace(one, promises=promises), promises, Fuel("a run", math.inf)).run(DRAWS[0])
        assert len(found) == (0 if factor == 1 else len(factors))
        return len(ran)

    assert runs((1, 2, 3, 4)) == runs((1,))


def mean_of_means(rank: int, shape: tuple[int, ...] = (6,)) -> Graph:
    """A rank's mean of its rows times their count, summed over the ranks, over the count of all: ``x`` and the truths ``m`` are split."""
    b = Builder(phase="prelude")
    x, m = b.input("x", shape), b.input("m", shape, "bool")
    low, high = 3 * rank, 3 * rank + 3
    x, m = (b.call("aten.slice.Tensor", v, 0, low, high, out=((3,), kind)) for v, kind in ((x, F32), (m, "bool")))
    b.phase = "forward"
    count = b.call("aten.sum.default", m, out=((), "int64"))
    total = b.call("aten.sum.default", b.call("aten.mul.Tensor", x, m, out=((3,), F32)), out=((), F32))
    mean = b.call("aten.div.Tensor", total, count, out=((), F32))
    again = b.call("aten.mul.Tensor", mean, count, out=((), F32))
    whole = b.call("gg.all_reduce", again, "sum", TP2, out=((), F32))
    counts = b.call("gg.all_reduce", count, "sum", TP2, out=((), "int64"))
    b.outputs["out"] = b.call("aten.div.Tensor", whole, counts, out=((), F32))
    return b.graph()


def masked_mean() -> Graph:
    b = Builder()
    x, m = b.input("x", (6,)), b.input("m", (6,), "bool")
    total = b.call("aten.sum.default", b.call("aten.mul.Tensor", x, m, out=((6,), F32)), out=((), F32))
    b.outputs["out"] = b.call("aten.div.Tensor", total, b.call("aten.sum.default", m, out=((), "int64")), out=((), F32))
    return b.graph()


def test_a_division_by_what_is_zero_on_one_rank_is_found_and_placed():
    leaves = [leaf("x", 6), leaf("m", 6, dtype="bool")]
    said = confirm(capture(masked_mean(), [mean_of_means(r) for r in TP2], leaves, REPLICATED))
    assert said.status == "differs"
    assert said.undefined is not None
    rank, index = said.undefined
    assert mean_of_means(rank).nodes[index].op == "aten.div.Tensor"
    assert mean_of_means(rank).nodes[index].outs != (mean_of_means(rank).outputs["out"],)


@pytest.mark.parametrize(("dtype", "low", "elements"), [("bool", None, [0, 0, 0, 1]), ("int64", 2, [2, 2, 2, 8])])
def test_one_element_alone_is_other_than_the_least(dtype, low, elements):
    value = leaf_value(leaf("m", 4, dtype=dtype), SPARSE, IndexRange(low or 0, 9), 0)
    assert value.tolist() == elements


def test_targets_of_which_one_counts():
    targets = replace(leaf("t", 4, dtype="int64"), ignored=-100)
    *ignored, counted = leaf_value(targets, SPARSE, IndexRange(0, 5), 0).tolist()
    assert ignored == [-100] * 3
    assert 0 <= counted < 5


def exponential(scale: float) -> Graph:
    b = Builder()
    x = b.call("aten.mul.Scalar", b.input("x", (4,)), scale, out=((4,), F32))
    total = b.call("aten.sum.default", b.call("aten.exp.default", x, out=((4,), F32)), out=((), F32))
    b.outputs["out"] = b.call("aten.log.default", total, out=((), F32))
    return b.graph()


def stable() -> Graph:
    b = Builder()
    x = b.call("aten.mul.Scalar", b.input("x", (4,)), 4e4, out=((4,), F32))
    b.outputs["out"] = b.call("aten.logsumexp.default", x, (0,), out=((), F32))
    return b.graph()


def test_numbers_that_grow_too_large_are_not_numbers_that_are_lost():
    said = confirm(capture(stable(), [exponential(4e4)] * 2, [leaf("x", 4)], REPLICATED))
    assert said.status == "differs"
    assert said.undefined is None


def most_chosen(rows: tuple[int, int]) -> Graph:
    """Whether each column is the largest in less than half of some rows, by scores with a bias."""
    b = Builder(phase="prelude")
    scores, bias = b.input("scores", (6, 4)), b.input("bias", (4,))
    count = rows[1] - rows[0]
    mine = b.call("aten.slice.Tensor", scores, 0, *rows, out=((count, 4), F32))
    b.phase = "forward"
    squashed = b.call("aten.sigmoid.default", mine, out=((count, 4), F32))
    biased = b.call("aten.add.Tensor", squashed, bias, out=((count, 4), F32))
    places = b.call("aten.argmax.default", biased, -1, out=((count,), "int64"))
    hot = b.call("aten.one_hot.default", places, 4, out=((count, 4), "int64"))
    share = b.call("aten.mean.dim", b.call("aten._to_copy.default", hot, out=((count, 4), F32)), (0,), out=((4,), F32))
    b.outputs["out"] = b.call("aten.lt.Scalar", share, 0.4, out=((4,), "bool"))
    return b.graph()


def test_a_choice_is_moved_although_a_bias_makes_most_choices():
    """Of few draws none tells a rank's own rows from all of them."""
    leaves = [leaf("scores", 6, 4), leaf("bias", 4)]
    said = confirm(capture(most_chosen((0, 6)), [most_chosen((0, 3)), most_chosen((3, 6))], leaves, REPLICATED))
    assert said.status == "differs"
    right = confirm(capture(most_chosen((0, 6)), [most_chosen((0, 6))] * 2, leaves, REPLICATED))
    assert (right.status, right.draws) == ("equal", len(DRAWS + FURTHER_DRAWS + MIXED_DRAWS + MILD_DRAWS))


def test_among_mixed_draws_every_leaf_is_small_beside_its_neighbours_in_some():
    for index in range(4):
        scales = [draw.scale_of("x", index) for draw in MIXED_DRAWS]
        assert {round(scale, 2) for scale in scales} == {0.03, 1.0}
        beside = [draw.scale_of("y", index + 1) for draw in MIXED_DRAWS]
        assert all(one == 1 or other == 1 for one, other in zip(scales, beside, strict=True))


@pytest.mark.parametrize(("held", "status"), [("bfloat16", "equal"), (F32, "differs")])
def test_a_cast_to_the_type_of_the_specification_rounds_no_more_than_it(held: str, status: str) -> None:
    """Ranks that reduce in float32 and cast the total to bfloat16: the specification has it so, or keeps it in float32."""

    def program(rank: int | None) -> Graph:
        b = Builder(phase="forward")
        x, w = b.input("x", (2, 8), held), b.input("w", (8, 3), held)
        if rank is None:
            b.outputs["out"] = b.call("aten.mm.default", x, w, out=((2, 3), held))
            return b.graph()
        xs = b.call("aten.slice.Tensor", x, 1, 4 * rank, 4 * rank + 4, out=((2, 4), held))
        ws = b.call("aten.slice.Tensor", w, 0, 4 * rank, 4 * rank + 4, out=((4, 3), held))
        y = b.call("aten.mm.default", xs, ws, out=((2, 3), held))
        y = b.call("aten._to_copy.default", y, out=((2, 3), F32), dtype=DType(F32))
        y = b.call("gg.all_reduce", y, "sum", TP2, out=((2, 3), F32))
        b.outputs["out"] = b.call("aten._to_copy.default", y, out=((2, 3), "bfloat16"), dtype=DType("bfloat16"))
        return b.graph()

    leaves = [leaf("x", 2, 8, dtype=held), leaf("w", 8, 3, dtype=held)]
    found = confirm(capture(program(None), [program(0), program(1)], leaves, {"tp": Placement("replicate")}))
    assert found.status == status


@pytest.mark.parametrize(("total", "rounding"), [(3, True), (2, False)])
def test_numbers_that_differ_only_by_where_they_are_rounded(total: int, rounding: bool) -> None:
    """A mean over three, rounded before or after the division; or by the wrong number."""

    def program(before: bool, count: int) -> Graph:
        b = Builder(phase="forward")
        x = b.input("x", (4, 5))
        if before:
            x = b.call("aten.div.Scalar", x, float(count), out=((4, 5), F32))
        x = b.call("aten._to_copy.default", x, out=((4, 5), "bfloat16"), dtype=DType("bfloat16"))
        if not before:
            x = b.call("aten.div.Scalar", x, float(count), out=((4, 5), "bfloat16"))
        b.outputs["out"] = x
        return b.graph()

    ranks = [program(False, total)] * 2
    found = confirm(capture(program(True, 3), ranks, [leaf("x", 4, 5)], {"tp": Placement("replicate")}))
    assert (found.status, found.rounding) == ("differs", rounding)


def scaled_by_table(digest: str) -> Graph:
    """``x`` times a literal of which only the digest is known."""
    b = Builder()
    table = b.constant(b"", (2, 8), F32)
    b.constants[table] = replace(b.constants[table], digest=digest, data=None)
    b.outputs["out"] = b.call("aten.mul.Tensor", b.input("x", (2, 8)), table, out=((2, 8), F32))
    return b.graph()


@pytest.mark.parametrize(
    ("ours", "theirs", "status", "reason"),
    [
        ("table", ("table", "table"), "equal", ""),
        ("table", ("other", "other"), "not-run", "only the specification has it"),
        ("table", ("table", "other"), "not-run", "only the ranks have it"),
    ],
)
def test_a_literal_that_was_not_kept_refutes_nothing_where_one_program_has_it(ours, theirs, status, reason):
    """Its numbers are guessed: another way to compute the same table would differ."""
    programs = capture(scaled_by_table(ours), [scaled_by_table(each) for each in theirs], LEAVES[:1], REPLICATED)
    said = confirm(programs)
    assert (said.status, said.reason.endswith(reason)) == (status, True)
    assert second_opinion(programs) == ("equal" if status == "equal" else "unsure")
