"""Captures at reduced extents: what belongs together shrinks together, what a literal may count does not shrink."""

from __future__ import annotations

import pytest

from graphguard.confirm.check import compare
from graphguard.confirm.confirmation import apart
from graphguard.confirm.reduced.dimensions import divided
from graphguard.confirm.reduced.shrink import shrunk
from graphguard.ir import Capture, CheckRef, Graph, Leaf, Placement, Promise, Span, TensorType
from graphguard.ir.building import Builder

F32 = "float32"


def capture(spec: Graph, ranks: list[Graph], leaves: list[Leaf]) -> Capture:
    promise = Promise("out", {"tp": Placement("replicate")})
    return Capture(
        CheckRef("c.py::c", "c", Span("c.py", 1)), {"tp": len(ranks)}, tuple(leaves), spec, tuple(ranks), (promise,)
    )


def leaf(name: str, *shape: int, dtype: str = F32, high: int | None = None) -> Leaf:
    return Leaf(name, "input", TensorType(shape, dtype), None if high is None else 0, high)


def heads(count: int, first: int, reduce: bool) -> Graph:
    """Rows of a product seen as heads of 64, some of them kept, flattened and multiplied back."""
    b = Builder()
    x, w, v = b.input("x", (4096, 512)), b.input("w", (512, 1024)), b.input("v", (1024, 512))
    y = b.call("aten.mm.default", x, w, out=((4096, 1024), F32))
    y = b.call("aten.view.default", y, (4096, 16, 64), out=((4096, 16, 64), F32))
    y = b.call("aten.slice.Tensor", y, 1, first, first + count, out=((4096, count, 64), F32))
    y = b.call("aten.view.default", y, (4096, 64 * count), out=((4096, 64 * count), F32))
    rows = b.call("aten.slice.Tensor", v, 0, 64 * first, 64 * (first + count), out=((64 * count, 512), F32))
    y = b.call("aten.mm.default", y, rows, out=((4096, 512), F32))
    b.outputs["out"] = b.call("gg.all_reduce", y, "sum", (0, 1), out=((4096, 512), F32)) if reduce else y
    return b.graph()


def test_heads_shards_and_rows_shrink_together():
    leaves = [leaf("x", 4096, 512), leaf("w", 512, 1024), leaf("v", 1024, 512)]
    small = shrunk(capture(heads(16, 0, False), [heads(8, 8 * r, True) for r in (0, 1)], leaves))
    assert small is not None
    assert [item.type.shape for item in small.leaves] == [(8, 8), (8, 64), (64, 8)]
    second = small.ranks[1]
    assert [node.args[1:] for node in second.nodes if node.op == "aten.slice.Tensor"] == [(1, 4, 8), (0, 32, 64)]
    assert compare(small).status == "equal"


def test_a_wrong_slice_is_still_wrong():
    leaves = [leaf("x", 4096, 512), leaf("w", 512, 1024), leaf("v", 1024, 512)]
    small = shrunk(capture(heads(16, 0, False), [heads(8, 0, True)] * 2, leaves))
    assert small is not None
    assert compare(small).status == "differs"


def summed(divisor: float, expanded: bool) -> Graph:
    b = Builder()
    x = b.input("x", (512, 100))
    if expanded:
        g = b.call("aten.sum.default", x, out=((), F32))
        g = b.call("aten.expand.default", g, (512,), out=((512,), F32))
        b.outputs["out"] = b.call("aten.div.Scalar", g, divisor, out=((512,), F32))
    else:
        total = b.call("aten.sum.dim_IntList", x, (0,), out=((100,), F32))
        b.outputs["out"] = b.call("aten.div.Scalar", total, divisor, out=((100,), F32))
    return b.graph()


def test_what_a_literal_may_count_stays():
    graph = summed(512.0, expanded=False)
    small = shrunk(capture(graph, [graph] * 2, [leaf("x", 512, 100)]))
    assert small is not None
    assert small.leaves[0].type.shape == (512, 10)


def test_the_gradient_of_a_mean_follows_its_extent():
    graph = summed(512.0, expanded=True)
    small = shrunk(capture(graph, [graph] * 2, [leaf("x", 512, 100)]))
    assert small is not None
    assert small.spec is not None
    assert small.leaves[0].type.shape == (512 // 64, 10)
    assert small.spec.nodes[-1].args[1] == 8.0


def looked_up(low: int, high: int) -> Graph:
    b = Builder()
    ids, table = b.input("ids", (4000,), "int64"), b.input("table", (32000, 100))
    outside = b.call("aten.ge.Scalar", ids, high, out=((4000,), "bool"))
    local = b.call("aten.sub.Tensor", ids, low, out=((4000,), "int64"))
    local = b.call("aten.masked_fill.Scalar", local, outside, 0, out=((4000,), "int64"))
    rows = b.call("aten.slice.Tensor", table, 0, low, high, out=((high - low, 100), F32))
    b.outputs["out"] = b.call("aten.embedding.default", rows, local, out=((4000, 100), F32))
    return b.graph()


def test_indices_their_ranges_and_the_literals_they_meet_scale_with_the_table():
    graph = looked_up(0, 16000)
    small = shrunk(
        capture(graph, [graph] * 2, [leaf("ids", 4000, dtype="int64", high=16000), leaf("table", 32000, 100)])
    )
    assert small is not None
    assert small.spec is not None
    ids, table = small.leaves
    assert (ids.low, ids.high, table.type.shape[0]) == (0, 4, 8)
    assert small.spec.nodes[0].args[1] == 4


def test_an_offset_that_divides_nothing_keeps_the_dim():
    graph = looked_up(7, 16007)
    small = shrunk(capture(graph, [graph] * 2, [leaf("ids", 4000, dtype="int64"), leaf("table", 32000, 100)]))
    assert small is not None
    assert small.leaves[1].type.shape[0] == 32000


def test_a_window_that_is_off_by_one_stays_so():
    graph = looked_up(1, 16001)
    small = shrunk(capture(graph, [graph] * 2, [leaf("ids", 4000, dtype="int64"), leaf("table", 32000, 100)]))
    assert small is not None
    assert small.spec is not None
    assert small.leaves[1].type.shape[0] == 8
    ge, sub, _, cut, _ = small.spec.nodes
    assert (ge.args[1], sub.args[1], cut.args[1:]) == (5, 1, (0, 1, 5))


def test_a_view_that_should_be_a_transpose_shrinks():
    def program(op: str, *args) -> Graph:
        b = Builder()
        x = b.input("x", (1536, 8))
        b.outputs["out"] = b.call(op, x, *args, out=((8, 1536), F32))
        return b.graph()

    wrong = program("aten.view.default", (8, 1536))
    small = shrunk(capture(program("aten.t.default"), [wrong] * 2, [leaf("x", 1536, 8)]))
    assert small is not None
    assert small.leaves[0].type.shape == (8, 8)
    assert compare(small).status == "differs"


def test_rows_shrink_though_their_columns_are_grouped_wrongly():
    def program(first: int, second: int) -> Graph:
        b = Builder()
        x = b.call(
            "aten.view.default", b.input("x", (4096, 768)), (4096, first, second), out=((4096, first, second), F32)
        )
        if first > second:
            x = b.call("aten.transpose.int", x, -1, -2, out=((4096, second, first), F32))
        b.outputs["out"] = b.call("aten.view.default", x, (4096, 768), out=((4096, 768), F32))
        return b.graph()

    small = shrunk(capture(program(6, 128), [program(6, 128), program(128, 6)], [leaf("x", 4096, 768)]))
    assert small is not None
    assert small.leaves[0].type.shape == (8, 768)
    assert compare(small).status == "differs"


@pytest.mark.parametrize(("position", "at"), [(0, 0), (1, 1), (999, 7), (1000, 8), (1001, 9), (1002, 10), (998, 6)])
def test_positions_beside_a_multiple_stay_beside_it(position, at):
    assert divided(position, 125) == at


def test_a_small_difference_is_shown_in_as_many_digits_as_it_takes():
    assert apart(0.5, 1.0) == ("0.5", "1")
    assert apart(5.773731, 5.773734) == ("5.773731", "5.773734")
    assert apart(float("nan"), 1.0) == ("nan", "1")


def test_an_operator_without_a_rule_shrinks_as_pytorch_says():
    """The lists of sizes in its arguments as well."""
    b = Builder()
    x, w = b.input("x", (4096, 8192)), b.input("w", (8192,))
    mean = b.call("aten.mean.dim", x, (1,), True, out=((4096, 1), F32))
    args = (x, x, (8192,), mean, mean, w, None, (True, True, False))
    types = [((4096, 8192), F32), ((8192,), F32), ((), "none")]
    b.outputs["out"] = b.call("aten.native_layer_norm_backward.default", *args, out=types)
    small = shrunk(capture(b.graph(), [b.graph()] * 2, [leaf("x", 4096, 8192), leaf("w", 8192)]))
    assert small is not None
    assert [item.type.shape for item in small.leaves] == [(8, 8), (8,)]
    assert small.spec is not None
    assert small.spec.nodes[1].args[2] == (8,)
    assert compare(small).status == "equal"


def test_an_operator_whose_literal_counts_positions_keeps_its_extents():
    b = Builder()
    x = b.input("x", (4096, 8192))
    b.outputs["out"] = b.call("aten.roll.default", x, (2048,), (0,), out=((4096, 8192), F32))
    assert shrunk(capture(b.graph(), [b.graph()] * 2, [leaf("x", 4096, 8192)])) is None


def shifted() -> Graph:
    """Every row less the one before it, the first of which has none."""
    b = Builder()
    x = b.input("x", (4096, 512))
    padded = b.call("aten.constant_pad_nd.default", x, (0, 0, 1, 0), 0.0, out=((4097, 512), F32))
    before = b.call("aten.slice.Tensor", padded, 0, 0, 4096, out=((4096, 512), F32))
    b.outputs["out"] = b.call("aten.sub.Tensor", x, before, out=((4096, 512), F32))
    return b.graph()


def test_a_dim_shrinks_beside_the_same_with_one_position_more():
    small = shrunk(capture(shifted(), [shifted()] * 2, [leaf("x", 4096, 512)]))
    assert small is not None
    assert [item.type.shape for item in small.leaves] == [(8, 8)]
    assert small.spec is not None
    assert small.spec.nodes[0].args[1] == (0, 0, 1, 0)
    assert compare(small).status == "equal"


def test_channels_shrink_in_whole_groups():
    b = Builder()
    x = b.input("x", (4, 8192, 4096))
    types = [((4, 8192, 4096), F32), ((4, 32), F32), ((4, 32), F32)]
    b.outputs["out"] = b.call("aten.native_group_norm.default", x, None, None, 4, 8192, 4096, 32, 1e-5, out=types)
    small = shrunk(capture(b.graph(), [b.graph()] * 2, [leaf("x", 4, 8192, 4096)]))
    assert small is not None
    assert small.spec is not None
    batch, channels, places, groups = small.spec.nodes[0].args[3:7]
    assert small.leaves[0].type.shape == (batch, channels, places)
    assert channels % groups == 0
    assert channels < 8192
    assert compare(small).status == "equal"
