"""Reports as JUnit XML."""

from dataclasses import replace
from xml.etree import ElementTree

from graphguard.report import junit

from .reports import BROKEN, MISSING, NOT_RUN, REFINES, UNKNOWN, sources

REPORTS = [REFINES, BROKEN, UNKNOWN, NOT_RUN, replace(BROKEN, diagnostics=(), waived=(MISSING,))]


def parsed(reports=REPORTS):
    return ElementTree.fromstring(junit.render(reports, sources()))


def test_every_check_and_mesh_is_a_case_of_one_suite():
    suites = parsed()
    (suite,) = suites
    counts = {"tests": "5", "failures": "2", "errors": "1", "skipped": "0"}
    assert counts.items() <= suites.attrib.items()
    assert counts.items() <= suite.attrib.items()
    cases = [(case.get("classname"), case.get("name"), case.get("line")) for case in suite]
    assert cases[0] == ("examples/mlp.py", "mlp[tp=2]", "12")
    assert cases[3][1] == "mlp"


def test_what_does_not_refine_has_the_text_of_the_terminal():
    _, broken, unknown, not_run, waived = parsed().iter("testcase")
    (failure,) = broken.iter("failure")
    assert failure.get("type") == "missing-reduction"
    assert failure.get("message") == MISSING.headline
    assert "--> examples/mlp.py:10:16" in failure.text
    assert "= counterexample: rank 1" in failure.text
    assert [each.get("type") for each in unknown.iter("failure")] == ["unproved"]
    assert [each.get("type") for each in not_run.iter("error")] == ["trace-error"]
    assert list(waived.iter("failure")) == []
    assert waived.findtext("system-out").endswith(f"waived: missing-reduction: {MISSING.headline}")


def test_seconds_are_those_of_all_steps():
    assert next(parsed([REFINES]).iter("testcase")).get("time") == "0.041"


def test_characters_that_xml_lacks_are_replaced():
    strange = replace(MISSING, message="\x1b[31m \udc80 \0")
    (failure,) = parsed([replace(BROKEN, diagnostics=(strange,))]).iter("failure")
    assert failure.get("message") == "\ufffd[31m \ufffd \ufffd"
