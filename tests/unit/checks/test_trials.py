"""Programs that may mend a finding: what numbers refute is not proved, what is hard to prove comes later, and of several defects each is mended by itself."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.requests import Captured, CheckRequest
from graphguard.checks.judging.trials import Mending, Trials
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import CheckRef, Span
from graphguard.ir.plain import to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome, PromiseOutcome
from graphguard.report.diagnostics import Report, Verdict

CHECK = CheckRef("checks.py::c", "c", Span("checks.py", 1))
BROKEN = Broken(
    CheckRequest("checks.py", "c", {"dp": 2}, "/"),
    Report(CHECK, {"dp": 2}, Verdict.BROKEN, proof="broken"),
    (),
    frozenset({"a", "b", "c"}),
    frozenset({"a", "b", "c"}),
    {},
)
FINDING = Finding("wrong-scale", "'x' is wrong", None, promises=("a", "b", "c"))


class Programs:
    """What becomes of programs by name: the promises that are wrong still, whether haste proves the rest, and the calls that are changed."""

    def __init__(self, **programs: tuple[str, bool, int]) -> None:
        self.programs = programs
        self.proved: list[tuple[str, str]] = []

    def __call__(self, step: Any) -> Any:
        if isinstance(step, tuple):
            return tuple(map(self, step))
        match step.method:
            case "capture":
                return step
            case "confirm":
                refuted = tuple(self.programs[step.params["capture"].decode()][0])
                if refuted == ("?",):
                    return to_plain(Confirmation("not-run"))
                return to_plain(Confirmation("differs" if refuted else "equal", differing=refuted))
            case "prove":
                name, effort = step.params["capture"].decode(), step.params.get("effort", "patient")
                wrong, easy, _ = self.programs[name]
                self.proved.append((name, effort))
                holds = {each: each not in wrong and (easy or effort == "patient") for each in "abc"}
                promises = tuple(PromiseOutcome(each, is_kept, "") for each, is_kept in holds.items())
                return {"proof": name, "outcome": to_plain(Outcome(all(holds.values()), promises))}
            case "same_question":
                return True
            case "calls_between":
                return self.programs[step.params["other"]][2]
        raise AssertionError(step.method)

    def trials(self, *, even_unrun: bool = True) -> Trials:
        def record(rows: Sequence[dict[str, Any]]) -> Generator[Any, Any, list[Captured]]:
            yield from ()
            return [Captured(row["name"].encode(), CHECK, {"dp": 2}, (), {}, False) for row in rows]

        rows = [{"name": name, "cost": 1} for name in self.programs]
        return Trials(BROKEN, FINDING, rows, record, 2, even_unrun=even_unrun)

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        given = None
        while True:
            try:
                given = self(steps.send(given))
            except StopIteration as end:
                return end.value


def name_of(found: Mending | None) -> str:
    assert found is not None
    return str(found.row["name"])


def test_what_numbers_refute_is_not_proved() -> None:
    programs = Programs(one=("a", True, 1), two=("", True, 1))
    assert name_of(programs.run(programs.trials().next())) == "two"
    assert programs.proved == [("two", "hasty")]


def test_what_haste_does_not_prove_is_proved_patiently_behind_all_others() -> None:
    programs = Programs(hard=("", False, 1), wrong=("ab", True, 1), vain=("a", True, 1))
    assert name_of(programs.run(programs.trials().next())) == "hard"
    assert programs.proved == [("hard", "hasty"), ("hard", "patient")]


def test_those_that_are_as_likely_are_told_apart_by_the_calls_that_they_change() -> None:
    programs = Programs(many=("", True, 12), few=("", True, 2), later=("", True, 1))
    trials = programs.trials()
    first = programs.run(trials.next())
    others = programs.run(trials.as_likely(1))
    assert name_of(min((first, *others), key=lambda each: each.changed)) == "few"


def test_of_several_defects_the_one_that_spoils_most_is_mended_by_itself() -> None:
    programs = Programs(one=("bc", True, 1), most=("c", True, 1), harm=("ad", True, 1))
    trials = programs.trials()
    assert programs.run(trials.next()) is None
    assert not programs.proved
    found = programs.run(trials.in_part())
    assert name_of(found) == "most"
    assert found.finding.promises == ("a", "b")
    assert found.left == {"c"}


def test_less_than_half_is_no_defect_of_its_own() -> None:
    programs = Programs(one=("bc", True, 1))
    trials = programs.trials()
    assert programs.run(trials.next()) is None
    assert programs.run(trials.in_part()) is None


def test_what_numbers_cannot_run_is_proved_where_that_is_asked_for() -> None:
    for even_unrun, proved in ((True, [("odd", "hasty")]), (False, [])):
        programs = Programs(odd=("?", False, 1))
        assert programs.run(programs.trials(even_unrun=even_unrun).next()) is None
        assert programs.proved == proved
