"""An error in a rule is a gap for users, and a failure in tests."""

from dataclasses import replace

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span, TensorType, Var, validity
from graphguard.ir.building import Builder
from graphguard.ir.graph import Graph
from graphguard.refine.evaluation import evaluate
from graphguard.refine.proving.changes import reprove
from graphguard.refine.proving.prove import prove

KIND = TensorType((2, 3), "float32")


def graph() -> Graph:
    b = Builder()
    b.outputs["out"] = b.call("aten.relu.default", b.input("x", KIND.shape), out=(KIND.shape, "float32"))
    return b.graph()


@pytest.fixture
def capture() -> Capture:
    promises = (Promise("out", {"tp": Placement("replicate")}),)
    check = CheckRef("c.py::c", "c", Span("c.py", 1))
    return Capture(check, {"tp": 2}, (Leaf("x", "input", KIND),), graph(), (graph(), graph()), promises)


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(evaluate, "evaluate_node", failing)


@pytest.mark.usefixtures("defect")
def test_a_test_fails_where_a_rule_does(capture: Capture) -> None:
    with pytest.raises(ZeroDivisionError, match="of ours"):
        prove(capture)


@pytest.mark.usefixtures("defect")
def test_users_get_a_gap(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "STRICT", False)
    outcome = prove(capture).outcome
    assert not outcome.proved
    assert {gap.reason for gap in outcome.gaps} == {"the rule failed: ZeroDivisionError of ours"}


def test_what_somebody_tries_need_not_fit(capture: Capture, request: pytest.FixtureRequest) -> None:
    proof = prove(capture)
    other = replace(graph(), nodes=(replace(graph().nodes[0], op="aten.tanh.default"),))
    request.getfixturevalue("defect")
    assert not reprove(proof, replace(capture, ranks=(other, other))).outcome.proved


def test_an_edit_leaves_graphs(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(graph(), outputs={"out": Var(99)})
    edited = replace(capture, ranks=(graph(), broken))
    assert validity.well_formed(capture) is capture
    with pytest.raises(AssertionError, match="'out' is %99, which nothing defines"):
        validity.well_formed(edited)
    monkeypatch.setattr(validity, "STRICT", False)
    assert validity.well_formed(edited) is edited
