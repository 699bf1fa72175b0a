"""Another value in the place of one that a program holds, where no edit mends it: which number or answer is to blame."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from graphguard.checks.judging.mends import Broken, mended_by
from graphguard.checks.judging.requests import CROSS_CHECK, Captured, Step, confirming, probed
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.plain import from_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome

AT_ONCE: Final = 8  # recordings that are asked for together
FURTHER: Final = 32  # other values that are tried of what the one that mends comes from
MOST: Final = 64  # other values that are tried
PATIENTLY: Final = 3  # values that numbers do not refute, and that haste does not prove, are proved again: so many


class _Found(NamedTuple):
    """Another value that mends, the promises that are broken still, and how many calls it changes."""

    row: dict[str, Any]
    left: frozenset[str]
    changed: int


class Valued(NamedTuple):
    """Another value that mends a finding, the promises that are broken still, and edits that write it with what is in sight of its place."""

    row: dict[str, Any]
    left: frozenset[str]
    drafts: list[dict[str, Any]]


def valued_otherwise(
    broken: Broken, index: int, finding: Finding, most: int
) -> Generator[Step | tuple[Step, ...], Any, Valued | None]:
    """The value that mends a finding if it is another one; of those that come from each other, the first that changes no more calls: what is worked out of a wrong number is right."""
    params = {"proof": broken.report.proof, "finding": index, "sources": dict(broken.request.overlay)}
    places: list[Any] = yield Step("prover", "values", params)
    if not places:
        return None
    (seen,) = yield from probed(broken.request, [{"places": places}])
    if seen.captured.troubles:
        return None
    params["observed"] = seen.observed
    rows: list[dict[str, Any]] = yield Step("prover", "values", params)
    found = yield from _first(broken, finding, places, rows[: min(most, MOST)])
    if found is None:
        return None
    rows = yield Step("prover", "values", {**params, "behind": found[0]["site"]})
    first = yield from _first(broken, finding, places, rows[:FURTHER])
    row, left, _ = found if first is None or first.changed > found.changed else first
    return Valued(row, left, (yield Step("prover", "needed", {**params, "put": row["put"]})))


def _first(
    broken: Broken, finding: Finding, places: list[Any], rows: list[dict[str, Any]]
) -> Generator[Step | tuple[Step, ...], Any, _Found | None]:
    """The first of these values that is proved to mend, with what it leaves."""
    doubted: list[tuple[dict[str, Any], Captured]] = []
    for at in range(0, len(rows), AT_ONCE):
        some = rows[at : at + AT_ONCE]
        tried = yield from probed(broken.request, [{"places": places, "put": row["put"]} for row in some])
        recorded = [(row, each.captured) for row, each in zip(some, tried, strict=True) if not each.captured.troubles]
        right = yield from _right(broken, finding, recorded)
        found = yield from _least(broken, finding, right)
        if found is not None:
            return found
        doubted += right[: PATIENTLY - len(doubted)]
    for row, captured in doubted:
        found = yield from _mended(broken, finding, row, captured, hasty=False)
        if found is not None:
            return found
    return None


def _least(
    broken: Broken, finding: Finding, right: list[tuple[dict[str, Any], Captured]]
) -> Generator[Step, Any, _Found | None]:
    """The first of these values that is proved to mend; of those that are as likely, the one that changes the fewest calls."""
    found: list[_Found] = []
    for row, captured in right:
        if found and row["cost"] > found[0].row["cost"]:
            break
        one = yield from _mended(broken, finding, row, captured, hasty=True)
        found += [one] if one is not None else []
    return min(found, key=lambda each: each.changed, default=None)


def _mended(
    broken: Broken, finding: Finding, row: dict[str, Any], captured: Captured, *, hasty: bool
) -> Generator[Step, Any, _Found | None]:
    """What a value leaves that is proved to mend; None of one that is not."""
    mended = yield from (
        mended_by(broken, finding, captured, hasty=True) if hasty else _proved(broken, finding, captured)
    )
    if mended is None:
        return None
    proofs = {"proof": broken.report.proof, "other": mended[0]}
    if not (yield Step("prover", "same_question", proofs)):
        return None
    return _Found(row, mended[1], (yield Step("prover", "calls_between", proofs)))


def _proved(
    broken: Broken, finding: Finding, captured: Captured
) -> Generator[Step, Any, tuple[str, frozenset[str]] | None]:
    """As :func:`~graphguard.checks.judging.mends.mended_by`, by a proof that is not hurried."""
    result = yield Step("prover", "prove", {"capture": captured.data})
    outcome = from_plain(Outcome, result["outcome"])
    failing = frozenset(outcome.failing)
    is_there = {each.name for each in outcome.promises}.issuperset(finding.promises)
    return (result["proof"], failing) if is_there and failing <= broken.spoiled - set(finding.promises) else None


def _right(
    broken: Broken, finding: Finding, recorded: list[tuple[dict[str, Any], Captured]]
) -> Generator[tuple[Step, ...], Any, list[tuple[dict[str, Any], Captured]]]:
    """Those after which numbers refute nothing that the finding spoils, and nothing that was right; what they cannot run is not looked at."""
    if not recorded:
        return []
    answers = yield tuple(confirming(captured, CROSS_CHECK, explained=False) for _, captured in recorded)
    numbers = [from_plain(Confirmation, answer) for answer in answers]
    kept = broken.spoiled - set(finding.promises)
    return [
        one
        for one, said in zip(recorded, numbers, strict=True)
        if said.status == "equal" or (said.status == "differs" and kept.issuperset(said.differing))
    ]
