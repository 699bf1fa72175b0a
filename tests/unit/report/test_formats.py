import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from graphguard.ir import Span
from graphguard.report import concise, github, json_document, sarif
from graphguard.report.diagnostics import Diagnostic

from .reports import BROKEN, FILE, MISSING, NOT_RUN, REFINES, UNKNOWN, sources
from .sarif_schema import sarif_schema

ALL = [REFINES, BROKEN, UNKNOWN, NOT_RUN]


def against_the_standard(log: object) -> None:
    """Raises ``jsonschema.ValidationError`` where the log is no SARIF 2.1.0."""
    jsonschema.Draft7Validator(sarif_schema(), format_checker=jsonschema.FormatChecker()).validate(log)


def test_concise():
    assert concise.render(ALL, sources()).splitlines() == [
        "examples/mlp.py:10:16: missing-reduction 'y' is a partial sum over axis 'tp' and is used as if it were whole",
        "examples/mlp.py:9:13: unproved no proof was found",
        "examples/mlp.py:9:9: trace-error NameError: name 'x' is not defined",
    ]


def test_concise_says_what_several_meshes_share_once():
    assert concise.render([BROKEN, replace(BROKEN, mesh={"tp": 4})], sources()).count("\n") == 1


def test_each_format_tells_a_defect_once():
    second = replace(BROKEN, mesh={"tp": 4}, diagnostics=(replace(MISSING, message="the same on 4 ranks"),))
    reports = [BROKEN, second]
    assert concise.render(reports, sources()).count("\n") == 1
    assert github.render(reports, sources()).endswith("%0Ameshes: tp=2; tp=4\n")
    (result,) = json.loads(sarif.render(reports, sources()))["runs"][0]["results"]
    assert [each["mesh"] for each in result["properties"]["found"]] == [{"tp": 2}, {"tp": 4}]


def test_json_has_the_documented_form():
    document = json.loads(json_document.render(ALL, sources()))
    assert document["version"] == 1
    assert [check["verdict"] for check in document["checks"]] == ["refines", "broken", "unknown", None]
    broken = document["checks"][1]
    assert broken["id"] == "examples/mlp.py::mlp"
    assert (broken["file"], broken["line"], broken["mesh"]) == ("examples/mlp.py", 12, {"tp": 2})
    assert broken["seconds"] == {"trace": 0.03, "infer": 0.011}
    assert broken["operators"] == {"spec": 3, "impl": 8}
    assert broken["relations"]["h"] == "concat(h@0, h@1; dim=2)"
    assert broken["assumed"] == ["0 <= ids < 100"]
    (diagnostic,) = broken["diagnostics"]
    assert set(diagnostic) == {"code", "rule", "severity", "message", "file", "range", "related", "fixes"}
    assert diagnostic["message"] == MISSING.message
    assert diagnostic["range"] == {"start": {"line": 10, "column": 16}, "end": {"line": 10, "column": 28}}
    assert diagnostic["related"][0]["range"]["start"] == {"line": 5, "column": 16}
    assert diagnostic["fixes"][0]["edits"][0]["text"] == "y ="
    assert broken["counterexample"]["text"] == "rank 1, out[0, 2]: 3, specification 6"


def test_every_member_of_the_json_document_is_documented():
    document = json.loads(json_document.render([BROKEN], sources()))
    (check,) = document["checks"]
    (diagnostic,) = check["diagnostics"]
    page = (Path(__file__).parents[3] / "docs" / "output.md").read_text()
    tables = [
        re.findall(r"^\| (.*?) \|", part, re.MULTILINE) for part in page.split("\n\n") if part.startswith("| member")
    ]
    members = [{name for row in table for name in re.findall(r"`(?:checks\[\])?\.?(\w+)`", row)} for table in tables]
    assert members == [
        {*document, *check, "timings"},  # timings: with --timings alone
        set(diagnostic),
        set(check["counterexample"]),
    ]


def test_json_of_a_number_that_json_cannot_say():
    report = replace(BROKEN, counterexample=replace(BROKEN.counterexample, found=float("nan"), expected=float("inf")))
    found = json.loads(json_document.render([report], sources()))["checks"][0]["counterexample"]
    assert (found["found"], found["expected"]) == ("nan", "inf")


def test_github_commands():
    first, *_ = github.render(ALL, sources()).splitlines()
    assert first.startswith(
        "::error title=graphguard (missing-reduction),file=examples/mlp.py,line=10,endLine=10,col=16,endColumn=28::'y' is a partial"
    )
    assert "%0Aneeded: out = out@0 = out@1%0A" in first


def test_github_escapes_what_would_end_a_command():
    odd = Diagnostic("unproved", "unproved", "100% sure\nnot", "warning", Span("/project/a,b:c.py", 1, 1, 2, 2))
    assert github.render([replace(UNKNOWN, diagnostics=(odd,))], sources()) == (
        "::warning title=graphguard (unproved),file=a%2Cb%3Ac.py,line=1,endLine=2::100%25 sure%0Anot\n"
    )


def test_sarif_has_the_standard_form():
    log = json.loads(sarif.render([*ALL, replace(BROKEN, diagnostics=(), waived=(MISSING,))], sources()))
    against_the_standard(log)
    run = log["runs"][0]
    assert run["originalUriBaseIds"] == {"PROJECTROOT": {"uri": "file:///project/"}}
    broken, *_, waived = run["results"]
    assert broken["ruleId"] == run["tool"]["driver"]["rules"][broken["ruleIndex"]]["id"] == "missing-reduction"
    place = broken["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "examples/mlp.py", "uriBaseId": "PROJECTROOT"}
    assert place["region"] == {"startLine": 10, "startColumn": 16, "endLine": 10, "endColumn": 28}
    assert waived["suppressions"] == [{"kind": "inSource"}]
    assert "suppressions" not in broken


def test_the_schema_of_the_test_can_fail():
    log = json.loads(sarif.render(ALL, sources()))
    log["runs"][0]["results"][0]["levle"] = "error"
    with pytest.raises(jsonschema.ValidationError):
        against_the_standard(log)


def test_a_file_outside_of_the_project():
    outside = replace(MISSING, span=Span("/elsewhere/my layers.py", 1, 1, 1, 2), related=(), fixes=())
    report = replace(BROKEN, diagnostics=(outside,))
    location = json.loads(sarif.render([report], sources()))["runs"][0]["results"][0]["locations"][0][
        "physicalLocation"
    ]
    assert location["artifactLocation"] == {"uri": "file:///elsewhere/my%20layers.py"}
    assert concise.render([report], sources()).startswith("/elsewhere/my layers.py:1:1: ")


def test_the_same_text_everywhere():
    for rendered in (json_document.render([BROKEN], sources()), sarif.render([BROKEN], sources())):
        assert json.dumps(MISSING.message)[1:-1] in rendered
    assert MISSING.headline in concise.render([BROKEN], sources())
    assert FILE not in concise.render([BROKEN], sources())
