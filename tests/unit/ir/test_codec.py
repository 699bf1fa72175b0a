"""Captures as JSON: they read back as they were, and what ranks share is written once."""

from dataclasses import replace
from typing import Any

import pytest

from graphguard.ir import (
    Capture,
    CheckRef,
    Frame,
    Graph,
    Node,
    Span,
    TensorType,
    Var,
    capture_from_json,
    capture_to_json,
)
from graphguard.ir.codec import dumps, loads
from graphguard.ir.plain import CodecError

x, y = Var(0), Var(1)
F32 = TensorType((3,), "float32")
FIRST = Graph(
    inputs={x: "x"},
    constants={},
    nodes=(Node("aten.neg.default", (x,), {}, (y,), stack=0), Node("aten.slice.Tensor", (y, 0, 0, 1), {}, (Var(2),))),
    types={x: F32, y: F32, Var(2): TensorType((1,), "float32")},
    outputs={"out": Var(2)},
    frames=(Frame(Span("m.py", 1, 1, 2, 4), "h"),),
    stacks=((0,),),
)
SECOND = replace(FIRST, nodes=(FIRST.nodes[0], replace(FIRST.nodes[1], args=(y, 0, 1, 2))))


def capture(*ranks: Graph) -> Capture:
    return Capture(CheckRef("c.py::a", "a", Span("c.py", 1)), {"tp": len(ranks)}, (), FIRST, ranks, ())


@pytest.mark.parametrize(
    "other",
    [
        SECOND,
        replace(SECOND, types={**FIRST.types, Var(2): TensorType((2,), "float32")}),
        replace(FIRST, nodes=FIRST.nodes[:1], outputs={"out": y}),
        replace(FIRST, frames=(Frame(Span("m.py", 7, 1, 7, 4), "g"),)),
    ],
    ids=["another call", "another type", "a call less", "other frames"],
)
def test_ranks_that_share_calls_read_back_as_they_were(other: Graph) -> None:
    whole = capture(FIRST, other, FIRST)
    found = capture_from_json(capture_to_json(whole))
    assert found == whole
    assert found.ranks[2].nodes[0] is found.ranks[0].nodes[0]
    assert capture_to_json(found) == capture_to_json(whole)


@pytest.mark.parametrize("like", [1, 7, -1, "0", None])
def test_a_rank_that_is_like_none_before_it_is_refused(like: Any) -> None:
    document = loads(capture_to_json(capture(FIRST, SECOND)))
    assert document["ranks"][1]["like"] == 0
    document["ranks"][1]["like"] = like
    with pytest.raises(CodecError):
        capture_from_json(dumps(document))


def test_more_calls_than_the_rank_has_that_it_is_like_are_refused() -> None:
    document = loads(capture_to_json(capture(FIRST, SECOND)))
    document["ranks"][1]["nodes"] = [0, 0, 0]
    with pytest.raises(CodecError):
        capture_from_json(dumps(document))
