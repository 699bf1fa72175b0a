"""The element of a promised output that differs, where not every rank has the output."""

from __future__ import annotations

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span
from graphguard.refine.proving.prove import prove
from tests.graph_text import graph_from_text

INPUT = 'input %0: float64[4, 3] = "x"\n'
ROWS = '%1: float64[2, 3] = aten.slice.Tensor(%0, 0, {start}, {stop}) forward\noutput "{name}" = %1'


@pytest.mark.parametrize("names", [("y", "y"), ("y", "other")])
def test_rows_that_differ(names: tuple[str, str]) -> None:
    texts = [ROWS.format(start=1, stop=3, name="y"), *(ROWS.format(start=0, stop=2, name=name) for name in names)]
    spec, *ranks = (graph_from_text(INPUT + text) for text in texts)
    leaf = Leaf("x", "input", spec.types[next(iter(spec.inputs))])
    promise = Promise("y", {"pp": Placement("replicate")})
    check = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
    proof = prove(Capture(check, {"pp": 2}, (leaf,), spec, tuple(ranks), (promise,)))
    assert not proof.outcome.proved
    found = proof.difference("y")
    assert found is not None
    assert [(read.found.at, read.needed.at) for read in found.reads] == [((0, 0), (1, 0))]
