"""The textual form reads back as the same graph; the IR's own specification finds what is wrong with one."""

from dataclasses import replace

import pytest

from graphguard.ir import Constant, DType, Frame, Graph, Node, Span, Sym, TensorType, Var
from graphguard.ir.codec import dumps, graph_from_plain, graph_to_plain, loads
from graphguard.ir.validity import faults
from tests.graph_text import TextError, graph_from_text, graph_to_text

x, c, y, a, b, n = (Var(i) for i in range(6))
F32 = TensorType((2, 3), "float32")
GRAPH = Graph(
    inputs={x: 'the "x"'},
    constants={c: Constant(TensorType((2,), "int64"), "ab12", b"\x01" * 16)},
    nodes=(
        Node("aten.add.Tensor", (x, 1.5), {"alpha": -2}, (y,), stack=0, module="layers.0"),
        Node("gg.all_gather", (y, (0, 1)), {}, (a, b), stack=1, forward=0, phase="backward"),
        Node(
            "aten.foo.default",
            (None, True, float("inf"), -1e-05, "a, (b)", (), DType("bfloat16"), Sym("u0 + 1")),
            {},
            (),
        ),
        Node("aten.sum.default", (c,), {}, (n,), draw=("default:7", 3), phase="step"),
        Node("gg.barrier", ((0, 1),), {}, ()),
    ),
    types={
        x: F32,
        c: TensorType((2,), "int64"),
        y: F32,
        a: F32,
        b: TensorType((Sym("u0"), 3), "float32"),
        n: TensorType((), "int64"),
    },
    outputs={"out": a, 'out["b"]': b},
    labels={y: "w"},
    symbols={"u0": n},
    frames=(Frame(Span("/a b/ü.py", 3, 5, 3, 9), "f.<locals>.g"), Frame(Span("m.py", 1, 1, 2, 4), "h")),
    stacks=((0,), (1, 0)),
)


def test_round_trip() -> None:
    assert graph_from_text(graph_to_text(GRAPH)) == GRAPH


def test_reads_like_a_program() -> None:
    line = graph_to_text(GRAPH).splitlines()[2]
    assert line == '%2: float32[2, 3] = aten.add.Tensor(%0, 1.5, alpha=-2) forward in "layers.0" at 0'


def test_a_group_among_those_of_the_same_ranks_has_a_name() -> None:
    second = replace(GRAPH.nodes[1], kwargs={"comm": 2, "asynchronous": True})
    graph = replace(GRAPH, nodes=(GRAPH.nodes[0], second))
    assert "comm=2, asynchronous=True)" in graph_to_text(graph)
    assert graph_from_text(graph_to_text(graph)) == graph
    assert graph_from_plain(loads(dumps(graph_to_plain(graph)))) == graph
    assert faults(graph, world_size=2) == []


def test_a_constant_may_be_empty_or_only_a_digest() -> None:
    empty = Constant(TensorType((0,), "int64"), "e", b"")
    digest = Constant(F32, "d", None)
    graph = Graph({}, {c: empty, x: digest}, (), {c: empty.type, x: F32}, {"out": x})
    assert graph_from_text(graph_to_text(graph)) == graph


@pytest.mark.parametrize("line", ["input 0: float32[] = 1", "%1: float32[2 = aten.t(%0) forward", "output out %1", "?"])
def test_bad_text_names_its_line(line: str) -> None:
    with pytest.raises(TextError, match="line 2"):
        graph_from_text('input %0: float32[] = "x"\n' + line)


def test_a_good_graph_has_no_faults() -> None:
    assert faults(replace(GRAPH, symbols={"u0": n}), world_size=2) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda g: replace(g, inputs={}), "reads %0, which nothing before it defines"),
        (lambda g: replace(g, nodes=(g.nodes[0], *g.nodes)), "defines %2 again"),
        (lambda g: replace(g, types={x: F32}), "%1 has no type"),
        (lambda g: replace(g, outputs={"out": Var(99)}), "output 'out' is %99"),
        (lambda g: replace(g, stacks=((7,),)), "stack 0 names a frame"),
        (lambda g: replace(g, nodes=(replace(g.nodes[0], phase="later"),)), "is of phase 'later'"),
        (lambda g: replace(g, nodes=(g.nodes[0], replace(g.nodes[1], args=(y, (0, 0))))), "in the group (0, 0) twice"),
        (lambda g: replace(g, nodes=(g.nodes[0], replace(g.nodes[1], args=(y, (0, 5))))), "outside of the job"),
        (lambda g: replace(g, nodes=(g.nodes[0], replace(g.nodes[1], outs=(a,)))), "1 results for a group of 2"),
        (lambda g: replace(g, nodes=(Node("gg.all_reduce", (x, "mean", (0, 1)), {}, (y,)),)), "'mean' is no reduction"),
        (lambda g: replace(g, nodes=(Node("gg.scan", (x,), {}, (y,)),)), "is no operator of ours"),
        (lambda g: replace(g, symbols={"u0": a}), "which is no 0-dim variable"),
        (lambda g: replace(g, nodes=(g.nodes[0], replace(g.nodes[1], kwargs={"comm": 1}))), "the first has no name"),
        (
            lambda g: replace(g, nodes=(g.nodes[0], replace(g.nodes[1], kwargs={"asynchronous": 1}))),
            "is asynchronous or",
        ),
    ],
)
def test_faults(change, says: str) -> None:
    assert any(says in fault for fault in faults(change(GRAPH), world_size=2))
