"""What edits make of graphs."""

from fractions import Fraction

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.editing import apply
from graphguard.repair.graph.edits import InsertReduction, Scale
from tests.graph_text import graph_from_text

WHOLE = """input %0: float64[3] = "x"
%1: float64[3] = aten.tanh.default(%0) forward
output "out" = %1"""
SCALED = """input %0: float64[3] = "x"
%1: float64[3] = aten.tanh.default(%0) forward
%2: float64[3] = aten.mul.Scalar(%1, {times}) forward
%3: float64[3] = aten.div.Scalar(%2, {parts}) forward
output "out" = %3"""


@pytest.mark.parametrize("factor", [Fraction(3), Fraction(1, 3), Fraction(3, 5), Fraction(7, 3)])
def test_a_factor_is_undone_exactly(factor: Fraction) -> None:
    spec = graph_from_text(WHOLE)
    ranks = tuple(graph_from_text(SCALED.format(times=factor.numerator, parts=factor.denominator)) for _ in range(3))
    leaves = tuple(Leaf(name, "input", spec.types[var]) for var, name in spec.inputs.items())
    check = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
    promises = (Promise("out", {"tp": Placement("replicate")}),)
    scaled = Capture(check, {"tp": 3}, leaves, spec, ranks, promises)
    assert not prove(scaled).outcome.proved
    mended = apply(Scale({rank: graph.outputs["out"] for rank, graph in enumerate(ranks)}, 1 / factor), scaled)
    assert prove(mended).outcome.proved


TWICE = """input %0: float64[3] = "x"
%1: float64[3] = aten.tanh.default(%0) forward
%2: float64[3] = aten.sin.default(%0) forward
%3: float64[3] = aten.mul.Scalar(%1, 2) forward
%4: float64[3] = aten.mul.Scalar(%2, 2) forward
output "a" = %3
output "b" = %4"""
SUMMANDS = """input %0: float64[3] = "x"
%1: float64[3] = aten.tanh.default(%0) forward
%2: float64[3] = aten.sin.default(%0) forward
%3: float64[3] = aten.exp.default({read}) forward
output "a" = %1
output "b" = %2"""


def test_ranks_call_a_collective_at_one_place_though_each_reads_another_result() -> None:
    spec = graph_from_text(TWICE)
    ranks = tuple(graph_from_text(SUMMANDS.format(read=read)) for read in ("%1", "%2"))
    leaves = tuple(Leaf(name, "input", spec.types[var]) for var, name in spec.inputs.items())
    check = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
    promises = tuple(Promise(name, {"tp": Placement("replicate")}) for name in "ab")
    capture = Capture(check, {"tp": 2}, leaves, spec, ranks, promises)
    for name in "ab":
        tensors = {rank: graph.outputs[name] for rank, graph in enumerate(ranks)}
        capture = apply(InsertReduction(tensors, "tp"), capture)
    assert prove(capture).outcome.proved
