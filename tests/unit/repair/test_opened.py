"""A specification in smaller steps is judged on the ranks as they were evaluated, and as one that is evaluated anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphguard.ir import Capture, Graph, Node
from graphguard.refine.proving.changes import retried
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.opened import opened
from tests.unit.refine.stacks import stack
from tests.unit.refine.test_retrial import SPOILED


def fused(graph: Graph) -> Graph:
    """Products whose result is only added to something, with that addition in one call."""
    nodes: list[Node] = []
    made = {node.outs[0]: node for node in graph.nodes if node.op == "aten.mm.default"}
    for node in graph.nodes:
        first = node.args[0] if node.op == "aten.add.Tensor" else None
        product = made.get(node.args[1]) if first is not None else None  # type: ignore[arg-type]
        if product is None:
            nodes.append(node)
            continue
        nodes.remove(product)
        nodes.append(replace(node, op="aten.addmm.default", args=(first, *product.args)))
    return replace(graph, nodes=tuple(nodes))


def spoiled(how: str, backward: bool) -> Capture:
    capture = stack(2, spoil={0: SPOILED[how]}, backward=backward)
    assert capture.spec is not None
    return replace(capture, spec=fused(capture.spec))


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("backward", [False, True])
def test_what_is_known_of_it_is_what_a_new_attempt_finds(how: str, backward: bool) -> None:
    capture = spoiled(how, backward)
    proof = prove(capture, effort="hasty")
    smaller, again = opened(capture, proof)
    anew = prove(smaller, effort="hasty")
    assert smaller.spec is not None
    assert not any(node.op == "aten.addmm.default" for node in smaller.spec.nodes)
    assert again.failing == anew.failing == proof.failing
    assert again.outcome.specification_frontier == anew.outcome.specification_frontier
    assert again.outcome.implementation_frontier == anew.outcome.implementation_frontier
    assert {name: str(each) for name, each in again.relations().items()} == {
        name: str(each) for name, each in anew.relations().items()
    }
    mended = stack(2, backward=backward)
    later = retried(again, replace(mended, spec=smaller.spec))
    assert later is not None
    assert not later.failing


def test_what_has_nothing_to_open_stays() -> None:
    capture = stack(1, spoil={0: SPOILED["not reduced"]})
    proof = prove(capture, effort="hasty")
    assert opened(capture, proof) == (capture, proof)
