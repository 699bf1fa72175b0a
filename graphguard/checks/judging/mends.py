"""Whether an edit mends a broken check: the edited program, recorded and proved again, keeps what the finding spoils and breaks nothing else."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from graphguard.checks.judging.bounded import Allowance
from graphguard.checks.judging.requests import CROSS_CHECK, Captured, CheckRequest, Step, as_proved, capture, confirming
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.plain import from_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome, says_partial
from graphguard.report.diagnostics import Diagnostic, Report


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that is broken: its report, the diagnostics of its findings one by one, the promises that are not proved, those of them that numbers refuted, and what the others were proved to be.

    ``allowed`` is what is left for proofs of edits of it, all findings together.
    """

    request: CheckRequest
    report: Report
    diagnostics: tuple[Diagnostic, ...]
    spoiled: frozenset[str]
    refuted: frozenset[str]
    held: Mapping[str, str]
    allowed: Allowance = field(default_factory=Allowance)

    @property
    def undecided(self) -> frozenset[str]:
        """The promises that are neither proved nor refuted."""
        return self.spoiled - self.refuted


def mends(
    broken: Broken, finding: Finding, texts: Mapping[str, str]
) -> Generator[Step, Any, tuple[str, frozenset[str]] | None]:
    """The proof of the program with these texts, and the promises that are broken there still; None where that does not mend the finding."""
    captured = yield from capture(broken.request, {**broken.request.overlay, **texts})
    return (yield from mended_by(broken, finding, captured))


Effort: TypeAlias = Literal["hasty", "usual", "patient"]


def mended_by(
    broken: Broken, finding: Finding, captured: Captured, effort: Effort = "usual"
) -> Generator[Step, Any, tuple[str, frozenset[str]] | None]:
    """The same of an edited program that is recorded already; ``hasty``: what one attempt does not prove of what the finding spoils is not looked at again, unless no one attempt could; ``patient``: it is proved as a check is."""
    if captured.troubles:
        return None
    judged = yield from _judged(broken, finding, captured, effort)
    if judged is None:
        return None
    key, outcome, differing = judged
    if differing & broken.undecided or not {each.name for each in outcome.promises}.issuperset(finding.promises):
        return None
    failing = frozenset(outcome.failing)
    mended = failing <= broken.spoiled - set(finding.promises) and (yield from _keeps(broken, failing))
    if not mended and finding.regains and failing <= broken.spoiled:
        mended = yield Step("prover", "held", {"proof": key, "variables": list(finding.regains)})
    return None if not mended or _weakens(broken, outcome) else (key, failing)


def _weakens(broken: Broken, outcome: Outcome) -> bool:
    """Whether an output of which every rank had all, or a part, is a sum of what the ranks hold after an edit."""
    after = {each.name: each.found for each in outcome.promises if each.holds}
    return any(says_partial(after.get(name, "")) and not says_partial(found) for name, found in broken.held.items())


def _judged(
    broken: Broken, finding: Finding, captured: Captured, effort: Effort
) -> Generator[Step, Any, tuple[str, Outcome, frozenset[str]] | None]:
    """The proof of an edited program: one attempt, and another one only of what numbers do not refute either; and what they refute.  None where a ``hasty`` one is enough to go on to the next."""
    attempt = {} if effort == "patient" else {"effort": "hasty"}
    result = yield Step("prover", "prove", {"capture": captured.data, **attempt})
    outcome = from_plain(Outcome, result["outcome"])
    if effort == "hasty" and not (finding.written_out or set(finding.promises).isdisjoint(outcome.failing)):
        return None
    doubtful = set(outcome.failing) - (broken.spoiled - broken.undecided - set(finding.promises))
    if not doubtful or not (broken.undecided or finding.written_out):
        return result["proof"], outcome, frozenset()
    numbers = from_plain(Confirmation, (yield confirming(as_proved(captured, result), CROSS_CHECK)))
    if doubtful.isdisjoint(numbers.differing):
        more = yield Step("prover", "finish", {"proof": result["proof"]})
        outcome = from_plain(Outcome, more["outcome"])
    return result["proof"], outcome, frozenset(numbers.differing)


def _keeps(broken: Broken, failing: frozenset[str]) -> Generator[Step, Any, bool]:
    """Whether an edit takes away no promise that more time would have proved of the broken program."""
    doubtful = failing & broken.undecided
    if not doubtful:
        return True
    more = yield Step("prover", "finish", {"proof": broken.report.proof})
    return doubtful <= set(from_plain(Outcome, more["outcome"]).failing)
