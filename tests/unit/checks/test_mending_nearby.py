"""When drafts of what the files have already are tried, and which of them are offered, with processes that say what a test wants."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from graphguard.checks.judging import nearby
from graphguard.checks.judging.bounded import RECORDED, SEARCH
from graphguard.checks.judging.mending import repaired
from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.requests import CheckRequest
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.capture import Trouble
from graphguard.ir.codec import capture_summary
from graphguard.ir.plain import to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome, PromiseOutcome
from graphguard.report.diagnostics import Diagnostic, Fix, Report, Verdict

CHECK = CheckRef("checks.py::c", "c", Span("checks.py", 1))
SUMMARY = capture_summary(Capture(CHECK, {"dp": 2}, (), None, (), ()))
TROUBLE = Trouble("check-error", "no group", None)
TROUBLED = capture_summary(Capture(CHECK, {"dp": 1}, (), None, (), (), troubles=(TROUBLE,)))
REQUEST = CheckRequest("checks.py", "c", {"dp": 2}, "/")
REPORT = Report(CHECK, {"dp": 2}, Verdict.BROKEN, operators={"spec": 5, "impl": 7}, proof="broken")
SEEN = Span("model.py", 9, 1, 9, 4)
MENDED = Span("model.py", 3, 1, 3, 4)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drafts are recorded beside one another."""
    monkeypatch.setattr(nearby, "AT_ONCE", 2)


def row(title: str, place: Span | None = None) -> dict[str, Any]:
    fix = to_plain(Fix(title, (), False, place=place))
    texts = {"file": title}
    return {"fix": fix, "texts": texts, "headline": "'a' stands where 'b' is needed", "varied": None, "plain": None, "brings_numbers": False, "brings_size": False, "explained": False}  # fmt: skip


def report_of(answer: Callable[[Any], Any], rule: str = "wrong-shard", **operators: int) -> Report:
    """The report with fixes, where processes answer so and the judge finds nothing elsewhere."""

    def judge(_request: Any, _captured: Any, report: Report) -> Any:
        return report
        yield

    finding = Finding(rule, "'x' is wrong", SEEN, promises=("w",))
    told = Diagnostic(rule, rule, "'x' is wrong", "error", SEEN)
    report = replace(REPORT, operators=operators or REPORT.operators)
    broken = Broken(REQUEST, report, (told,), frozenset({"w"}), frozenset({"w"}), {})
    steps = repaired(broken, [finding], judge)
    given = None
    while True:
        try:
            given = answer(steps.send(given))
        except StopIteration as end:
            done: Report = end.value
            return done


class Answers:
    """What processes say: of drafts by title, right or wrong, and of meshes by their ranks, right, wrong or not recorded."""

    def __init__(
        self, rows: list[dict[str, Any]], right: set[str], ranks: dict[int, str], usual: list[Any] | None = None
    ) -> None:
        self.rows, self.right, self.ranks, self.usual = rows, right, ranks, usual or []
        self.values: list[dict[str, Any]] = []
        self.behind: list[dict[str, Any]] = []
        self.drafts: list[dict[str, Any]] = []
        self.asked: list[Any] = []
        self.recorded: list[tuple[int, str]] = []

    def __call__(self, step: Any) -> Any:
        if isinstance(step, tuple):
            return tuple(map(self, step))
        match step.method:
            case "candidates":
                return self.usual
            case "nearby":
                self.asked.append(step.params["wanted"])
                return [] if step.params["wanted"] == "decisions" else self.rows
            case "values":
                return self._values(step.params)
            case "needed":
                return self.drafts
            case "capture":
                put = step.params.get("probes", {}).get("put") or {}
                ranks, text = step.params["mesh"]["dp"], step.params["overlay"].get("file", put.get("number", ""))
                self.recorded.append((ranks, text))
                cannot = ranks != 2 and self.ranks.get(ranks, "troubles") == "troubles"
                return {"capture": f"{ranks} {text}".encode(), "summary": TROUBLED if cannot else SUMMARY}
            case "prove":
                is_right = self._is_right(step.params["capture"].decode())
                outcome = Outcome(is_right, (PromiseOutcome("w", is_right, ""),))
                return {"proof": "edited", "outcome": to_plain(outcome)}
            case "confirm":
                is_right = self._is_right(step.params["capture"].decode())
                return to_plain(Confirmation("equal") if is_right else Confirmation("differs", differing=("w",)))
        return True

    def _is_right(self, capture: str) -> bool:
        ranks, _, text = capture.partition(" ")
        return text in self.right and (ranks == "2" or self.ranks[int(ranks)] == "right")

    def _values(self, params: dict[str, Any]) -> list[Any]:
        if "observed" not in params:
            return [["model.py", 3, 0, 3, 4, False]] if self.values else []
        if "behind" in params:
            return [each for each in self.behind if params["behind"] == 0]
        return self.values


def test_the_first_draft_that_mends_is_told_where_it_stands() -> None:
    answers = Answers([row("vain"), row("good", MENDED), row("later")], {"good", "later"}, {1: "right"})
    (told,) = report_of(answers).diagnostics
    assert told.span == MENDED
    assert told.message == "'a' stands where 'b' is needed: 'w' is wrong for that\nfix: good (proved)"
    assert [fix.title for fix in told.fixes] == ["good"]
    assert not any(text == "later" for _, text in answers.recorded)


def test_at_the_line_of_the_finding_both_are_told() -> None:
    (told,) = report_of(Answers([row("good", SEEN)], {"good"}, {1: "right"})).diagnostics
    assert told.message == "'a' stands where 'b' is needed: 'x' is wrong\nfix: good (proved)"


@pytest.mark.parametrize(
    ("ranks", "offered", "tried"),
    [
        ({1: "right"}, True, False),
        ({4: "right"}, True, False),
        ({}, False, True),  # no other mesh can be recorded: that it is meant nobody knows
        ({1: "right", 4: "wrong"}, False, False),
        ({1: "wrong"}, False, False),
    ],
)
def test_a_draft_must_be_right_on_another_mesh_and_wrong_on_none(
    ranks: dict[int, str], offered: bool, tried: bool
) -> None:
    (told,) = report_of(Answers([row("good", MENDED)], {"good"}, ranks)).diagnostics
    assert bool(told.fixes) is offered
    assert ("\ntried: good (line 3): " in told.message) is tried
    assert told.span == (MENDED if offered or tried else SEEN)


def test_what_edits_of_the_graphs_mend_asks_for_no_drafts() -> None:
    answers = Answers([row("good")], {"good", "usual"}, {1: "right"}, [row("usual")])
    (told,) = report_of(answers).diagnostics
    assert told.fixes[0].title == "usual"
    assert not answers.asked


def test_where_a_reduction_is_too_much_what_callers_forget_comes_first() -> None:
    answers = Answers([row("given", MENDED)], {"given", "removed"}, {1: "right"}, [row("removed")])
    (told,) = report_of(answers, "extra-reduction").diagnostics
    assert (told.fixes[0].title, answers.asked) == ("given", ["forgotten"])


def test_where_callers_forget_nothing_the_reduction_is_taken_out() -> None:
    answers = Answers([row("given", MENDED)], {"removed"}, {1: "right"}, [row("removed")])
    (told,) = report_of(answers, "extra-reduction").diagnostics
    assert (told.fixes[0].title, answers.asked) == ("removed", ["forgotten"])


@pytest.mark.parametrize(("calls", "tried"), [(10, 9), (nearby.LARGE, 9), (nearby.LARGE + 1, 0)])
def test_drafts_of_a_large_program_are_not_recorded(calls: int, tried: int) -> None:
    answers = Answers([row(str(number)) for number in range(9)], set(), {})
    report_of(answers, spec=0, impl=calls)
    assert sum(text != "" for _, text in answers.recorded) == tried


def test_as_many_drafts_are_recorded_as_half_of_the_search_is_enough_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"spec": 0, "impl": int(SEARCH / RECORDED / 8)}
    monkeypatch.setattr(sys.modules[__name__], "SUMMARY", {**SUMMARY, "operators": calls})
    answers = Answers([row(str(number)) for number in range(9)], set(), {})
    (told,) = report_of(answers).diagnostics
    assert sum(text != "" for _, text in answers.recorded) == 4
    assert "the search for a fix was given up" in told.message


def value(name: str, line: int, site: int = 0) -> dict[str, Any]:
    place = to_plain(Span("model.py", line, 1, line, 4))
    return {"site": site, "put": {"place": site, "number": name}, "told": f"'x' is not {name}", "title": name, "place": place, "explained": False, "cost": line}  # fmt: skip


def test_a_value_that_mends_is_told_where_it_is_worked_out_and_is_no_fix() -> None:
    answers = Answers([], {"four"}, {1: "right"})
    answers.values = [value("three", 2), value("four", 5), value("five", 6)]
    (told,) = report_of(answers).diagnostics
    assert (told.span and told.span.line, told.fixes) == (5, ())
    assert told.message.splitlines()[0] == "'x' is not four: 'w' is wrong for that"
    assert "\ntried: four (line 5): " in told.message


def test_of_values_that_come_from_each_other_the_first_is_told() -> None:
    answers = Answers([], {"four", "seven"}, {1: "right"})
    answers.values, answers.behind = [value("four", 5)], [value("six", 1, 2), value("seven", 2, 1)]
    (told,) = report_of(answers).diagnostics
    assert told.span is not None
    assert told.span.line == 2


def test_no_value_is_tried_where_a_draft_mends() -> None:
    answers = Answers([row("good", MENDED)], {"good", "four"}, {1: "right"})
    answers.values = [value("four", 5)]
    (told,) = report_of(answers).diagnostics
    assert told.span == MENDED


def test_what_is_in_sight_of_the_place_and_has_the_value_is_a_fix() -> None:
    answers = Answers([], {"four", "good"}, {1: "right"})
    answers.values, answers.drafts = [value("four", 5)], [row("good", MENDED)]
    (told,) = report_of(answers).diagnostics
    assert [fix.title for fix in told.fixes] == ["good"]
    assert told.span == MENDED


def test_what_has_the_value_by_chance_is_none() -> None:
    answers = Answers([], {"four", "good"}, {1: "wrong"})
    answers.values, answers.drafts = [value("four", 5)], [row("good", MENDED)]
    (told,) = report_of(answers).diagnostics
    assert not told.fixes
    assert told.span is not None
    assert told.span.line == 5
