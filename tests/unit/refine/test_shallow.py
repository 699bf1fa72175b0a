"""Deep programs that are not proved: the same answers as in one piece, of a program with few of the layers that are alike."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.trust.mutants import mutants
from graphguard.confirm.confirmation import Confirmation
from graphguard.diagnose.diagnosis import diagnose
from graphguard.ir import Capture, Graph, Node, Placement, Promise
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import finished, prove
from tests.unit.refine.stacks import ROWS, WIDTH, Program, instead, stack

DEEP = 13
FORGOTTEN = instead("aten.clone.default", None)


def timeless(outcome: Outcome) -> Outcome:
    """What does not depend on how it was found."""
    return replace(outcome, fuel=0.0, hurried=False)


def hasty(capture: Capture) -> Proof:
    """A first attempt with an empty memo."""
    return prove(capture, Memo(), effort="hasty")


def in_layers(capture: Capture, op: str, by: Node, *layers: int) -> Capture:
    """Ranks that call something else in the backward pass of layers, in the place of an operator that every layer calls once there."""

    def of(graph: Graph) -> Graph:
        places = [i for i, node in enumerate(graph.nodes) if node.op == op and node.phase == "backward"]
        places.reverse()
        wrong = {places[layer] for layer in layers}
        nodes = (
            replace(by, args=(n.args[0], *by.args), outs=n.outs) if i in wrong else n for i, n in enumerate(graph.nodes)
        )
        return replace(graph, nodes=tuple(nodes))

    return replace(capture, ranks=tuple(map(of, capture.ranks)))


CLONE = Node("aten.clone.default", (), {}, (), phase="backward")
SPOILED = {
    "the first": stack(DEEP, spoil={0: FORGOTTEN}),
    "one between": stack(DEEP, spoil={DEEP // 2: FORGOTTEN}),
    "the last": stack(DEEP, spoil={DEEP - 1: FORGOTTEN}),
    "two": stack(DEEP, spoil={1: instead("aten.mul.Tensor", None, 2.0), DEEP - 1: FORGOTTEN}),
    "every one": stack(DEEP, spoil=dict.fromkeys(range(DEEP), FORGOTTEN)),
    "forward only": stack(DEEP, backward=False, spoil={3: FORGOTTEN}),
    "backward": in_layers(stack(DEEP), "gg.all_reduce", CLONE, 5),
    "backward of every one": in_layers(stack(DEEP), "gg.all_reduce", CLONE, *range(DEEP)),
}


@pytest.mark.parametrize("which", SPOILED)
def test_what_is_open_is_what_is_open_in_one_piece(which: str) -> None:
    found, alone = hasty(SPOILED[which]), prove(SPOILED[which], effort="hasty")
    assert not found.outcome.proved
    assert found.shallow is not None
    assert found.shallow.capture.calls < found.capture.calls
    assert timeless(found.outcome) == timeless(alone.outcome)


def test_a_promise_that_one_layer_breaks_leaves_those_of_the_others() -> None:
    """What is said to hold of the others is proved of them all."""
    largest = Node("aten.amax.default", ((0,),), {}, (), phase="backward")
    capture = in_layers(stack(DEEP, scaled=True), "aten.sum.dim_IntList", largest, 6)
    found, alone = hasty(capture), prove(capture, effort="hasty")
    assert found.outcome.failing == ("grad(6.s)",)
    assert found.shallow is not None
    assert timeless(found.outcome) == timeless(alone.outcome)


def test_a_deep_program_is_looked_at_as_a_shallow_one() -> None:
    found, deeper = (hasty(stack(depth, spoil={depth // 2: FORGOTTEN})) for depth in (16, 40))
    assert found.shallow is not None
    assert found.evaluated == deeper.evaluated < found.calls


@pytest.mark.parametrize("which", ["one between", "two"])
def test_findings_are_those_of_the_whole_program(which: str) -> None:
    capture = SPOILED[which]
    found, alone = hasty(capture), prove(capture, effort="hasty")
    numbers = Confirmation("differs", differing=alone.outcome.failing)
    told, whole = (diagnose(capture, proof, numbers, lambda _: None).findings for proof in (found, alone))
    assert told == whole


def summands(layers: int, ways: int, rank: int) -> Graph:
    """A stack whose ranks hold the stream as summands and add them up where a layer reads it: no cut is a window of the specification's."""
    p = Program(layers, rank, ways)
    p.phase = "forward"
    x = p.call("aten.div.Tensor", (ROWS, WIDTH), p.x, ways)
    for w, v in p.weights:
        y = p.mm(p.call("aten.relu.default", (ROWS, p.inner), p.mm(p.summed(x), w)), v)
        x = p.call("aten.add.Tensor", (ROWS, WIDTH), x, y)
    p.outputs["out"] = p.summed(x)
    return Graph(p.inputs, {}, tuple(p.nodes), p.types, p.outputs, p.labels)


def held_as_summands(layers: int, ways: int = 2) -> Capture:
    """Its capture."""
    right = stack(layers, ways, backward=False)
    return replace(
        right,
        ranks=tuple(summands(layers, ways, rank) for rank in range(ways)),
        promises=(Promise("out", {"tp": Placement("replicate")}),),
    )


def test_what_the_whole_proves_is_proved() -> None:
    """Stage by stage it is not: what every layer leaves to the next one has to be seen beside it."""
    found = hasty(held_as_summands(DEEP))
    assert found.outcome.proved
    assert found.shallow is None


def test_where_numbers_find_nothing_the_whole_is_looked_at() -> None:
    capture = stack(8, backward=False, spoil={0: FORGOTTEN})
    first = hasty(capture)
    assert first.shallow is not None
    found, alone = finished(first), prove(capture, effort="usual")
    assert found.shallow is None
    assert timeless(found.outcome) == timeless(alone.outcome)


def test_relations_are_those_of_the_whole_program() -> None:
    capture = SPOILED["forward only"]
    found, alone = hasty(capture), prove(capture, effort="hasty")
    assert found.names() == alone.names()
    assert {name: str(r) for name, r in found.relations().items()} == {
        name: str(r) for name, r in alone.relations().items()
    }


def test_mutants_of_deep_programs_get_the_outcome_that_they_get_in_one_piece() -> None:
    told = 0
    for mutant in mutants(stack(9), random.Random(0), 8):
        found, alone = hasty(mutant.capture), prove(mutant.capture, effort="hasty")
        told += found.shallow is not None
        assert found.outcome.proved == alone.outcome.proved
        assert found.outcome.proved or timeless(found.outcome) == timeless(alone.outcome)
    assert told
