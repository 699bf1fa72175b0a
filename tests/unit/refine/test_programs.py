"""Whole programs by content: the same answers as without a memory, in the words of the program at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from graphguard.ir import Capture, Graph, Placement, Promise
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving import programs
from graphguard.refine.proving.changes import reprove
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove
from graphguard.refine.proving.segments import Work
from tests.unit.refine.stacks import instead, stack


def timeless(outcome: Outcome) -> Outcome:
    return replace(outcome, fuel=0.0)


def of_every_graph(capture: Capture, change: Callable[[Graph], Graph]) -> Capture:
    assert capture.spec is not None
    return replace(capture, spec=change(capture.spec), ranks=tuple(map(change, capture.ranks)))


def other_names(capture: Capture) -> Capture:
    leaves = tuple(replace(leaf, name=f"model.{leaf.name}") for leaf in capture.leaves)

    def renamed(graph: Graph) -> Graph:
        return replace(graph, inputs={var: f"model.{name}" for var, name in graph.inputs.items()})

    return of_every_graph(replace(capture, leaves=leaves), renamed)


def other_output(capture: Capture) -> Capture:
    def renamed(graph: Graph) -> Graph:
        return replace(graph, outputs={f"{name}2": var for name, var in graph.outputs.items()})

    promises = tuple(Promise(f"{promise.name}2", promise.wanted) for promise in capture.promises)
    return of_every_graph(replace(capture, promises=promises), renamed)


def other_promise(capture: Capture) -> Capture:
    return replace(capture, promises=tuple(Promise(p.name, {"tp": Placement("shard", 0)}) for p in capture.promises))


def other_assumption(capture: Capture) -> Capture:
    return replace(capture, assumed=("x is small",))


def other_order(capture: Capture) -> Capture:
    return replace(capture, ranks=capture.ranks[::-1])


def other_axis(capture: Capture) -> Capture:
    return replace(capture, mesh={"tp": 2, "dp": 1})


def all_a_prelude(capture: Capture) -> Capture:
    def early(graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(replace(node, phase="prelude") for node in graph.nodes))

    return of_every_graph(capture, early)


@pytest.mark.parametrize(
    "change",
    [other_names, other_output, other_promise, other_assumption, other_order, other_axis, all_a_prelude],
)
def test_what_a_proof_depends_on_or_speaks_of_is_in_the_key(change: Callable[[Capture], Capture]) -> None:
    memo = Memo()
    before = stack(2)
    assert prove(before, memo).outcome.proved
    capture = change(before)
    spellings = programs.spelt(before, memo), programs.spelt(capture, memo)
    assert spellings[0] is not None
    assert spellings[1] is not None
    assert spellings[0].rows != spellings[1].rows
    assert timeless(prove(capture, memo).outcome) == timeless(prove(capture).outcome)


def test_places_in_the_source_are_not_in_the_key() -> None:
    def moved(graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(replace(node, stack=-1, module="other") for node in graph.nodes))

    memo = Memo()
    capture = stack(2, backward=True)
    prove(capture, memo)
    again = prove(of_every_graph(capture, moved), memo)
    assert again.outcome.proved
    assert again.evaluated == 0


@pytest.mark.parametrize("layers", [1, 3])
def test_what_was_remembered_can_be_asked(layers: int) -> None:
    memo = Memo()
    first = prove(stack(layers), memo)
    second = prove(stack(layers), memo)
    assert second.evaluated == 0
    assert {name: str(r) for name, r in second.relations().items()} == {
        name: str(r) for name, r in first.relations().items()
    }
    assert second.names() == first.names()
    assert second.facts == first.facts
    spoiled = stack(layers, spoil={0: instead("gg.all_reduce", None, "max", (0, 1))})
    assert not reprove(prove(stack(layers), memo), spoiled).outcome.proved


def test_a_program_that_is_not_proved_is_not_remembered() -> None:
    memo = Memo()
    spoiled = stack(1, spoil={0: instead("gg.all_reduce", None, "max", (0, 1))})
    for _ in range(2):
        proof = prove(spoiled, memo, effort="hasty")
        assert not proof.outcome.proved
        assert proof.evaluated > 0


def test_the_programs_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphguard.refine.proving.memo._PROGRAM_ROWS", 200)
    memo = Memo()
    for layers in range(1, 9):
        prove(stack(layers), memo)
    assert len(memo._programs) < 8
    assert prove(stack(8), memo).evaluated == 0


def test_a_large_program_is_only_known_stage_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_LARGEST", 10)
    memo = Memo()
    prove(stack(4), memo)
    assert not memo._programs
    assert prove(stack(4), memo).evaluated == 0


def test_a_small_program_is_known_as_a_whole_though_it_can_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    memo = Memo()
    prove(stack(4), memo)
    prove(stack(4), memo)
    monkeypatch.setattr(Work, "prove", None)  # stage by stage
    assert prove(stack(4), memo).outcome.proved


def test_one_edited_layer_of_a_small_program_costs_one_layer() -> None:
    def edited(graph: Graph) -> Graph:
        place = [index for index, node in enumerate(graph.nodes) if node.op == "aten.relu.default"][3]
        node = replace(graph.nodes[place], op="aten.sigmoid.default")
        return replace(graph, nodes=(*graph.nodes[:place], node, *graph.nodes[place + 1 :]))

    memo = Memo()
    prove(stack(8), memo)
    prove(stack(8), memo)
    proof = prove(of_every_graph(stack(8), edited), memo)
    assert timeless(proof.outcome) == timeless(prove(of_every_graph(stack(8), edited)).outcome)
    assert 0 < proof.evaluated < proof.calls / 4
