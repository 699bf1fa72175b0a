"""Where the time of a check went, told by a clock that steps and answers turn on."""

import pytest

from graphguard.checks.judging.requests import Step
from graphguard.checks.judging.timed import timed
from graphguard.ir import CheckRef, Span
from graphguard.report.diagnostics import Report, Verdict

REPORT = Report(CheckRef("c.py::c", "c", Span("c.py", 1)), {"tp": 2}, Verdict.BROKEN)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def told(steps, answers):
    """The reports of steps, each answered after some time; and how much of that passed in all."""
    clock, reports = Clock(), []

    def working():
        clock.now += 0.25  # between two steps
        answer = yield from steps()
        return answer

    running, answer = timed(working(), clock), None
    while True:
        try:
            step = running.send(answer)
        except StopIteration as stop:
            return [*reports, stop.value], clock.now - 100.0
        if isinstance(step, Report):
            reports.append(step)
            answer = None
        else:
            waited, answer = answers.pop(0)
            clock.now += waited


def capture(seconds, cached=False):
    return {"summary": {"seconds": seconds}, "cached": cached}


def test_phases_add_up_to_what_was_waited_for():
    def steps():
        yield Step("worker", "capture")
        yield (Step("prover", "prove"), Step("worker", "confirm"))
        yield Step("prover", "finish")
        yield Step("prover", "relations")
        yield Step("prover", "diagnose")
        return REPORT

    (report,), passed = told(
        steps,
        [
            (5.0, capture({"import": 1.0, "trace": 2.0, "join": 0.5})),
            (3.0, ({"seconds": 1.0}, {})),
            (2.0, {"seconds": 2.0}),
            (4.0, {}),
            (1.0, []),
        ],
    )
    phases = {"import": 1.0, "trace": 2.0, "join": 0.5, "worker": 1.5, "infer": 3.0, "confirm": 2.0}
    assert report.seconds == {**phases, "relations": 4.0, "diagnose": 1.0, "other": 0.25}
    assert sum(report.seconds.values()) == passed


def test_numbers_that_are_there_before_the_proof_cost_nothing():
    def steps():
        yield (Step("prover", "prove"), Step("worker", "confirm"))
        return REPORT

    (report,), _ = told(steps, [(3.0, ({"seconds": 3.0}, {}))])
    assert report.seconds == {"infer": 3.0, "confirm": 0.0, "other": 0.25}


def test_all_after_the_first_report_is_the_search_for_fixes():
    def steps():
        yield Step("worker", "capture")
        yield REPORT
        yield Step("prover", "candidates")
        yield Step("worker", "capture")
        return REPORT

    (interim, last), passed = told(steps, [(1.0, capture({"trace": 1.0})), (2.0, []), (7.0, capture({"trace": 4.0}))])
    assert interim.seconds == {"trace": 1.0, "worker": 0.0, "other": 0.25}
    assert last.seconds == {"trace": 1.0, "worker": 0.0, "other": 0.25, "fixes": 9.0}
    assert sum(last.seconds.values()) == passed


def test_a_recording_that_is_cached_took_no_recording():
    def steps():
        yield Step("worker", "capture")
        return REPORT

    (report,), _ = told(steps, [(0.5, capture({"trace": 9.0}, cached=True))])
    assert report.seconds == {"worker": 0.5, "other": 0.25}


def test_a_recording_that_was_stopped_is_recording():
    def steps():
        yield Step("worker", "capture")
        return REPORT

    stopped = {"summary": {"seconds": {}, "troubles": [{"rule": "trace-error"}]}}
    (report,), _ = told(steps, [(60.0, stopped)])
    assert report.seconds == {"trace": 60.0, "other": 0.25}


@pytest.mark.parametrize("told_seconds", [0.5, 8.0])
def test_no_more_is_told_than_was_waited_for(told_seconds):
    """What answers say is measured by other clocks."""

    def steps():
        yield Step("worker", "capture")
        return REPORT

    (report,), passed = told(steps, [(2.0, capture({"trace": told_seconds}))])
    assert report.seconds["trace"] == min(told_seconds, 2.0)
    assert sum(report.seconds.values()) == passed
