"""Findings as SARIF 2.1.0 (OASIS standard), for code scanning services."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from graphguard.ir.codec import dumps
from graphguard.ir.spans import Span
from graphguard.report.catalogue import RULES
from graphguard.report.diagnostics import Fix, Report, TextEdit
from graphguard.report.fingerprint import fingerprint
from graphguard.report.folding import Folded, folded
from graphguard.report.rule import Rule
from graphguard.report.sources import Sources

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "PROJECTROOT"
_LEVELS = {"error": "error", "warning": "warning", "information": "note", "hint": "note"}
_INDEX = {name: number for number, name in enumerate(RULES)}


def render(reports: Sequence[Report], sources: Sources) -> str:
    """The log in one line of JSON."""
    return dumps(log(reports, sources)).decode() + "\n"


def log(reports: Sequence[Report], sources: Sources) -> dict[str, Any]:
    """One run with a result for every finding; waived ones are kept as suppressed results."""
    results = [_result(finding, sources, waived=False) for finding in folded(reports)]
    silenced = [replace(report, diagnostics=report.waived) for report in reports]
    results += [_result(finding, sources, waived=True) for finding in folded(silenced)]
    driver = {
        "name": "GraphGuard",
        "version": version("graphguard"),
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": sources.root.as_uri().rstrip("/") + "/"}},
        "invocations": [{"executionSuccessful": all(report.verdict is not None for report in reports)}],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.what},
        "help": {"text": f"{rule.what}\n\n{rule.why}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Folded, sources: Sources, *, waived: bool) -> dict[str, Any]:
    diagnostic, report = finding.diagnostic, finding.reports[0]
    result: dict[str, Any] = {
        "ruleId": diagnostic.rule,
        "ruleIndex": _INDEX[diagnostic.rule],
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": diagnostic.message},
        "locations": [_location(diagnostic.span or report.check.span, sources)],
        "partialFingerprints": {"graphguard/v1": fingerprint(diagnostic, sources)},
        "properties": {"check": report.check.id, "mesh": dict(report.mesh), "found": _found(finding)},
    }
    if diagnostic.related:
        result["relatedLocations"] = [
            {**_location(place.span, sources), "message": {"text": place.message}} for place in diagnostic.related
        ]
    if diagnostic.fixes:
        result["fixes"] = [_fix(fix, sources) for fix in diagnostic.fixes]
    if waived:
        result["suppressions"] = [{"kind": "inSource"}]
    return result


def _found(finding: Folded) -> list[dict[str, Any]]:
    """Every check and mesh that has the finding."""
    return [{"check": report.check.id, "mesh": dict(report.mesh)} for report in finding.reports]


def _location(span: Span, sources: Sources) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _artifact(span.file, sources), "region": _region(span)}}


def _region(span: Span) -> dict[str, int]:
    region = {"startLine": span.line, "startColumn": span.column}
    if span.end_line:
        region |= {"endLine": span.end_line, "endColumn": span.end_column}
    return region


def _artifact(file: str, sources: Sources) -> dict[str, str]:
    shown = sources.shown(file)
    path = Path(shown)
    if path.is_absolute():
        return {"uri": path.as_uri()}
    return {"uri": quote(shown), "uriBaseId": _ROOT}


def _fix(fix: Fix, sources: Sources) -> dict[str, Any]:
    files: dict[str, list[TextEdit]] = {}
    for edit in fix.edits:
        files.setdefault(edit.span.file, []).append(edit)
    changes = [
        {"artifactLocation": _artifact(file, sources), "replacements": list(_replacements(edits))}
        for file, edits in files.items()
    ]
    return {"description": {"text": fix.title}, "artifactChanges": changes}


def _replacements(edits: Iterable[TextEdit]) -> Iterable[dict[str, Any]]:
    for edit in edits:
        span = edit.span
        end = (span.end_line, span.end_column) if span.end_line else (span.line, span.column)
        region = {"startLine": span.line, "startColumn": span.column, "endLine": end[0], "endColumn": end[1]}
        yield {"deletedRegion": region, "insertedContent": {"text": edit.text}}
