"""The search for fixes ends: what its proofs take is counted, and a recording that the clock stops is counted as much."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from graphguard.checks.judging.bounded import HANG, RECORDED, SEARCH, Allowance, bounded
from graphguard.checks.judging.requests import Step

PROOF = Step("prover", "prove")
STOPPED = Step("worker", "capture", {"timeout": 0.0})
REFUSED = Step("worker", "capture", {"timeout": 1000.0})
TROUBLE = {"summary": {"troubles": ["it did not finish"]}}


def asking(step: Step, times: int, closed: list[int]) -> Generator[Step, Any, str]:
    """Asks a step so many times, and finds something then."""
    try:
        for _ in range(times):
            yield step
    finally:
        closed.append(1)
    return "found"


def told(steps: Generator[Any, Any, str], answer: dict[str, Any]) -> tuple[str, int]:
    """What steps come to where every answer is the same, and how many were asked."""
    asked = 0
    sent: dict[str, Any] | None = None
    while True:
        try:
            steps.send(sent)
        except StopIteration as end:
            return end.value, asked
        asked, sent = asked + 1, answer


@pytest.mark.parametrize(
    ("step", "answer", "asked"),
    [
        (PROOF, {"burnt": SEARCH / 4}, 4),
        (STOPPED, TROUBLE, SEARCH // HANG),
        (REFUSED, TROUBLE, 9),  # it was not the clock: an edit that does not run costs nothing
        (STOPPED, {"summary": {"troubles": []}}, 9),
        (REFUSED, {"summary": {"operators": {"spec": SEARCH / RECORDED / 4, "impl": SEARCH / RECORDED / 4}}}, 2),
    ],
)
def test_a_search_is_given_up_once_all_is_burnt(step: Step, answer: dict[str, Any], asked: int) -> None:
    allowed, closed = Allowance(), list[int]()
    found, times = told(bounded(asking(step, 9, closed), allowed, "nothing"), answer)
    assert (found, times) == ("nothing" if asked < 9 else "found", asked)
    assert closed
    assert allowed.spent == (asked < 9)


def test_what_is_burnt_is_burnt_for_the_searches_after_it() -> None:
    allowed = Allowance()
    assert told(bounded(asking(PROOF, 1, []), allowed, "nothing"), {"burnt": SEARCH}) == ("found", 1)
    assert told(bounded(asking(PROOF, 1, []), allowed, "nothing"), {"burnt": 0}) == ("nothing", 0)


def test_a_part_is_taken_from_the_whole() -> None:
    allowed = Allowance()
    part = allowed.half()
    assert told(bounded(asking(PROOF, 9, []), part, "nothing"), {"burnt": SEARCH / 4}) == ("nothing", 2)
    assert part.spent
    assert allowed.left == SEARCH / 2
