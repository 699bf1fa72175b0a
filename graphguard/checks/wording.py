"""Sentences that the steps of a check say themselves."""

from __future__ import annotations

from graphguard.ir import CheckRef
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import Diagnostic


def unknown_diagnostic(check: CheckRef, outcome: Outcome) -> Diagnostic:
    """What to show at the check itself where nothing better is known: which promises stayed open, and why."""
    open_promises = [promise for promise in outcome.promises if not promise.holds]
    names = ", ".join(promise.name for promise in open_promises[:4]) or "the outputs"
    lines = [f"neither proved nor refuted: {names}"]
    lines += [f"{promise.name}: {promise.reason}" for promise in open_promises[:4] if promise.reason]
    lines += [f"{gap.op} stayed closed: {gap.reason}" for gap in outcome.gaps[:4]]
    return Diagnostic("unproved", "unproved", "\n".join(lines), "warning", check.span)
