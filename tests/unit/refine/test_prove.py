"""Proof attempts on small captures written by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from graphguard.ir import Capture, CheckRef, Graph, Leaf, Node, Placement, Promise, Span, TensorType, Var
from graphguard.ir.capture import Like
from graphguard.ir.fuel import Fuel
from graphguard.ir.joining import join
from graphguard.refine.outcome import SPECIFICATION, Location, Outcome, PromiseOutcome
from graphguard.refine.proving.attempts import Attempt, completed
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove
from graphguard.relations.terms.kernels import STEPS

SHAPES = {"x": (3, 4), "w": (4, 8), "v": (8, 5), "y": (3, 5), "h": (3, 8), "g": (3, 8)}
REPLICATED = {"tp": Placement("replicate")}


class Program:
    """A graph under construction; variables are made by name."""

    def __init__(self, inputs: dict[str, tuple[int, ...]]) -> None:
        self.variables = {name: Var(index) for index, name in enumerate(inputs)}
        self.inputs = {self.variables[name]: name for name in inputs}
        self.types = {self.variables[name]: TensorType(shape, "float32") for name, shape in inputs.items()}
        self.nodes: list[Node] = []

    def call(self, name: str, shape: tuple[int, ...], op: str, *args: object, phase: str = "forward") -> Program:
        out = self.variables[name] = Var(len(self.variables))
        self.types[out] = TensorType(shape, "float32")
        bound = tuple(self.variables.get(arg, arg) if isinstance(arg, str) else arg for arg in args)
        self.nodes.append(Node(op, bound, {}, (out,), phase=phase))  # type: ignore[arg-type]
        return self

    def graph(self, outputs: dict[str, str], labels: dict[str, str] | None = None) -> Graph:
        return Graph(
            self.inputs,
            {},
            tuple(self.nodes),
            self.types,
            {name: self.variables[var] for name, var in outputs.items()},
            {self.variables[var]: name for name, var in (labels or {}).items()},
        )


LEAVES = {"x": (3, 4), "w": (4, 8), "v": (8, 5)}


def specification() -> Graph:
    program = Program(LEAVES)
    program.call("h", (3, 8), "aten.mm.default", "x", "w").call("g", (3, 8), "aten.relu.default", "h")
    return program.call("y", (3, 5), "aten.mm.default", "g", "v").graph({"out": "y"})


def rank(number: int, reduce: str | None = "sum", order: tuple[int, int] = (0, 1)) -> Graph:
    program = Program(LEAVES)
    low = 4 * order[number]
    program.call("mine", (4, 4), "aten.slice.Tensor", "w", 1, low, low + 4, phase="prelude")
    program.call("rows", (4, 5), "aten.slice.Tensor", "v", 0, low, low + 4, phase="prelude")
    program.call("h", (3, 4), "aten.mm.default", "x", "mine").call("g", (3, 4), "aten.relu.default", "h")
    program.call("y", (3, 5), "aten.mm.default", "g", "rows")
    if reduce is None:
        return program.graph({"out": "y"}, {"w": "mine", "v": "rows"})
    return program.call("z", (3, 5), "gg.all_reduce", "y", reduce, (0, 1)).graph(
        {"out": "z"}, {"w": "mine", "v": "rows"}
    )


def capture(*ranks: Graph, wanted: object = REPLICATED) -> Capture:
    leaves = tuple(Leaf(name, "input", TensorType(shape, "float32")) for name, shape in LEAVES.items())
    check = CheckRef("check.py::mlp", "mlp", Span("check.py", 1))
    return Capture(check, {"tp": len(ranks)}, leaves, specification(), ranks, (Promise("out", wanted),))  # type: ignore[arg-type]


def test_a_tensor_parallel_layer_refines() -> None:
    proof = prove(capture(rank(0), rank(1)))
    assert proof.outcome.proved
    assert proof.outcome.promises[0].found == "out@0 = out@1"
    relations = {name: str(relation) for name, relation in proof.relations().items()}
    assert relations["mm"] == "concat(mm@0, mm@1; dim=1)"
    assert relations["w"] == "concat(w@0, w@1; dim=1)"


PROVING = """
import gc, runpy, sys
here = runpy.run_path(sys.argv[1])
for reduce in ("sum", "avg", None):
    program = here["capture"](here["rank"](0, reduce), here["rank"](1, reduce))
    here["prove"](program)
    gc.collect()
    gc.disable()
    here["prove"](program)
    print(gc.collect())
    gc.enable()
"""


def test_a_proof_is_gone_when_nobody_holds_it() -> None:
    """Without a cycle in it: a process that proves all day would else wait for the collector, which is off while it proves.  In a process where nothing else runs."""
    command = [sys.executable, "-c", PROVING, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "0", "0"]


@pytest.mark.parametrize(
    ("ranks", "right"),
    [
        ((rank(0), rank(1)), True),
        ((rank(0, order=(1, 0)), rank(1, order=(1, 0))), True),
        ((rank(0, "avg"), rank(1, "avg")), False),
        ((rank(0, None), rank(1, None)), False),
        ((rank(0), rank(1, order=(0, 0))), False),
    ],
)
def test_contractions_as_unknowns_prove_what_is_right(ranks: tuple[Graph, ...], right: bool) -> None:
    """No wrong program is the same of all tensors that its products might give."""
    program = capture(*ranks)
    attempt = Attempt(program, {}, join(program.ranks), {}, 16, Fuel("the proof", STEPS), frozenset())
    assert attempt.run(0.0).outcome.proved == right


def test_shards_in_another_order_refine_too() -> None:
    assert prove(capture(rank(0, order=(1, 0)), rank(1, order=(1, 0)))).outcome.proved


def test_a_forgotten_reduction_is_found_as_a_partial_sum() -> None:
    proof = prove(capture(rank(0, None), rank(1, None)))
    assert not proof.outcome.proved
    assert proof.outcome.promises[0].found == "sum(out@0, out@1)"
    group = proof.group({0: Var(7), 1: Var(7)})
    assert group is not None
    assert group.placements == {"tp": Placement("partial")}


def test_a_partial_sum_is_clean_where_nothing_more_is_promised() -> None:
    assert prove(capture(rank(0, None), rank(1, None), wanted="infer")).outcome.proved


def test_a_factor_is_named() -> None:
    promise = prove(capture(rank(0, "avg"), rank(1, "avg"))).outcome.promises[0]
    assert not promise.holds
    assert promise.found.endswith(" = 1/2 * out")


def test_the_first_operators_off_the_relation_are_found() -> None:
    wrong = rank(1)
    nodes = list(wrong.nodes)
    nodes[3] = replace(nodes[3], op="aten.sigmoid.default")
    outcome = prove(capture(rank(0), replace(wrong, nodes=tuple(nodes)))).outcome
    assert outcome.implementation_frontier == (Location(1, 3),)
    assert outcome.specification_frontier == (Location(SPECIFICATION, 1),)


def test_an_unknown_operator_is_a_gap_and_equal_to_itself_only() -> None:
    def closed(graph: Graph, index: int) -> Graph:
        nodes = list(graph.nodes)
        nodes[index] = replace(nodes[index], op="mylib.norm.default")
        return replace(graph, nodes=tuple(nodes))

    whole = closed(specification(), 1)
    outcome = prove(replace(capture(closed(rank(0), 3), closed(rank(1), 3)), spec=whole)).outcome
    assert not outcome.proved
    assert {gap.op for gap in outcome.gaps} == {"mylib.norm.default"}
    assert prove(replace(capture(whole), spec=whole)).outcome.proved


def test_a_layout_like_a_leaf_is_what_the_prelude_does() -> None:
    spec = Program(LEAVES).call("double", (4, 8), "aten.add.Tensor", "w", "w").graph({"grad(w)": "double"})

    def half(number: int, at: int) -> Graph:
        program = Program(LEAVES)
        program.call("mine", (4, 4), "aten.slice.Tensor", "w", 1, 4 * number, 4 * number + 4, phase="prelude")
        program.call("part", (4, 4), "aten.slice.Tensor", "w", 1, 4 * at, 4 * at + 4)
        return program.call("grad", (4, 4), "aten.add.Tensor", "part", "part").graph({"grad(w)": "grad"}, {"w": "mine"})

    def outcome(*places: int) -> bool:
        made = capture(half(0, places[0]), half(1, places[1]))
        return prove(replace(made, spec=spec, promises=(Promise("grad(w)", Like("w")),))).outcome.proved

    assert outcome(0, 1)
    assert not outcome(1, 0)


@pytest.mark.parametrize("broken", ["ranks", "hang", "nothing", "specification"])
def test_strange_captures_are_answered_with_a_reason(broken: str) -> None:
    made = capture(rank(0), rank(1))
    if broken == "ranks":
        made = replace(made, ranks=made.ranks[:1])
    elif broken == "hang":
        made = replace(made, ranks=(rank(0), rank(1, None)))
    elif broken == "nothing":
        made = replace(made, promises=())
    else:
        made = replace(made, spec=None)
    outcome = prove(made).outcome
    assert not outcome.proved
    assert all(promise.reason for promise in outcome.promises)


def test_a_proof_ends_when_its_fuel_is_spent() -> None:
    outcome = prove(capture(rank(0), rank(1)), steps=10).outcome
    assert 10 <= outcome.fuel < 40
    assert [promise.reason for promise in outcome.promises] == ["the proof was given up after 10 steps"]


# -- two attempts


class Unasked:
    """A judgement that is asked for no frontiers."""

    started = 0.0


def attempt(capture: Capture, held: dict[str, bool], *assumed: str) -> Proof:
    promises = tuple(PromiseOutcome(name, holds, "", "found" if holds else "") for name, holds in held.items())
    return Proof(capture, Outcome(all(held.values()), promises, (Location(0, 0),), assumed=assumed))


def test_an_output_is_proved_where_either_attempt_proves_it() -> None:
    """Each under what its own attempt assumes: both are listed."""
    both_ranks = capture(rank(0), rank(1))
    first = attempt(both_ranks, {"a": True, "b": False}, "one", "two")
    both = completed(first, attempt(both_ranks, {"a": False, "b": True}, "two", "three"), Unasked())  # type: ignore[arg-type]
    assert both.outcome.proved
    assert [promise.found for promise in both.outcome.promises] == ["found", "found"]
    assert both.outcome.assumed == ("one", "two", "three")
    assert not both.outcome.specification_frontier


def test_an_output_that_neither_attempt_proves_stays_open() -> None:
    both_ranks = capture(rank(0), rank(1))
    first = attempt(both_ranks, {"a": False, "b": False, "c": True})
    both = completed(first, attempt(both_ranks, {"a": False, "b": True, "c": False}), Unasked())  # type: ignore[arg-type]
    assert not both.outcome.proved
    assert [promise.holds for promise in both.outcome.promises] == [False, True, True]
    nothing = attempt(both_ranks, {"a": False, "b": False, "c": False}, "three")
    assert completed(first, nothing, Unasked()) is first  # type: ignore[arg-type]
