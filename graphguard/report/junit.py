"""Reports as JUnit XML, which GitLab, Jenkins and others show as test results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from graphguard.report.diagnostics import Report
from graphguard.report.folding import mesh_text
from graphguard.report.layout import Page
from graphguard.report.outcomes import BROKEN, NOT_RUN, REFINES, UNKNOWN, outcome
from graphguard.report.sources import Sources
from graphguard.report.text import render as as_text

_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUITE = "graphguard"
# An unknown verdict fails a run (exit code 3), so it is a failure here, told apart by its type.
_ELEMENTS = {BROKEN: "failure", UNKNOWN: "failure", NOT_RUN: "error"}


def render(reports: Sequence[Report], sources: Sources) -> str:
    """One test suite with a test case for every check on every mesh; a failure's text is what the terminal shows."""
    codes = [outcome(report) for report in reports]
    totals = {
        "tests": str(len(reports)),
        "failures": str(codes.count(BROKEN) + codes.count(UNKNOWN)),
        "errors": str(codes.count(NOT_RUN)),
        "skipped": "0",
        "time": _seconds(sum(_time(report) for report in reports)),
    }
    suites = Xml.Element("testsuites", {"name": _SUITE, **totals})
    suite = Xml.SubElement(suites, "testsuite", {"name": _SUITE, **totals})
    for report, code in zip(reports, codes, strict=True):
        _add(suite, report, code, sources)
    Xml.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(suites, encoding="unicode") + "\n"


def _add(suite: Xml.Element, report: Report, code: int, sources: Sources) -> None:
    file = sources.shown(report.check.span.file)
    mesh = mesh_text(report.mesh)
    case = Xml.SubElement(
        suite,
        "testcase",
        {
            "classname": file,
            "name": (report.check.name or file) + (f"[{mesh}]" if mesh else ""),
            "file": file,
            "line": str(report.check.span.line),
            "time": _seconds(_time(report)),
        },
    )
    if code != REFINES:
        first = report.diagnostics[0] if report.diagnostics else None
        about = {"message": _legal(first.headline), "type": first.rule} if first is not None else {"type": "unproved"}
        Xml.SubElement(case, _ELEMENTS[code], about).text = _legal(as_text([report], sources, Page()))
    notes = [
        f"{kind}: {line}"
        for kind, lines in (
            ("assumed", report.particular_assumptions),
            ("caution", report.cautions),
            ("not compared", report.not_compared),
            ("waived", [f"{each.rule}: {each.headline}" for each in report.waived]),
        )
        for line in lines
    ]
    if notes:
        Xml.SubElement(case, "system-out").text = _legal("\n".join(notes))


def _time(report: Report) -> float:
    return sum(report.seconds.values())


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _legal(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
