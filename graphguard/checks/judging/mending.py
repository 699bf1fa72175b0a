"""Fixes of what was found: edits of the source, each traced and proved again before it is offered."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

from graphguard.checks.judging.bounded import bounded
from graphguard.checks.judging.coincidence import Chance, by_chance, told_elsewhere
from graphguard.checks.judging.mends import Broken, mends
from graphguard.checks.judging.meshes import meshes_to_try
from graphguard.checks.judging.nearby import Nearby, decided_otherwise, mended_nearby
from graphguard.checks.judging.requests import CheckRequest, Judge, Step, Steps, is_long
from graphguard.checks.judging.together import together
from graphguard.checks.judging.tried import InPart, Tried, Unfinished, with_tried
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.repair.writing.words import listed
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace, TextEdit
from graphguard.report.folding import mesh_text

FIXES_PER_FINDING = 3
CANDIDATES_PER_FINDING = 8
ALTERNATIVES_PER_FINDING = 2  # candidates that are still tried once a fix is proved, less those that were in vain before it: each is traced and proved anew
CANDIDATES_OF_SCRIPT = 3  # of a finding in a script, which is recorded again from its imports on for each
_OF_TYPES = frozenset(("lower-precision",))  # no other order, flag or value mends what a type does
_UNREAD = frozenset(("gradient-not-reduced", "dead-collective"))  # what nothing reads, where something else is read
_GIVEN_UP = "note: the search for a fix was given up: edited programs take long to record or to prove"


class Proved(NamedTuple):
    """Fixes of a finding, the promises that are still broken after the best of them, and its own headline if it has one; where edits are wrong that may mend only by chance.

    Where there are fixes and such a place, the program is written for its own mesh: it is wrong there with them as without.  Where there are none, the first edit that nothing says is meant.
    """

    fixes: list[Fix]
    left: frozenset[str]
    headline: str = ""
    elsewhere: CheckRequest | None = None
    tried: Tried | None = None


def repaired(broken: Broken, findings: list[Finding], judge: Judge | None = None) -> Steps:
    """The report with its fixes: each is proved on top of the best ones of the findings before it, and a finding that those mend is dropped.

    Where nothing mends the first finding, or it may be by chance, ``judge`` says what is wrong where the chance is gone, or on fewer ranks: what mends it there may do so here.
    """
    told: list[tuple[Finding, Diagnostic, list[Fix], str]] = []
    before: tuple[TextEdit, ...] = ()
    explained: frozenset[str] = frozenset()  # promises that what was tried mends
    for index, finding in enumerate(findings):
        diagnostic = broken.diagnostics[index]
        if finding.promises and not (broken.spoiled - explained) & set(finding.promises):
            continue  # a consequence of what is mended already
        fixes, left, headline, elsewhere, tried = yield from _given_first(
            broken, index, finding, before, judge is not None
        )
        retold, within = None, broken.allowed.half()  # the findings after it have the other half
        if (elsewhere is not None or not fixes) and not before and judge is not None:
            for place in [elsewhere] if elsewhere is not None else _other_meshes(broken):
                retold = retold or (
                    yield from bounded(told_elsewhere(broken, finding, place, judge), broken.allowed, None)
                )
        if retold is None and not fixes and judge is not None and finding.rule not in _OF_TYPES:
            in_half = replace(broken, allowed=within)
            near = yield from mended_nearby(in_half, index, finding, before)
            if not near.fixes and near.tried is None and tried is None and not finding.seen:
                near = yield from decided_otherwise(in_half, index, finding, before)
            fixes, left, headline = near.fixes, near.left, near.message
            if tried is None and near.tried is not None:
                tried, diagnostic = near.tried, diagnostic if finding.seen else _decided(diagnostic, near)
        if retold is not None:
            diagnostic, left = retold
            before, broken = diagnostic.fixes[0].edits, replace(broken, spoiled=left)
        elif fixes:
            best, broken = fixes[0], replace(broken, spoiled=left)
            diagnostic = replace(diagnostic, message=headline or diagnostic.message)
            before = (*before, *best.edits)
        elif tried is not None:
            explained |= broken.spoiled - tried.left
            diagnostic = with_tried(diagnostic, tried)
        note = _on_its_mesh(elsewhere) if fixes else ""
        if (broken.allowed.spent or within.spent) and not fixes and retold is None:
            diagnostic = replace(diagnostic, message=f"{diagnostic.message}\n{_GIVEN_UP}")
        told.append((finding, diagnostic, [] if retold is not None else fixes, note))
    labelled = [
        (finding, _labelled(finding, diagnostic, fixes, note, broken.spoiled))
        for finding, diagnostic, fixes, note in told
    ]
    return replace(broken.report, diagnostics=together(labelled))


def _decided(diagnostic: Diagnostic, near: Nearby) -> Diagnostic:
    """A diagnostic where a text mends that is tried alone: what came of it is told no more, but where it is said."""
    place = near.tried.fix.place if near.tried is not None else None
    if place is None or diagnostic.span is None or place.line == diagnostic.span.line:
        return diagnostic
    of_value = near.explained or diagnostic.rule not in _UNREAD
    rule = diagnostic.rule if of_value else "wrong-relation"
    seen = RelatedPlace(diagnostic.span, diagnostic.message.splitlines()[0])
    return replace(
        diagnostic,
        code=rule,
        rule=rule,
        span=place,
        message=near.message,
        related=(seen, *(each for each in diagnostic.related if each.span != place)),
    )


def _labelled(
    finding: Finding, diagnostic: Diagnostic, fixes: list[Fix], note: str, left: frozenset[str]
) -> Diagnostic:
    """A diagnostic with its fixes; as what was tried, where all that it spoils is among what is ``left`` broken after every edit that is offered: alone it would harm."""
    if not fixes:
        return diagnostic
    best = fixes[0]
    if finding.promises and left.issuperset(finding.promises):
        return with_tried(diagnostic, Unfinished(best, finding.promises))
    if touched := tuple(name for name in finding.touched if name in left):
        mended = tuple(name for name in finding.promises if name not in left)
        return with_tried(diagnostic, InPart(best, mended, touched))
    still = f"\nnote: still wrong after all that is offered: {listed(sorted(left))}" if left else ""
    return replace(
        diagnostic,
        span=best.place or diagnostic.span,
        message=f"{diagnostic.message}\nfix: {best.title} (proved){_by_hand(best)}{note}{still}",
        fixes=tuple(fix for fix in fixes if not _by_hand(fix)),
    )


def _given_first(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...], is_own: bool
) -> Generator[Step | tuple[Step, ...], Any, Proved]:
    """The fixes of a finding; where a reduction counts what is whole, it may stand for parts that callers forgot to ask for: that is tried first."""
    if is_own and finding.rule == "extra-reduction":
        given = yield from mended_nearby(broken, index, finding, before, forgotten=True)
        if given.fixes:
            return Proved(given.fixes, given.left, given.message)
    return (yield from proved_fixes(broken, index, finding, before))


def _on_its_mesh(elsewhere: CheckRequest | None) -> str:
    """What is said of fixes of a program that is wrong on another mesh with them as without."""
    if elsewhere is None:
        return ""
    return f"\nnote: the program is written for this mesh: on {mesh_text(elsewhere.mesh or {})} it is wrong with the fix as without it"


def _by_hand(fix: Fix) -> str:
    """Where a fix must be written and what it says there, if a file that it changes cannot be written by this user; empty elsewhere."""
    locked = {edit.span.file for edit in fix.edits if os.path.exists(edit.span.file)}
    locked = {file for file in locked if not os.access(file, os.W_OK)}
    edits = [edit for edit in fix.edits if edit.span.file in locked]
    lines = (f"line {edit.span.line}: {edit.text.strip() or 'nothing'}" for edit in edits)
    return f", in {', '.join(sorted(locked))}, which cannot be written from here\n{'; '.join(lines)}" if locked else ""


def _other_meshes(broken: Broken) -> list[CheckRequest]:
    """The check on meshes on which a defect that has nothing to do with an axis is seen without it."""
    meshes = [] if is_long(broken.request, broken.report) else meshes_to_try(broken.report.mesh)
    return [replace(broken.request, mesh=mesh) for mesh in meshes]


def proved_fixes(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...]
) -> Generator[Step | tuple[Step, ...], Any, Proved]:
    """The candidate edits after which the program, traced and proved again, keeps the promises that the finding spoils, and breaks no other.

    No output that was whole, or a shard, may be a sum of what the ranks hold afterwards, and what the edit mends must be right on other meshes, too (:mod:`graphguard.checks.judging.coincidence`),
    or the program is wrong there without it as well.  An edit whose numbers nothing confirms elsewhere is told as what was tried.
    Where another defect spoils the same promises, they must give the ranks the specification's tensors that the finding takes from them.
    What changes the specification, whose code the ranks may share, or no longer promises what was spoiled, mends nothing; where nothing else does, the specification may be
    written otherwise if it is proved to compute the same.
    """
    request, proof = broken.request, broken.report.proof
    params = {"proof": proof, "finding": index, "sources": dict(request.overlay), "before": to_plain(before)}
    answer = yield Step("prover", "candidates", params)
    proved: list[Proved] = []
    doubted: list[Proved] = []
    tried: Tried | None = None
    reworded: list[tuple[Fix, str, frozenset[str], str]] = []
    elsewhere: CheckRequest | None = None
    tries = 0 if is_long(broken.request, broken.report) else 1 + ALTERNATIVES_PER_FINDING
    candidates = CANDIDATES_PER_FINDING if request.script is None else CANDIDATES_OF_SCRIPT
    for row in answer[:candidates]:
        fix = from_plain(Fix, row["fix"])
        if any(known.title == fix.title for one in (*proved, *doubted) for known in one.fixes):
            continue  # another way to write what is proved already
        if proved and tries <= 0:
            break
        tries -= 1
        mended = yield from bounded(mends(broken, finding, row["texts"]), broken.allowed, None)
        if mended is None:
            continue
        key, failing = mended
        chance = yield from bounded(by_chance(broken, finding, row), broken.allowed, Chance(None))
        if chance is not None and chance.certain and chance.elsewhere is not None:
            elsewhere = elsewhere or chance.elsewhere
            continue
        if (yield Step("prover", "same_question", {"proof": proof, "other": key})):
            mend = Proved([replace(fix, proved=True)], failing, row["headline"])
            if chance is None:
                proved.append(mend)
            elif chance.certain:
                tried = tried or Tried(fix, failing)
            else:
                doubted.append(mend._replace(elsewhere=chance.elsewhere))
        elif chance is None and fix.place in (None, finding.span):
            reworded.append((fix, key, failing, row["headline"]))
        if len(proved) == FIXES_PER_FINDING:
            break
    found = proved or doubted[:FIXES_PER_FINDING]
    if found:
        return found[0]._replace(fixes=[fix for one in found for fix in one.fixes])
    # Code that the specification runs as well is right, unless nothing else is the program's own.
    for fix, key, failing, told in reworded if tried is None else ():
        if (yield Step("prover", "same_question", {"proof": proof, "other": key, "by_meaning": True})):
            return Proved([replace(fix, proved=True)], failing, told)
    return Proved([], broken.spoiled, "", elsewhere, tried)
