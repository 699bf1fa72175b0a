"""The way from a capture to a verdict, with processes that say what a test wants."""

from __future__ import annotations

from typing import Any

import pytest

from graphguard.checks.steps import CheckRequest, Step, check_steps
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.codec import capture_summary
from graphguard.ir.plain import to_plain
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import Report, Verdict

CHECK = CheckRef("checks.py::c", "c", Span("checks.py", 1))
SUMMARY = capture_summary(Capture(CHECK, {"dp": 2}, (), None, (), ()))


def judged(proved: bool, narrower: bool, numbers: str) -> tuple[Report, list[dict[str, Any]]]:
    """The report where the proof holds or not, with ignored targets and without, and numbers say what they say; and what was asked to be proved."""
    asked: list[dict[str, Any]] = []

    def answer(step: Step) -> Any:
        match step.method:
            case "capture":
                return {"capture": b"", "summary": SUMMARY}
            case "confirm":
                return to_plain(Confirmation(numbers))
            case "prove":
                asked.append(step.params)
                with_them = step.params.get("ignored", True)
                outcome = Outcome(proved if with_them else narrower, (), assumed=() if with_them else ("no ignored",))
                return {
                    "proof": "all" if with_them else "some",
                    "outcome": to_plain(outcome),
                    "seconds": 0.0,
                    "ignored": with_them,
                }
            case "relations":
                return {"out": step.params["proof"]}
            case "diagnose":
                return []
        raise AssertionError(step.method)

    steps = check_steps(CheckRequest("checks.py", "c", {"dp": 2}, "/", fixes=False))
    given: Any = None
    while True:
        try:
            wanted = steps.send(given)
        except StopIteration as end:
            return end.value, asked
        given = (
            tuple(map(answer, wanted))
            if isinstance(wanted, tuple)
            else None
            if isinstance(wanted, Report)
            else answer(wanted)
        )


def test_what_is_proved_for_all_targets_is_not_proved_again():
    report, asked = judged(proved=True, narrower=False, numbers="equal")
    assert (report.verdict, len(asked)) == (Verdict.REFINES, 1)


def test_a_proof_without_ignored_targets_counts_where_numbers_with_some_agree():
    report, asked = judged(proved=False, narrower=True, numbers="equal")
    assert (report.verdict, report.proof, report.relations) == (Verdict.REFINES, "some", {"out": "some"})
    assert "no ignored" in report.assumed
    assert [one.get("ignored", True) for one in asked] == [True, False]


@pytest.mark.parametrize(("numbers", "verdict"), [("differs", Verdict.BROKEN), ("not-run", Verdict.UNKNOWN)])
def test_it_does_not_count_where_numbers_differ_or_say_nothing(numbers, verdict):
    report, asked = judged(proved=False, narrower=True, numbers=numbers)
    assert (report.verdict, len(asked)) == (verdict, 1)


def test_without_a_proof_of_either_kind_nothing_is_known():
    report, _ = judged(proved=False, narrower=False, numbers="equal")
    assert report.verdict is Verdict.UNKNOWN
