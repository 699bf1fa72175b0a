"""Reports as the JSON document that scripts and other tools hold on to (``version`` 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from graphguard.confirm.confirmation import Counterexample
from graphguard.ir.codec import dumps
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Fix, Report
from graphguard.report.sources import Sources

VERSION = 1


def render(reports: Sequence[Report], sources: Sources) -> str:
    """The document in one line of JSON."""
    return dumps(document(reports, sources)).decode() + "\n"


def with_timings(rendered: str, phases: Mapping[str, float]) -> str:
    """A rendered document with ``timings``, the seconds of the whole command by phase."""
    return f'{rendered.rstrip().removesuffix("}")},"timings":{dumps(dict(phases)).decode()}}}\n'


def document(reports: Sequence[Report], sources: Sources) -> dict[str, Any]:
    """The document as plain data; files are relative to the project where they lie in it, lines and columns count from 1."""
    return {"version": VERSION, "checks": [_check(report, sources) for report in reports]}


def _check(report: Report, sources: Sources) -> dict[str, Any]:
    return {
        "id": report.check.id,
        "file": sources.shown(report.check.span.file),
        "line": report.check.span.line,
        "mesh": dict(report.mesh),
        "verdict": None if report.verdict is None else report.verdict.value,
        "seconds": dict(report.seconds),
        "operators": {"spec": report.operators.get("spec", 0), "impl": report.operators.get("impl", 0)},
        "relations": {name: str(relation) for name, relation in report.relations.items()},
        "layouts": dict(report.layouts),
        "diagnostics": [diagnostic_data(diagnostic, sources) for diagnostic in report.diagnostics],
        "numbers": None if report.numbers is None else asdict(report.numbers),
        "audit": report.audit or None,
        "counterexample": None if report.counterexample is None else _counterexample(report.counterexample),
        "assumed": list(report.assumed),
        "cautions": list(report.cautions),
        "not_compared": list(report.not_compared),
        "waived": [diagnostic_data(diagnostic, sources) for diagnostic in report.waived],
    }


def diagnostic_data(diagnostic: Diagnostic, sources: Sources) -> dict[str, Any]:
    """One diagnostic as plain data."""
    return {
        "code": diagnostic.code,
        "rule": diagnostic.rule,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        **_place(diagnostic.span, sources),
        "related": [{"message": place.message, **_place(place.span, sources)} for place in diagnostic.related],
        "fixes": [_fix(fix, sources) for fix in diagnostic.fixes],
    }


def _place(span: Span | None, sources: Sources) -> dict[str, Any]:
    if span is None:
        return {"file": None, "range": None}
    return {
        "file": sources.shown(span.file),
        "range": {
            "start": {"line": span.line, "column": span.column},
            "end": {"line": span.end_line or span.line, "column": span.end_column or span.column},
        },
    }


def _fix(fix: Fix, sources: Sources) -> dict[str, Any]:
    edits = [{**_place(edit.span, sources), "text": edit.text} for edit in fix.edits]
    return {"title": fix.title, "proved": fix.proved, "bytes_moved": fix.bytes_moved, "edits": edits}


def _counterexample(found: Counterexample) -> dict[str, Any]:
    return {
        "text": str(found),
        "output": found.promise,
        "rank": found.rank,
        "index": list(found.index),
        "expected": _number(found.expected),
        "found": _number(found.found),
        "mesh": dict(found.mesh),
        "shapes": {name: list(shape) for name, shape in found.shapes.items()},
        "inputs": dict(found.inputs),
        "seed": found.seed,
        "reduced": found.reduced,
        "found_shape": None if found.found_shape is None else list(found.found_shape),
        "expected_shape": None if found.expected_shape is None else list(found.expected_shape),
    }


def _number(value: float) -> float | str:
    """JSON has no infinities and no NaN: they are written as text."""
    return value if math.isfinite(value) else repr(value)
