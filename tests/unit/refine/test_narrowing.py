"""Arithmetic of ranks in a narrower type than the specification's is no proof, whatever a memo knows, and is written as a rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphguard.ir import Capture, Graph
from graphguard.ir.validity import faults
from graphguard.refine.evaluation.exposed import ROUNDED, is_unmeant
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove
from tests.unit.refine.stacks import stack

TYPE = "bfloat16"


def in_bfloat16(graph: Graph, layer: int, calls: range, length: int) -> Graph:
    """A graph with some calls of a layer of so many calls computed in bfloat16."""
    forward = [node for node in graph.nodes if node.phase == "forward"]
    outs = {out for place in calls for out in forward[length * layer + place].outs}
    types = {var: replace(kind, dtype=TYPE) if var in outs else kind for var, kind in graph.types.items()}
    return replace(graph, types=types)


def narrow_ranks(capture: Capture, layer: int) -> Capture:
    """The product of a row-parallel weight and its sum over the ranks in bfloat16."""
    return replace(capture, ranks=tuple(in_bfloat16(graph, layer, range(2, 4), 5) for graph in capture.ranks))


@pytest.mark.parametrize("backward", [False, True])
def test_it_is_not_proved(backward: bool) -> None:
    capture = narrow_ranks(stack(3, backward=backward), 1)
    proof = prove(capture, effort="hasty")
    assert not proof.outcome.proved
    for graph in proof.capture.ranks:
        roundings = [node for node in graph.nodes if node.op == ROUNDED]
        assert [is_unmeant(node) for node in roundings] == [True, True]
        assert {graph.types[node.reads[0]].dtype for node in roundings} == {"float32"}
        assert {graph.types[node.outs[0]].dtype for node in roundings} == {TYPE}
    assert proof.capture.spec is capture.spec
    assert not any(faults(graph, 2) for graph in proof.capture.ranks)


def test_the_specification_may_do_the_same() -> None:
    capture = narrow_ranks(stack(3, backward=False), 1)
    assert capture.spec is not None
    proof = prove(replace(capture, spec=in_bfloat16(capture.spec, 1, range(2, 3), 4)))
    assert proof.outcome.proved
    assert not proof.roundings


def test_a_memo_neither_hides_nor_keeps_it() -> None:
    memo = Memo()
    assert prove(stack(4), memo).outcome.proved
    for layer in range(4):
        assert not prove(narrow_ranks(stack(4), layer), memo, effort="hasty").outcome.proved
    again = prove(stack(12), memo)
    assert again.outcome.proved
    assert again.evaluated == 0
