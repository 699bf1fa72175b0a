"""Which recorded gradients a repair of the forward pass makes those of another program."""

from __future__ import annotations

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Span, Var
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.edits import Bypass, Call, Edit, InsertCall, SetArgument, SwapTensors
from graphguard.repair.graph.slices import Site
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.trying.outdated import outdated
from graphguard.repair.trying.trials import Repair
from tests.graph_text import graph_from_text

BODY = """input %0: float64[4, 4] = "x"
input %1: float64[4, 4] = "early"
input %2: float64[4, 4] = "other"
input %3: float64[4, 4] = "late"
%4: float64[4, 4] = aten.mm.default(%0, %1) forward
%5: float64[4, 4] = aten.mm.default(%0, %2) forward
%6: float64[4, 4] = aten.tanh.default(%4) forward
%7: float64[4, 4] = aten.add.Tensor(%6, %5) forward
%8: float64[4, 4] = aten.mm.default(%7, %3) forward
output "out" = %8
output "grad(x)" = %8
output "grad(early)" = %8
output "grad(other)" = %8
output "grad(late)" = %8"""
GRADIENTS = ("grad(x)", "grad(early)", "grad(other)", "grad(late)")


def repaired(edit: Edit, at: int, rule: str = "wrong-relation", mends: tuple[str, ...] = ("out",)) -> Repair:
    graph = graph_from_text(BODY)
    leaves = tuple(Leaf(name, "parameter", graph.types[var]) for var, name in graph.inputs.items())
    check = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
    capture = Capture(check, {"tp": 1}, leaves, graph, (graph,), ())
    node = graph.nodes[at]
    site = Site(at, {0: at}, node, {0: node.outs[0]}, "off", None, ())
    return Repair(Hypothesis(rule, edit, site, 0), mends, capture, capture, prove(capture), {at: site})


@pytest.mark.parametrize(
    ("edit", "at", "gradients"),
    [
        (Bypass({0: 2}), 2, {"grad(x)", "grad(early)"}),
        (Bypass({0: 3}), 3, {"grad(x)", "grad(other)"}),
        (Bypass({0: 3}, 1), 3, {"grad(x)", "grad(early)"}),
        (SwapTensors({0: Var(4)}, {0: Var(5)}), 0, {"grad(x)", "grad(early)", "grad(other)"}),
        (SetArgument({0: 2}, 0, {0: Var(5)}, "operand"), 2, {"grad(x)", "grad(early)", "grad(other)"}),
        (InsertCall({0: Var(8)}, Call("aten.add.Tensor", {0: (Var(8), Var(2))}, {})), 4, {"grad(other)"}),
        (InsertCall({0: Var(4)}, Call("aten.tanh.default", {0: (Var(4),)}, {})), 0, {"grad(x)", "grad(early)"}),
    ],
)
def test_the_gradients_of_what_a_repaired_call_is_computed_from(edit: Edit, at: int, gradients: set[str]) -> None:
    assert outdated(repaired(edit, at), GRADIENTS) == gradients


def test_a_repair_that_changes_no_value_outdates_nothing() -> None:
    assert not outdated(repaired(Bypass({0: 2}), 2, rule="extra-reduction"), GRADIENTS)
    assert not outdated(repaired(Bypass({0: 2}), 2, mends=("grad(x)",)), GRADIENTS)
