"""Another value in the place of one that a program holds, where no edit mends it: which number or answer is to blame."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.requests import Captured, Step, probed
from graphguard.checks.judging.trials import Mending, Trials
from graphguard.refine.finding import Finding

AT_ONCE: Final = 8  # recordings that are asked for together
FURTHER: Final = 32  # other values that are tried of what the one that mends comes from
MOST: Final = 64  # other values that are tried


class Valued(NamedTuple):
    """Another value that mends a finding, as far as it does, the promises that are broken still, and edits that write it with what is in sight of its place."""

    row: dict[str, Any]
    finding: Finding
    left: frozenset[str]
    drafts: list[dict[str, Any]]


def valued_otherwise(
    broken: Broken, index: int, finding: Finding
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
    found = yield from _first(broken, finding, places, rows[:MOST])
    if found is None:
        return None
    rows = yield Step("prover", "values", {**params, "behind": found[0]["site"]})
    first = yield from _first(broken, found.finding, places, rows[:FURTHER])
    row, mended, left, _ = found if first is None or first.changed > found.changed else first
    return Valued(row, mended, left, (yield Step("prover", "needed", {**params, "put": row["put"]})))


def _first(
    broken: Broken, finding: Finding, places: list[Any], rows: list[dict[str, Any]]
) -> Generator[Step | tuple[Step, ...], Any, Mending | None]:
    """The first of these values that is proved to mend; of those that are as likely, the one that changes the fewest calls."""

    def record(some: Sequence[dict[str, Any]]) -> Generator[Any, Any, list[Captured]]:
        tried = yield from probed(broken.request, [{"places": places, "put": row["put"]} for row in some])
        return [each.captured for each in tried]

    trials = Trials(broken, finding, rows, record, AT_ONCE, even_unrun=False)
    found = yield from trials.next()
    if found is None:
        return (yield from trials.in_part())
    others = yield from trials.as_likely(found.row["cost"])
    return min((found, *others), key=lambda each: each.changed)
