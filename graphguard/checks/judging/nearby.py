"""A fix made of what the files have already: tried where no edit of the graphs says what to write."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, NamedTuple

from graphguard.checks.judging.bounded import bounded
from graphguard.checks.judging.coincidence import Chance, unless_right_elsewhere
from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.requests import Captured, Step, captures
from graphguard.checks.judging.trials import AT_ONCE, Trials
from graphguard.checks.judging.tried import Tried
from graphguard.checks.judging.values import valued_otherwise
from graphguard.ir import Span
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.repair.writing.words import listed
from graphguard.report.diagnostics import Fix, TextEdit

LARGE: Final = 4_000  # calls of a program that is not recorded anew for what may be the matter near a finding


class Nearby(NamedTuple):
    """The first draft that mends a finding (none, if none does), the promises that are broken still, and the message to tell; else what was tried, and whether an edit of the graphs says what is wrong."""

    fixes: list[Fix]
    left: frozenset[str]
    message: str
    tried: Tried | None = None
    explained: bool = False


def mended_nearby(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...], forgotten: bool = False
) -> Generator[Step | tuple[Step, ...], Any, Nearby]:
    """What drafts near a finding make of it.

    A draft must be right on a second mesh, whether or not it brings in numbers: nothing but the proof says that it is meant.  Where no other mesh can be recorded, it is
    what was tried.
    """
    rows = yield from _rows(broken, index, before, "forgotten" if forgotten else "texts")
    return (yield from _mended(broken, index, finding, rows))


def _mended(
    broken: Broken, index: int, finding: Finding, rows: list[dict[str, Any]]
) -> Generator[Step | tuple[Step, ...], Any, Nearby]:
    message = broken.diagnostics[index].message
    found = Nearby([], broken.spoiled, message)
    trials = _trials(broken, finding, rows)
    while (one := (yield from bounded(trials.next(), broken.allowed, None))) is not None:
        row, _, failing, _ = one
        fix = replace(from_plain(Fix, row["fix"]), proved=True)
        told = _told(row["headline"], fix, message, finding)
        chance = yield from bounded(unless_right_elsewhere(broken, finding, row), broken.allowed, Chance(None))
        if chance is None:
            return Nearby([fix], failing, told)
        if (chance.elsewhere is None or not chance.certain) and found.tried is None:
            found = Nearby([], broken.spoiled, told, Tried(fix, failing), row["explained"])
    return found


def decided_otherwise(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...]
) -> Generator[Step | tuple[Step, ...], Any, Nearby]:
    """The first statement that mends a finding if it is not run, or value of Python if it is another one: where that is, and no fix, unless what is in sight of the place has the value that is needed there."""
    message = broken.diagnostics[index].message
    trials = _trials(broken, finding, (yield from _rows(broken, index, before, "decisions")))
    if (one := (yield from bounded(trials.next(), broken.allowed, None))) is not None:
        row, _, failing, _ = one
        fix = from_plain(Fix, row["fix"])
        told = _told(row["headline"], fix, message, finding)
        return Nearby([], broken.spoiled, told, Tried(fix, failing), row["explained"])
    if _is_small(broken) and _is_recorded_whole(broken) and not before:
        other = yield from bounded(valued_otherwise(broken, index, finding), broken.allowed, None)
        if other is not None:
            row, finding, failing, drafts = other
            written = yield from _mended(broken, index, finding, drafts)
            if written.fixes:
                return written
            fix = Fix(row["title"], (), proved=False, place=from_plain(Span, row["place"]))
            told = _told(row["told"], fix, message, finding)
            return Nearby([], broken.spoiled, told, Tried(fix, failing), row["explained"])
    return Nearby([], broken.spoiled, message)


def _trials(broken: Broken, finding: Finding, rows: list[dict[str, Any]]) -> Trials:
    """The drafts in their order."""
    request = broken.request

    def record(some: Sequence[dict[str, Any]]) -> Generator[Any, Any, list[Captured]]:
        return (yield from captures(request, [{**request.overlay, **row["texts"]} for row in some]))

    return Trials(broken, finding, rows, record, AT_ONCE, even_unrun=True)


def _rows(
    broken: Broken, index: int, before: tuple[TextEdit, ...], wanted: str
) -> Generator[Step, Any, list[dict[str, Any]]]:
    """The drafts, the likeliest first; none of a large program."""
    if not _is_small(broken):
        return []
    request = broken.request
    params = {"proof": broken.report.proof, "finding": index, "sources": dict(request.overlay), "wanted": wanted}
    rows: list[dict[str, Any]] = yield Step("prover", "nearby", {**params, "before": to_plain(before)})
    return rows


def _is_small(broken: Broken) -> bool:
    return sum(broken.report.operators.get(side, 0) for side in ("spec", "impl")) <= LARGE


def _is_recorded_whole(broken: Broken) -> bool:
    """Whether every rank of a check is recorded: what is put on some says nothing of those that are worked out from others."""
    ranks, request = prod(broken.report.mesh.values()), broken.request
    return request.script is None and (request.ranks is None or ranks <= request.ranks)


def _told(headline: str, fix: Fix, message: str, finding: Finding) -> str:
    """What is said of a defect that a draft mends: what was found first, where that is at the same line; else what is wrong for want of it."""
    if fix.place is None or finding.span is None or fix.place.line == finding.span.line:
        return f"{headline}: {message}"
    return (
        f"{headline}: {listed(sorted(finding.promises))} {'are' if len(finding.promises) > 1 else 'is'} wrong for that"
    )
