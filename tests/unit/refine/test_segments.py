"""Proof stage by stage: the same answers as proof in one piece, and no stage proved twice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.trust.mutants import mutants
from graphguard.ir import Capture, DType, Graph, Node, Placement, Promise, TensorType, Var
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove
from tests.unit.refine.stacks import INNER, ROWS, Spoil, instead, stack

SPOILED: dict[str, Spoil] = {
    "no all_reduce": instead("aten.clone.default", None),
    "a mean for a sum": instead("gg.all_reduce", None, "avg", (0, 1)),
    "a maximum for a sum": instead("gg.all_reduce", None, "max", (0, 1)),
    "summed twice": instead("aten.mul.Tensor", None, 2.0),
}


def timeless(outcome: Outcome) -> Outcome:
    """What does not depend on what a memo knew."""
    return replace(outcome, fuel=0.0, hurried=False)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("ways", [2, 4])
def test_layers_that_are_alike_are_proved_once(ways: int, backward: bool) -> None:
    memo = Memo()
    first = prove(stack(4, ways, backward=backward), memo)
    assert first.outcome.proved
    deep = prove(stack(12, ways, backward=backward), memo)
    assert deep.outcome.proved
    assert deep.evaluated == 0  # all its layers are like the first, the last or one between
    assert timeless(deep.outcome) == timeless(prove(stack(12, ways, backward=backward)).outcome)


def test_what_was_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphguard.refine.proving.programs._SMALL", 0)  # programs are known by their stages alone
    monkeypatch.setattr("graphguard.refine.proving.memo._ROWS", 130)
    memo, kept = Memo(), stack(4)
    layer = prove(kept, memo).evaluated
    others = [replaced(stack(4), 1, "aten.relu.default", f"aten.{op}.default") for op in ("sigmoid", "tanh", "exp")]
    for other in others:
        assert prove(other, memo).evaluated == layer
        assert prove(kept, memo).evaluated == 0
    assert prove(others[0], memo).evaluated == layer


def test_the_same_program_again_costs_nothing() -> None:
    memo = Memo()
    cold = prove(stack(4), memo)
    assert cold.evaluated < cold.calls
    warm = prove(stack(4), memo)
    assert warm.evaluated == 0
    assert timeless(warm.outcome) == timeless(cold.outcome)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_the_first_and_the_last_layer_are_like_the_others(backward: bool, scaled: bool) -> None:
    """What comes in as an input, and what is promised, is no part of what a layer's calls are known by."""
    deep = prove(stack(12, backward=backward, scaled=scaled), Memo())
    assert deep.outcome.proved
    assert deep.evaluated == deep.calls / 12


def test_a_table_that_is_an_input_is_made_where_a_layer_reads_it() -> None:
    """So the first layer, before which it stands in the program, is like the others."""
    deep = prove(stack(12, backward=False, table=True), Memo())
    assert deep.evaluated == prove(stack(1, backward=False, table=True)).calls


@pytest.mark.parametrize("backward", [False, True])
def test_promises_of_one_stage_are_not_confused(backward: bool) -> None:
    memo = Memo()
    assert prove(stack(4, backward=backward), memo).outcome.proved
    fewer = stack(4, backward=backward)
    fewer = replace(fewer, promises=fewer.promises[:1])
    assert prove(fewer, memo).evaluated == 0
    for wanted in ({"tp": Placement("shard", 0)}, {"tp": Placement("partial")}):
        wrong = replace(fewer, promises=(Promise("out", wanted), *stack(4, backward=backward).promises[1:]))
        found = prove(wrong, memo, effort="hasty")
        assert not found.outcome.proved
        assert timeless(found.outcome) == timeless(prove(wrong, effort="hasty").outcome)
    assert prove(stack(4, backward=backward), memo).evaluated == 0


def test_one_edited_layer_costs_one_layer() -> None:
    memo = Memo()
    prove(stack(32), memo)
    edited = replaced(stack(32), 17, "aten.relu.default", "aten.sigmoid.default")
    again = prove(edited, memo)
    assert again.evaluated * 20 < again.calls
    assert timeless(again.outcome) == timeless(prove(edited).outcome)


@pytest.mark.parametrize("layer", [0, 5])
@pytest.mark.parametrize("how", SPOILED)
def test_one_spoiled_layer_of_eight_is_found_where_it_is(layer: int, how: str) -> None:
    memo = Memo()
    assert prove(stack(8), memo).outcome.proved
    capture = stack(8, spoil={layer: SPOILED[how]})
    found, alone = prove(capture, memo, effort="hasty"), prove(capture, effort="hasty")
    assert not found.outcome.proved
    assert timeless(found.outcome) == timeless(alone.outcome)
    assert prove(stack(8), memo).evaluated == 0


def test_relations_are_those_of_the_program_at_hand() -> None:
    memo = Memo()
    prove(stack(3), memo)
    capture = stack(5)
    with_memo, without = prove(capture, memo), prove(capture)
    assert with_memo.evaluated < with_memo.calls / 2
    assert {name: str(r) for name, r in with_memo.relations().items()} == {
        name: str(r) for name, r in without.relations().items()
    }
    assert {str(promise.found) for promise in with_memo.outcome.promises} >= {"out@0 = out@1"}
    for rank, graph in enumerate(capture.ranks):
        for var in graph.types:
            assert with_memo.describe(rank, var) == without.describe(rank, var)


def test_what_a_stage_depends_on_is_not_confused() -> None:
    """Programs that differ in one thing each, proved with one memo: none takes another's answer."""
    memo = Memo()
    assert prove(stack(3), memo).outcome.proved
    for different in (
        replaced(stack(3), 1, "aten.relu.default", "aten.tanh.default", spec=False),
        typed(stack(3), "bfloat16"),
        stack(3, spoil={1: instead("gg.all_reduce", None, "sum", (1, 0))}),
    ):
        found, alone = (prove(different, known, effort="hasty") for known in (memo, None))
        assert timeless(found.outcome) == timeless(alone.outcome)


def test_a_last_stage_may_come_again_before_another() -> None:
    memo = Memo()
    ends, goes_on = (replaced(stack(n, backward=False), 2, "aten.relu.default", "aten.tanh.default") for n in (3, 4))
    assert prove(ends, memo).outcome.proved
    assert prove(goes_on, memo).outcome.proved
    assert prove(goes_on, memo).evaluated == 0


@pytest.mark.parametrize("first", ["whole", "part"])
def test_the_same_calls_are_two_stages_where_different_tensors_are_read_on(first: str) -> None:
    """Every layer also adds what its ranks hold of the sum; the next layer reads the one or the other."""
    memo = Memo()
    captures = {name: reading(name) for name in ("whole", "part")}
    for name in (first, *(captures.keys() - {first})):
        assert prove(captures[name], memo).outcome.proved is (name == "whole")


def reading(read: str) -> Capture:
    """A stack whose second layer leaves two tensors, equal in the specification: what it is to be, and that with the rank's own part of the sum."""

    def of(graph: Graph) -> Graph:
        types, nodes, reread = dict(graph.types), [], {}
        ends = [node.outs[0] for node in graph.nodes if node.op == "aten.add.Tensor"]
        for node in graph.nodes:
            args = tuple(reread.get(arg, arg) if isinstance(arg, Var) else arg for arg in node.args)
            if node.outs[0] != ends[1]:
                nodes.append(replace(node, args=args))
                continue
            part = [n.outs[0] for n in nodes if n.op == "aten.mm.default"][-1]
            other = Var(len(types))
            types[other] = types[ends[1]]
            both = (replace(node, args=args), Node(node.op, (args[0], part), {}, (other,), phase="forward"))
            nodes.extend(both)
            reread[ends[1]] = other if read == "part" else ends[1]
        return replace(graph, nodes=tuple(nodes), types=types)

    capture = stack(4, backward=False)
    assert capture.spec is not None
    return replace(capture, spec=of(capture.spec), ranks=tuple(map(of, capture.ranks)))


def test_an_element_type_is_part_of_what_a_stage_depends_on() -> None:
    """A cut tensor that is the specification's own, but held in another type by the ranks: rounding it again is not the same call."""
    memo = Memo()
    assert prove(rounded("float32"), memo).outcome.proved
    narrow = rounded("bfloat16")
    assert not prove(narrow, effort="hasty").outcome.proved
    assert not prove(narrow, memo, effort="hasty").outcome.proved


def rounded(dtype: str) -> Capture:
    """A stack in bfloat16 that keeps the stream in float32 and rounds it before every layer; the ranks keep it in ``dtype``."""
    capture = stack(4, backward=False)
    assert capture.spec is not None
    leaves = tuple(replace(leaf, type=TensorType(leaf.type.shape, "bfloat16")) for leaf in capture.leaves)
    return replace(
        capture,
        leaves=leaves,
        spec=in_type(capture.spec, "float32"),
        ranks=tuple(in_type(graph, dtype) for graph in capture.ranks),
    )


def in_type(graph: Graph, stream: str) -> Graph:
    """The graph in bfloat16, its sums in another type and rounded where they are read by a product."""
    types = {var: TensorType(kind.shape, "bfloat16") for var, kind in graph.types.items()}
    nodes, known = [], {}
    for node in graph.nodes:
        if node.op == "aten.mm.default" and node.args[0] in known:
            narrow = Var(len(types))
            types[narrow] = TensorType(types[node.args[0]].shape, "bfloat16")
            nodes.append(Node("aten._to_copy.default", (node.args[0],), {"dtype": DType("bfloat16")}, (narrow,)))
            node = replace(node, args=(narrow, node.args[1]))
        if node.op == "aten.add.Tensor":
            known[node.outs[0]] = True
            types[node.outs[0]] = TensorType(types[node.outs[0]].shape, stream)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), types=types)


@pytest.mark.parametrize("seed", [0])
def test_mutants_get_the_verdict_that_they_get_alone(seed: int) -> None:
    memo = Memo()
    capture = stack(5)
    prove(capture, memo)
    for mutant in mutants(capture, random.Random(seed), 10):
        found, alone = (prove(mutant.capture, known, effort="hasty") for known in (memo, None))
        assert timeless(found.outcome) == timeless(alone.outcome)


def replaced(capture: Capture, layer: int, op: str, by: str, spec: bool = True) -> Capture:
    """Another operator in one layer of the ranks, and of the specification."""

    def of(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        places = [index for index, node in enumerate(nodes) if node.op == op]
        return tuple(replace(n, op=by) if index == places[layer] else n for index, n in enumerate(nodes))

    assert capture.spec is not None
    graphs = [replace(graph, nodes=of(graph.nodes)) for graph in capture.ranks]
    return replace(
        capture,
        spec=replace(capture.spec, nodes=of(capture.spec.nodes)) if spec else capture.spec,
        ranks=tuple(graphs),
    )


def typed(capture: Capture, dtype: str) -> Capture:
    """One rank's last layer in another element type: its sums are rounded."""
    rank = capture.ranks[1]
    last = max(node.outs[0].id for node in rank.nodes if node.op == "aten.mm.default" and node.phase == "forward")
    types = {var: TensorType(kind.shape, dtype) if var.id == last else kind for var, kind in rank.types.items()}
    return replace(capture, ranks=(capture.ranks[0], replace(rank, types=types)))


def test_complex_numbers_are_no_pairs_of_reals_in_a_stage() -> None:
    right = replace(
        stack(4, backward=False),
        spec=squared(stack(4, backward=False).spec, ways=1),
        ranks=tuple(squared(graph, ways=2) for graph in stack(4, backward=False).ranks),
    )
    proof = prove(right, Memo())
    assert proof.outcome.proved
    assert proof.evaluated < proof.calls
    by_parts = tuple(squared(graph, ways=2, by_parts=True) for graph in stack(4, backward=False).ranks)
    assert not prove(replace(right, ranks=by_parts), Memo(), effort="hasty").outcome.proved


def squared(graph: Graph | None, ways: int, by_parts: bool = False) -> Graph:
    """With the square of pairs as complex numbers, or of each part, in the place of every relu."""
    assert graph is not None
    nodes, types = [], dict(graph.types)
    pairs, flat = (ROWS, INNER // ways // 2, 2), (ROWS, INNER // ways)

    def call(op: str, shape: tuple[int, ...], dtype: str, *args: object) -> Var:
        out = Var(len(types))
        types[out] = TensorType(shape, dtype)
        nodes.append(Node(op, args, {}, (out,)))  # type: ignore[arg-type]
        return out

    for node in graph.nodes:
        if node.op != "aten.relu.default":
            nodes.append(node)
            continue
        both = call("aten.view.default", pairs, "float32", node.args[0], pairs)
        if by_parts:
            product = call("aten.mul.Tensor", pairs, "float32", both, both)
        else:
            number = call("aten.view_as_complex.default", pairs[:-1], "complex64", both)
            square = call("aten.mul.Tensor", pairs[:-1], "complex64", number, number)
            product = call("aten.view_as_real.default", pairs, "float32", square)
        nodes.append(replace(node, op="aten.view.default", args=(product, flat)))
    return replace(graph, nodes=tuple(nodes), types=types)
