"""Which edits are offered as fixes, with processes that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from graphguard.checks.judging.mending import proved_fixes, repaired
from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.requests import LARGE, CheckRequest
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
TROUBLED = capture_summary(
    Capture(CHECK, {"dp": 1}, (), None, (), (), troubles=(Trouble("check-error", "no group", None),))
)
REQUEST = CheckRequest("checks.py", "c", {"dp": 2}, "/")
REPORT = Report(CHECK, {"dp": 1}, Verdict.BROKEN, operators={"spec": 5, "impl": 7}, proof="broken")


def candidate(title: str, **said: Any) -> dict[str, Any]:
    """An edit that a prover would have proved; it touches no number."""
    plain = to_plain(Fix(title, (), False))
    return {
        "fix": plain,
        "texts": {"file": "edited"},
        "headline": "",
        "varied": None,
        "plain": None,
        "brings_numbers": False,
        "brings_size": False,
        **said,
    }


def ended(steps: Any, answer: Callable[[Any], Any]) -> Any:
    """What steps return that are answered so."""
    given = None
    while True:
        try:
            given = answer(steps.send(given))
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    ("same", "promises", "counts"),
    [
        (True, ("w", "b"), True),
        (False, ("w", "b"), False),  # the specification shares the code, and was changed
        (True, ("b",), False),  # nobody returns what was wrong any more
    ],
)
def test_a_fix_keeps_the_specification_and_its_promises(same, promises, counts):
    finding = Finding("wrong-scale", "twice", None, promises=("w",))
    outcome = Outcome(True, tuple(PromiseOutcome(name, True, "") for name in promises))
    answers = {
        "candidates": [candidate("halve")],
        "capture": {"capture": b"", "summary": SUMMARY},
        "prove": {"proof": "fixed", "outcome": to_plain(outcome)},
        "same_question": same,
    }
    broken = Broken(REQUEST, REPORT, (), frozenset({"w"}), frozenset({"w"}), {})
    fixes, left, *_ = ended(proved_fixes(broken, 0, finding, ()), lambda step: answers[step.method])
    assert (len(fixes), left) == ((1, frozenset()) if counts else (0, frozenset({"w"})))


@pytest.mark.parametrize(("vain", "traced"), [(0, 3), (1, 3), (2, 3), (3, 4)])
def test_tries_in_vain_count_against_alternatives(vain, traced):
    candidates = [candidate(name) for name in "abcdef"]
    traces: list[str] = []

    def answer(step: Any) -> Any:
        traces.extend(step.method for _ in range(step.method == "capture"))
        failing = ("w",) if len(traces) <= vain else ()
        given = {
            "candidates": candidates,
            "capture": {"capture": b"", "summary": SUMMARY},
            "prove": {"proof": "fixed", "outcome": outcome(*failing)},
        }
        return given.get(step.method, True)

    finding = Finding("wrong-scale", "twice", None, promises=("w",))
    broken = Broken(REQUEST, REPORT, (), frozenset({"w"}), frozenset({"w"}), {})
    fixes, *_ = ended(proved_fixes(broken, 0, finding, ()), answer)
    assert (len(traces), len(fixes)) == (traced, traced - vain)


@pytest.mark.parametrize(("calls", "traced"), [(LARGE // 2, 3), (LARGE + 1, 1)])
def test_of_a_large_program_no_alternatives_are_tried(calls, traced):
    candidates = [candidate(name) for name in "abcd"]
    traces: list[str] = []

    def answer(step: Any) -> Any:
        traces.extend(step.method for _ in range(step.method == "capture"))
        given = {
            "candidates": candidates,
            "capture": {"capture": b"", "summary": SUMMARY},
            "prove": {"proof": "fixed", "outcome": outcome()},
        }
        return given.get(step.method, True)

    report = replace(REPORT, operators={"spec": 0, "impl": calls})
    broken = Broken(REQUEST, report, (), frozenset({"w"}), frozenset({"w"}), {})
    fixes = offered_to(broken, answer)
    assert (len(traces), len(fixes)) == (traced, traced)


def offered_to(broken: Broken, answer: Callable[[Any], Any]) -> Any:
    """The fixes that are proved where processes answer so."""
    finding = Finding("wrong-scale", "twice", None, promises=("w",))
    return ended(proved_fixes(broken, 0, finding, ()), answer)[0]


def outcome(*failing: str) -> dict[str, Any]:
    """An attempt on the promises w and k, of which some stay unproved."""
    return to_plain(Outcome(not failing, tuple(PromiseOutcome(name, name not in failing, "") for name in ("w", "k"))))


@pytest.mark.parametrize(
    ("at_once", "numbers", "later", "of_the_broken", "offered", "finished"),
    [
        ((), None, None, None, True, []),
        (("w",), ("w",), None, None, False, []),  # numbers refute the edited program: no other attempt
        (("w",), (), (), None, True, ["fixed"]),
        (("w",), (), ("w",), None, False, ["fixed"]),
        (("k",), ("k",), None, None, False, []),  # the edit breaks what was right
        (("k",), (), ("k",), ("w",), False, ["fixed", "broken"]),  # proved of the broken program, given time
        (("k",), (), ("k",), ("w", "k"), True, ["fixed", "broken"]),  # unproved before and after
    ],
)
def test_what_neither_proof_nor_numbers_decided_is_looked_at_again(
    at_once, numbers, later, of_the_broken, offered, finished
):
    """The finding spoils ``w``; ``k`` is neither proved nor refuted of the broken program."""

    def answer(step: Any) -> Any:
        match step.method:
            case "candidates":
                return [candidate("halve")]
            case "capture":
                return {"capture": b"", "summary": SUMMARY}
            case "prove":
                return {"proof": "fixed", "outcome": outcome(*at_once)}
            case "confirm":
                return to_plain(Confirmation("differs" if numbers else "equal", differing=tuple(numbers)))
            case "finish":
                proofs.append(step.params["proof"])
                return {"outcome": outcome(*(later if proofs[-1] == "fixed" else of_the_broken))}
        return True

    proofs: list[str] = []
    broken = Broken(REQUEST, REPORT, (), frozenset({"w", "k"}), frozenset({"w"}), {})
    fixes = offered_to(broken, answer)
    assert (bool(fixes), proofs) == (offered, finished)


@pytest.mark.parametrize(
    ("rule", "said", "wrong_at", "offered"),
    [
        ("missing-reduction", {}, {}, True),
        ("missing-reduction", {}, {(1, "edited")}, False),  # one rank is right without the edit
        (
            "missing-reduction",
            {},
            {(1, "edited"), (1, "as it is")},
            "dp=1",  # the check is of two ranks only
        ),
        ("wrong-scale", {}, {(1, "edited"), (1, "as it is"), (1, "factor")}, False),  # on one rank it is another one
        ("wrong-scale", {"varied": {"file": "varied"}, "plain": {}}, {(2, "varied")}, False),
        ("wrong-scale", {"varied": {"file": "varied"}, "plain": {}}, {}, True),
        ("wrong-shard", {"brings_numbers": True}, {}, True),
        ("wrong-scale", {"brings_size": True}, {(3, "as it is")}, True),
        (
            "wrong-scale",
            {"brings_size": True},
            {},
            "what it is on another one, the check does not say",  # where it was tried, the program is right without it
        ),
        (
            "wrong-shard",
            {"brings_numbers": True},
            {(1, "cannot run")},
            "what it is on another one, the check does not say",  # the number was tried nowhere else
        ),
        ("wrong-shard", {}, {(1, "cannot run")}, True),
    ],
)
def test_an_edit_that_fits_one_mesh_or_one_constant_is_not_offered(rule, said, wrong_at, offered):
    """``wrong_at``: the ranks and the text where numbers refute the program; ``offered``: as a fix, that with a note of another mesh, or how it is told as what was tried."""

    def answer(step: Any) -> Any:
        match step.method:
            case "candidates":
                return [candidate("edit", **said)]
            case "capture":
                asked = step.params
                now.append((asked["mesh"]["dp"], asked["overlay"].get("file", "as it is")))
                cannot = (now[-1][0], "cannot run") in wrong_at
                return {"capture": b"", "summary": TROUBLED if cannot else SUMMARY}
            case "prove":
                return {"proof": "fixed", "outcome": outcome(*(("w",) if now[-1] in wrong_at else ()))}
            case "confirm":
                ratios = {"w": 0.5} if (now[-1][0], "factor") in wrong_at else None
                return to_plain(Confirmation("differs", differing=("w",), ratios=ratios))
        return True

    now: list[tuple[int, str]] = []
    finding = Finding(rule, "twice", None, promises=("w",))
    broken = Broken(
        REQUEST,
        replace(REPORT, mesh={"dp": 2}),
        (Diagnostic(rule, rule, "twice", "error", None),),
        frozenset({"w"}),
        frozenset({"w"}),
        {},
    )
    (told,) = ended(repaired(broken, [finding]), answer).diagnostics
    note = "\nnote: the program is written for this mesh: on dp=1 it is wrong with the fix as without it"
    messages = {True: "twice\nfix: edit (proved)", False: "twice", "dp=1": f"twice\nfix: edit (proved){note}"}
    assert [fix.title for fix in told.fixes] == (["edit"] if offered in (True, "dp=1") else [])
    assert told.message == messages.get(offered, f"twice\ntried: edit: it is right on this mesh; {offered}")


@pytest.mark.parametrize(
    ("before", "after", "offered"),
    [
        ("k = k@0 = k@1", "k = sum(k@0, k@1)", False),
        ("k = sum(k@0, k@1)", "k = sum(k@0, k@1)", True),
        ("k = concat(k@0, k@1; dim=0)", "k = k@0 = k@1", True),
        ("k: Replicate", "k: Partial(sum) over tp", False),
    ],
)
def test_an_edit_that_leaves_partial_what_was_whole_is_not_offered(before, after, offered):
    promises = (PromiseOutcome("w", True, "w"), PromiseOutcome("k", True, "", after))
    answers = {
        "candidates": [candidate("edit")],
        "capture": {"capture": b"", "summary": SUMMARY},
        "prove": {"proof": "fixed", "outcome": to_plain(Outcome(True, promises))},
    }
    finding = Finding("wrong-scale", "twice", None, promises=("w",))
    broken = Broken(REQUEST, REPORT, (), frozenset({"w"}), frozenset({"w"}), {"k": before})
    fixes, *_ = ended(proved_fixes(broken, 0, finding, ()), lambda step: answers.get(step.method, True))
    assert bool(fixes) == offered


def test_what_an_edit_mends_that_was_tried_is_explained_by_its_finding():
    """Both outputs are right after it: the second finding is a consequence, though nothing says elsewhere that the number is meant."""

    def answer(step: Any) -> Any:
        match step.method:
            case "candidates":
                asked.append(step.params["finding"])
                return [candidate("edit", brings_numbers=True)]
            case "capture":
                now.append(step.params["mesh"]["dp"])
                return {"capture": b"", "summary": TROUBLED if now[-1] == 1 else SUMMARY}
            case "prove":
                return {"proof": "edited", "outcome": outcome()}
        return True

    now: list[int] = []
    asked: list[int] = []
    findings = [Finding("wrong-relation", name, None, promises=(name,)) for name in ("w", "k")]
    told = tuple(Diagnostic("wrong-relation", "wrong-relation", each.headline, "error", None) for each in findings)
    broken = Broken(REQUEST, replace(REPORT, mesh={"dp": 2}), told, frozenset({"w", "k"}), frozenset({"w", "k"}), {})
    (only,) = ended(repaired(broken, findings), answer).diagnostics
    assert only.message.startswith("w\ntried: edit: ")
    assert (only.fixes, asked) == ((), [0])


@pytest.mark.parametrize("second_is_mended", [True, False])
def test_an_edit_after_which_all_is_wrong_for_another_defect_is_a_fix_beside_that_ones_alone(second_is_mended):
    """Two defects of one output: the first edit gives the ranks the specification's tensors again, which is not enough."""

    def answer(step: Any) -> Any:
        match step.method:
            case "candidates":
                first = step.params["finding"] == 0
                return [candidate("first" if first else "second")] if first or second_is_mended else []
            case "capture":
                return {"capture": b"", "summary": SUMMARY}
            case "prove":
                proofs.append("w")
                return {"proof": "edited", "outcome": outcome(*(("w",) if len(proofs) == 1 else ()))}
        return True

    proofs: list[str] = []
    findings = [Finding("wrong-relation", name, None, promises=("w",), regains=(3,)) for name in ("one", "other")]
    told = tuple(Diagnostic("wrong-relation", "wrong-relation", each.headline, "error", None) for each in findings)
    broken = Broken(REQUEST, replace(REPORT, mesh={"dp": 1}), told, frozenset({"w"}), frozenset({"w"}), {})
    first, second = ended(repaired(broken, findings), answer).diagnostics
    assert [len(first.fixes), len(second.fixes)] == ([1, 1] if second_is_mended else [0, 0])
    assert first.message == (
        "one\nfix: first (proved)"
        if second_is_mended
        else "one\ntried: first: 'w' is wrong after it, for another defect"
    )


@pytest.mark.parametrize("touched", [(), ("k",)])
def test_what_is_wrong_after_every_fix_is_said(touched):
    """Where it rests on the line that is edited, the edit is no fix."""

    def answer(step: Any) -> Any:
        match step.method:
            case "candidates":
                return [candidate("edit")]
            case "capture":
                return {"capture": b"", "summary": TROUBLED if step.params["mesh"]["dp"] == 1 else SUMMARY}
            case "prove":
                return {"proof": "edited", "outcome": outcome("k")}
        return True

    told = (Diagnostic("wrong-relation", "wrong-relation", "w", "error", None),)
    broken = Broken(REQUEST, replace(REPORT, mesh={"dp": 2}), told, frozenset({"w", "k"}), frozenset({"w", "k"}), {})
    finding = Finding("wrong-relation", "w", None, promises=("w",), touched=touched)
    (only,) = ended(repaired(broken, [finding]), answer).diagnostics
    assert len(only.fixes) == (0 if touched else 1)
    assert only.message == (
        "w\ntried: edit: 'w' is right after it; 'k', which rests on the same line, stays wrong"
        if touched
        else "w\nfix: edit (proved)\nnote: still wrong after all that is offered: 'k'"
    )
