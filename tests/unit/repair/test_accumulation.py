"""Whether the passes of a loop are added up."""

from fractions import Fraction

import pytest

from graphguard.ir import Capture, CheckRef, Span, Var
from graphguard.repair.graph.edits import Scale
from graphguard.repair.scales.accumulation import are_added_up
from tests.graph_text import graph_from_text

PASSES = """input %0: float64[4] = "x"
%1: float64[4] = aten.tanh.default(%0) forward
%2: float64[4] = aten.neg.default(%0) forward
%3: float64[4] = aten.exp.default(%2) forward
{last} forward
output "out" = %4"""


@pytest.mark.parametrize(
    ("last", "added"),
    [("%4: float64[4] = aten.add.Tensor(%1, %3)", True), ("%4: float64[8] = aten.cat.default([%1, %3])", False)],
)
def test_passes_are_added_up_where_something_adds_them(last: str, added: bool) -> None:
    check = CheckRef("c.py::a", "a", Span("c.py", 1))
    capture = Capture(check, {"tp": 1}, (), None, (graph_from_text(PASSES.format(last=last)),), ())
    edits = [Scale({0: Var(number)}, Fraction(1, 2)) for number in (1, 2)]
    assert are_added_up(capture, edits, 0) == added
