"""The way from a capture to a verdict, with processes that say what a test wants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from graphguard.checks.judging.requests import Captured, CheckRequest, Step
from graphguard.checks.judging.steps import _proved, check_steps
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.codec import capture_summary
from graphguard.ir.plain import to_plain
from graphguard.refine.evaluation.audits import Audited
from graphguard.refine.outcome import Outcome, PromiseOutcome
from graphguard.report.diagnostics import OUT_OF_FUEL, Report, Verdict

CHECK = CheckRef("checks.py::c", "c", Span("checks.py", 1))
SUMMARY = capture_summary(Capture(CHECK, {"dp": 2}, (), None, (), ()))


def judged(
    numbers: str,
    proved: bool = False,
    narrower: bool = False,
    patiently: bool | None = None,
    wrong: tuple[str, ...] | None = None,
) -> tuple[Report, list[dict[str, Any]]]:
    """The report where the proof holds or not, with ignored targets and without, at once or given time; and what was asked to be proved.

    ``patiently`` is None where the proof was not hurried, ``wrong`` where nobody asks for an audit: else the rules of which it finds wrong steps.
    """
    asked: list[dict[str, Any]] = []

    def answer(step: Step) -> Any:
        match step.method:
            case "capture":
                return {"capture": b"", "summary": SUMMARY}
            case "confirm":
                return to_plain(Confirmation(numbers))
            case "prove":
                asked.append(step.params)
                way = (
                    "some"
                    if not step.params.get("ignored", True)
                    else "later"
                    if step.params.get("effort") == "patient"
                    else "all"
                )
                holds = {"all": proved, "some": narrower, "later": bool(patiently)}[way]
                outcome = Outcome(holds, (), assumed=(way,), hurried=not holds and patiently is not None)
                return {"proof": way, "outcome": to_plain(outcome), "seconds": 0.0, "ignored": narrower}
            case "finish":
                unfinished = Outcome(proved, (), assumed=("all",), hurried=patiently is not None)
                return {"outcome": to_plain(unfinished), "seconds": 0.0}
            case "relations":
                return {"out": step.params["proof"]}
            case "layouts":
                return {"out": "Replicate"}
            case "diagnose":
                return []
            case "audit":
                found = Audited(proved, 7, 2, 0, wrong or ())
                return {**asdict(found), "text": str(found)}
        raise AssertionError(step.method)

    steps = check_steps(CheckRequest("checks.py", "c", {"dp": 2}, "/", fixes=False, audit=wrong is not None))
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
    report, asked = judged("equal", proved=True)
    assert (report.verdict, len(asked)) == (Verdict.REFINES, 1)


def test_a_proof_without_ignored_targets_counts_where_numbers_with_some_agree():
    report, asked = judged("equal", narrower=True)
    assert (report.verdict, report.proof, report.relations) == (Verdict.REFINES, "some", {"out": "some"})
    assert "some" in report.assumed
    assert [one.get("ignored", True) for one in asked] == [True, False]


@pytest.mark.parametrize(("numbers", "verdict"), [("differs", Verdict.BROKEN), ("not-run", Verdict.UNKNOWN)])
@pytest.mark.parametrize("way", [{"narrower": True}, {"patiently": True}])
def test_neither_is_tried_where_numbers_differ_or_say_nothing(numbers, verdict, way):
    report, asked = judged(numbers, **way)
    assert (report.verdict, len(asked)) == (verdict, 1)


def test_a_hurried_proof_gets_fuel_where_numbers_agree():
    report, asked = judged("equal", patiently=True)
    assert (report.verdict, report.proof) == (Verdict.REFINES, "later")
    assert [one.get("effort") == "patient" for one in asked] == [False, True]
    assert report.cautions == ()


def test_where_nothing_helps_nothing_is_known():
    report, asked = judged("equal", patiently=False)
    assert (report.verdict, len(asked)) == (Verdict.UNKNOWN, 2)
    assert report.cautions == (OUT_OF_FUEL,)


def test_fuel_is_not_blamed_where_there_was_enough():
    report, _ = judged("equal")
    assert (report.verdict, report.cautions) == (Verdict.UNKNOWN, ())


UNPROVED = Outcome(
    False, (PromiseOutcome("y", False, ""), PromiseOutcome("x", False, ""), PromiseOutcome("z", True, ""))
)


@pytest.mark.parametrize(
    ("numbers", "more"),
    [
        (Confirmation("differs", differing=("y", "x")), False),
        (Confirmation("differs", differing=("y",)), False),  # broken, whatever becomes of the other one
        (Confirmation("differs", differing=("z",)), True),
        (Confirmation("equal"), True),
        (Confirmation("not-run", reason="no kernel"), True),
    ],
)
def test_a_second_attempt_is_made_only_where_numbers_refute_nothing_that_is_unproved(numbers, more):
    captured = Captured(b"", CHECK, {"dp": 2}, (), SUMMARY, cached=False)
    steps = _proved(CheckRequest("checks.py", "c", {"dp": 2}, "/"), captured)
    first = next(steps)
    assert [(step.method, step.params.get("effort")) for step in first] == [("prove", "hasty"), ("confirm", None)]
    given = ({"proof": "p", "outcome": to_plain(UNPROVED), "seconds": 1.0}, to_plain(numbers))
    asked = []
    while True:
        try:
            step = steps.send(given)
        except StopIteration as end:
            _, outcome, _ = end.value
            break
        asked.append(step.method)
        given = to_plain(numbers) if step.method == "confirm" else {"outcome": to_plain(UNPROVED), "seconds": 2.0}
    assert ("finish" in asked, outcome) == (more, UNPROVED)


def test_an_audited_proof_says_so():
    report, _ = judged("equal", proved=True, wrong=())
    assert report.verdict is Verdict.REFINES
    assert report.audit == "7 steps of 2 rules hold when they are read again"


def test_a_step_that_does_not_hold_leaves_nothing_proved():
    report, _ = judged("equal", proved=True, wrong=("partial sums",))
    assert report.verdict is Verdict.UNKNOWN
    assert "partial sums" in report.diagnostics[-1].message


def test_what_is_not_proved_is_not_audited():
    report, _ = judged("differs", wrong=())
    assert (report.verdict, report.audit) == (Verdict.BROKEN, "")
