"""What a program leaves uninitialised equals nothing, not even the same in the other program."""

from __future__ import annotations

import pytest

from graphguard.ir import Capture, CheckRef, Graph, Node, Placement, Promise, Span, TensorType, Var
from graphguard.refine.proving.prove import prove


def program(*ops: str) -> Graph:
    """A tensor from the first operator, through the others."""
    nodes = [Node(ops[0], ((2, 3),), {}, (Var(0),))]
    nodes += [Node(op, (Var(i),), {}, (Var(i + 1),)) for i, op in enumerate(ops[1:])]
    types = {Var(i): TensorType((2, 3), "float32") for i in range(len(ops))}
    return Graph({}, {}, tuple(nodes), types, {"out": Var(len(ops) - 1)})


def proved(graph: Graph) -> bool:
    check = CheckRef("x.py::check", "check", Span("x.py", 1))
    promise = Promise("out", {"tp": Placement("replicate")})
    return prove(Capture(check, {"tp": 2}, (), graph, (graph, graph), (promise,))).outcome.proved


@pytest.mark.parametrize("op", ["aten.empty.memory_format", "aten.new_empty.default", "aten.empty_permuted.default"])
def test_uninitialised_memory_is_never_equal(op: str) -> None:
    assert not proved(program(op, "aten.exp.default"))


def test_what_overwrites_it_is() -> None:
    assert proved(program("aten.empty.memory_format", "aten.zeros_like.default"))
