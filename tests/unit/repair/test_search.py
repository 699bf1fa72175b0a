"""What the search rests on: order of calls after an exchange, and which sites a fault would show at."""

import pytest

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.repair.graph.editing import _move_addition, _swapped
from graphguard.repair.graph.slices import Site, exposed

KIND = TensorType((2,), "float32")


def chain(*nodes: tuple[str, tuple[int, ...], int]) -> Graph:
    """A graph of one input, number 0, from operators, operands and results."""
    calls = tuple(Node(op, tuple(Var(each) for each in args), {}, (Var(out),)) for op, args, out in nodes)
    types = {Var(0): KIND, **{out: KIND for node in calls for out in node.outs}}
    return Graph({Var(0): "x"}, {}, calls, types, {"out": calls[-1].outs[0]})


def test_exchanged_tensors_are_read_only_behind_what_makes_them() -> None:
    graph = chain(
        ("aten.sin.default", (0,), 1),
        ("aten.silu.default", (1,), 2),
        ("aten.cos.default", (0,), 3),
        ("aten.mul.Tensor", (2, 3), 4),
    )
    swapped = _swapped(graph, Var(1), Var(3))
    assert [node.op.split(".")[1] for node in swapped.nodes] == ["sin", "cos", "silu", "mul"]
    assert [node.args for node in swapped.nodes][2:] == [(Var(3),), (Var(2), Var(1))]


def test_tensors_of_which_one_rests_on_the_other_are_not_exchanged() -> None:
    graph = chain(("aten.sin.default", (0,), 1), ("aten.cos.default", (1,), 2), ("aten.mul.Tensor", (1, 2), 3))
    swapped = _swapped(graph, Var(1), Var(2))
    assert [node.args for node in swapped.nodes] == [(Var(0),), (Var(1),), (Var(2), Var(1))]


def test_additions_that_move_behind_nested_reductions_keep_each_other_in_place() -> None:
    graph = chain(
        ("aten.add.Tensor", (0, 0), 1),
        ("aten.add.Tensor", (0, 0), 2),
        ("gg.all_reduce", (2,), 3),
        ("gg.all_reduce", (1,), 4),
        ("aten.mul.Tensor", (3, 4), 5),
    )
    moved = _move_addition(_move_addition(graph, 0, 3, 1), 1, 2, 1)
    assert [node.op.split(".")[1] for node in moved.nodes] == [
        "alias",
        "alias",
        "all_reduce",
        "add",
        "all_reduce",
        "add",
        "mul",
    ]
    second, first, product = moved.nodes[3], moved.nodes[5], moved.nodes[6]
    assert product.args == (second.outs[0], first.outs[0])


def site(number: int, state: str, *operands: int) -> Site:
    node = Node("aten.sin.default", (), {}, (Var(number),))
    return Site(number, {0: number}, node, {0: Var(number)}, state, None, operands)  # type: ignore[arg-type]


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 1, 2), (3, 2, 1)])
def test_faults_show_in_whatever_order_the_ranks_were_numbered(numbers: tuple[int, int, int]) -> None:
    first, middle, last = numbers
    sites = {
        first: site(first, "off"),
        middle: site(middle, "off", first),
        last: site(last, "off", middle),
    }
    readers = {first: (middle,), middle: (last,)}
    assert exposed(sites, readers) == {first, middle, last}


def test_faults_do_not_show_past_a_tensor_that_is_right() -> None:
    sites = {1: site(1, "off"), 2: site(2, "whole", 1), 3: site(3, "off", 2)}
    assert exposed(sites, {1: (2,), 2: (3,)}) == {2, 3}
