"""A name for a finding that survives edits elsewhere in its file."""

from __future__ import annotations

import hashlib

from graphguard.report.diagnostics import Diagnostic
from graphguard.report.sources import Sources


def fingerprint(diagnostic: Diagnostic, sources: Sources) -> str:
    """Rule, file and text of the line: neither line numbers nor the wording of messages, so both may change."""
    span = diagnostic.span
    file = "" if span is None else sources.named(span.file)
    line = "" if span is None else " ".join((sources.line(span.file, span.line) or "").split())
    return hashlib.sha256("\0".join((diagnostic.rule, file, line)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
