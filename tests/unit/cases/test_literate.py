"""The case format can fail: each kind of expectation, met and not met."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from graphguard.ir import CheckRef, Span
from graphguard.report.diagnostics import Diagnostic, Fix, Report, TextEdit, Verdict
from graphguard.report.sources import Sources

_SPEC = importlib.util.spec_from_file_location("literate", Path(__file__).parents[2] / "cases" / "literate.py")
literate = importlib.util.module_from_spec(_SPEC)
sys.modules["literate"] = literate
_SPEC.loader.exec_module(literate)

TEXT = """\
# Missing reductions

```python
import graphguard as gg
```

```python
# file: layers.py
def layer(x):
    return x
```

## A partial output

Prose is ignored, and so are `inline blocks`.

```python
# relation: h = concat(h@0, h@1; dim=2)
# counterexample: out[0]
y = down(h)  # error: [missing-reduction] "partial sum"
```

```diff
-y = down(h)
+y = all_reduce(down(h))
```

## The right one

```python
# warning: [unproved]
y = 1
```

## Nothing to run
"""


def case():
    return literate.read_cases(TEXT)[0]


def report(**changes):
    file = "/p/check.py"
    source = case().files["check.py"]
    fix = Fix("x", (TextEdit(Span(file, 4, 5, 4, 12), "all_reduce(down(h))"),), proved=True)
    diagnostic = Diagnostic(
        "missing-reduction", "missing-reduction", "'y' is a partial sum", "error", Span(file, 4, 1), fixes=(fix,)
    )
    made = Report(
        CheckRef("check.py::f", "f", Span(file, 1)),
        {"tp": 2},
        Verdict.BROKEN,
        (diagnostic,),
        relations={"h": "concat(h@0, h@1; dim=2)"},
        counterexample="out[0]: 1, specification 2",
    )
    return replace(made, **changes), Sources(Path("/p"), {file: source})


def test_cases_of_a_file():
    first, second = literate.read_cases(TEXT)
    assert (first.title, first.line, second.title) == ("A partial output", 13, "The right one")
    assert first.files["check.py"].startswith("import graphguard as gg\n# relation")
    assert first.files["layers.py"] == "# file: layers.py\ndef layer(x):\n    return x\n"
    assert first.expected == (literate.Expected("check.py", 4, "error", "missing-reduction", "partial sum"),)
    assert second.expected == (literate.Expected("check.py", 3, "warning", "unproved", ""),)
    assert (first.wanted_verdicts(2), second.wanted_verdicts(1)) == (["broken", "broken"], ["refines"])
    assert first.fix == ("-y = down(h)", "+y = all_reduce(down(h))")


def test_a_block_without_end():
    with pytest.raises(literate.CaseError, match="line 3: a block that does not end"):
        literate.read_cases("\n\n```python\nx\n")


def test_a_case_is_slow_where_its_section_says_so():
    slow = TEXT.replace("## The right one\n", f"## The right one\n\n{literate.SLOW}\n")
    assert [case.slow for case in literate.read_cases(TEXT)] == [False, False]
    assert [case.slow for case in literate.read_cases(slow)] == [False, True]
    with pytest.raises(literate.CaseError, match="belongs to a section"):
        literate.read_cases(f"{literate.SLOW}\n{TEXT}")


def test_a_verdict_that_is_none():
    with pytest.raises(literate.CaseError, match="'fine' is no verdict"):
        literate.read_cases("## a\n```python\n# verdict: fine\n```\n")


def test_all_is_well():
    made, sources = report()
    assert literate.differences(case(), [made], sources) == []


DIAGNOSTIC = report()[0].diagnostics[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": Verdict.UNKNOWN}, "f tp=2: verdict unknown, expected broken"),
        ({"verdict": None}, "f tp=2: verdict not-run, expected broken"),
        ({"diagnostics": ()}, 'missing:    check.py:4  error: [missing-reduction] "partial sum"'),
        (
            {"diagnostics": (DIAGNOSTIC, replace(DIAGNOSTIC, rule="wrong-scale"))},
            "unexpected: check.py:4  error: [wrong-scale]",
        ),
        ({"diagnostics": (replace(DIAGNOSTIC, span=Span("/p/check.py", 3)),)}, "unexpected: check.py:3"),
        ({"diagnostics": (replace(DIAGNOSTIC, severity="warning"),)}, "missing:"),
        ({"diagnostics": (replace(DIAGNOSTIC, message="other"),)}, "missing:"),
        ({"diagnostics": (replace(DIAGNOSTIC, span=None),)}, "missing:"),
        ({"diagnostics": (replace(DIAGNOSTIC, fixes=()),)}, "no fix was offered"),
        ({"diagnostics": (replace(DIAGNOSTIC, fixes=(replace(DIAGNOSTIC.fixes[0], proved=False),)),)}, "is not proved"),
        (
            {"diagnostics": (replace(DIAGNOSTIC, fixes=(replace(DIAGNOSTIC.fixes[0], edits=()),)),)},
            "another fix was offered",
        ),
        (
            {"relations": {"h": "sum(h@0, h@1)"}},
            "relation 'h = concat(h@0, h@1; dim=2)' expected, found ['h = sum(h@0, h@1)']",
        ),
        ({"counterexample": None}, "counterexample 'out[0]' expected"),
    ],
)
def test_whatever_is_not_as_stated_is_said(changes, message):
    made, sources = report(**changes)
    assert any(message in line for line in literate.differences(case(), [made], sources))


def test_no_check_at_all():
    assert literate.differences(case(), [], Sources()) == ["no check was found"]
