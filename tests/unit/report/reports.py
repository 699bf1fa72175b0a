"""Reports made by hand, for the tests of renderers, waivers and baselines."""

from dataclasses import replace
from pathlib import Path

from graphguard.confirm.confirmation import Counterexample
from graphguard.ir import CheckRef, Span
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace, Report, TextEdit, Verdict
from graphguard.report.sources import Sources

ROOT = Path("/project")
FILE = "/project/examples/mlp.py"
TEXT = """\
import torch

class Spec:
    def forward(self, x):
        return self.down(gelu(self.up(x)))

class MLP:
    def forward(self, x):
        h = gelu(self.up(x))
        return self.down(h)

def mlp(mesh):
    ...
"""

CHECK = CheckRef("examples/mlp.py::mlp", "mlp", Span(FILE, 12, 5, 12, 8))
FIX = Fix(
    "all_reduce(y) over 'tp' before the return",
    (
        TextEdit(Span(FILE, 10, 9, 10, 15), "y ="),
        TextEdit(Span(FILE, 11, 1), "        dist.all_reduce(y, group=self.group)\n        return y\n"),
    ),
    proved=True,
    bytes_moved=4096,
)
MISSING = Diagnostic(
    code="missing-reduction",
    rule="missing-reduction",
    message=(
        "'y' is a partial sum over axis 'tp' and is used as if it were whole\n"
        "needed: out = out@0 = out@1\n"
        "found:  sum(out@0, out@1)\n"
        "fix: all_reduce(y) over 'tp' before the return (proved)"
    ),
    severity="error",
    span=Span(FILE, 10, 16, 10, 28),
    related=(RelatedPlace(Span(FILE, 5, 16, 5, 43), "the specification computes it here"),),
    fixes=(FIX,),
)
UNPROVED = Diagnostic("unproved", "unproved", "no proof was found", "warning", Span(FILE, 9, 13, 9, 29))
COUNTEREXAMPLE = Counterexample("out", 1, (0, 2), 6.0, 3.0, {"tp": 2}, {"x": (2, 8, 64)}, {"x": "all ones"}, 7)

REFINES = Report(
    CHECK, {"tp": 2}, Verdict.REFINES, seconds={"trace": 0.03, "infer": 0.011}, operators={"spec": 3, "impl": 8}
)
BROKEN = replace(
    REFINES,
    verdict=Verdict.BROKEN,
    diagnostics=(MISSING,),
    relations={"h": "concat(h@0, h@1; dim=2)", "out": "sum(out@0, out@1)"},
    counterexample=COUNTEREXAMPLE,
    assumed=("0 <= ids < 100",),
)
UNKNOWN = replace(REFINES, verdict=Verdict.UNKNOWN, diagnostics=(UNPROVED,))
NOT_RUN = Report(
    CHECK,
    {},
    None,
    (Diagnostic("trace-error", "trace-error", "NameError: name 'x' is not defined", "error", Span(FILE, 9, 9)),),
)


def sources(text: str = TEXT) -> Sources:
    return Sources(ROOT, {FILE: text})


def moved_down(report: Report, lines: int) -> Report:
    """The report after lines were inserted above everything it speaks of."""

    def moved(diagnostic: Diagnostic) -> Diagnostic:
        span = diagnostic.span
        assert span is not None
        return replace(diagnostic, span=replace(span, line=span.line + lines, end_line=span.end_line + lines))

    return replace(report, diagnostics=tuple(map(moved, report.diagnostics)))
