"""A specification that an edit writes otherwise is the same where that is proved, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphguard.ir import Capture, CheckRef, Graph, Leaf, Node, Placement, Promise, Span, TensorType, Var
from graphguard.repair.text.same_meaning import asks_the_same

KIND = TensorType((2, 3), "float32")
X, H, Y = (Var(number) for number in range(3))


def graph(*nodes: tuple[str, object]) -> Graph:
    """A chain of operators of ``x`` and a number."""
    made, held = [], X
    for number, (op, other) in enumerate(nodes):
        out = Var(number + 1)
        made.append(Node(op, (held, other), {}, (out,)))  # type: ignore[arg-type]
        held = out
    return Graph({X: "x"}, {}, tuple(made), {Var(each): KIND for each in range(len(nodes) + 1)}, {"out": held})


HALVED = graph(("aten.div.Tensor", 2.0))
CAPTURE = Capture(
    CheckRef("c.py::c", "c", Span("c.py", 1)),
    {"dp": 2},
    (Leaf("x", "input", KIND),),
    HALVED,
    (),
    (Promise("out", {"dp": Placement("shard")}),),
)


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        (HALVED, True),
        (graph(("aten.mul.Tensor", 0.5)), True),
        (graph(("aten.mul.Tensor", 3.0), ("aten.div.Tensor", 6.0)), True),
        (graph(("aten.mul.Tensor", 2.0)), False),
        (graph(("aten.div.Tensor", 2.0), ("aten.add.Tensor", 1e-9)), False),
        (replace(graph(("aten.mul.Tensor", 0.5)), outputs={"other": Var(1)}), False),
        (None, False),
    ],
)
def test_other_words_for_the_same(spec: Graph | None, same: bool) -> None:
    assert asks_the_same(CAPTURE, replace(CAPTURE, spec=spec)) == same


def test_other_inputs_or_promises_are_another_question() -> None:
    words = replace(CAPTURE, spec=graph(("aten.mul.Tensor", 0.5)))
    assert not asks_the_same(CAPTURE, replace(words, leaves=(Leaf("x", "input", KIND, low=0),)))
    assert not asks_the_same(CAPTURE, replace(words, promises=(Promise("out", {"dp": Placement("replicate")}),)))
