"""What fits one mesh, one constant or one datum by chance: such an edit is found out elsewhere, and the defect is looked for again where the chance is gone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphguard.checks.judging.mends import Broken, mends
from graphguard.checks.judging.meshes import all_meshes, meshes_to_try
from graphguard.checks.judging.requests import (
    CROSS_CHECK,
    CheckRequest,
    Judge,
    Step,
    as_proved,
    capture,
    confirming,
    in_silence,
)
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import Diagnostic, Report

_RIGHT, _FACTOR, _WRONG, _NOTHING = "right", "a factor", "wrong", "it cannot be recorded"


@dataclass(frozen=True, slots=True)
class Chance:
    """An edit may mend a program by chance: where it does not, if that is known; not ``certain`` where the program may be one for its own mesh."""

    elsewhere: CheckRequest | None
    certain: bool = True


def by_chance(broken: Broken, finding: Finding, row: Mapping[str, Any]) -> Generator[Step, Any, Chance | None]:
    """Where numbers refute, on another mesh or with other constants, what an edit mends here; a number that an edit brings in must have been tried elsewhere.

    On two ranks a learning rate of 0.5 and a mean over the ranks are one factor; on one rank they are two.  A check that is written for its own mesh says nothing on
    another one: where what is wrong there is no factor, and is wrong without the edit as well.  An edit that is right there, too, tells the two apart.  A factor that is as large as an axis must be right
    where the program is wrong without it.  An edit after which a program does not run where it ran before is no fix: of two ranks, none is rank 2.
    """
    request = broken.request
    of_axis = row["brings_size"] and finding.rule == "wrong-scale"
    tried, doubt = False, None
    for mesh in (all_meshes if of_axis else meshes_to_try)(broken.report.mesh):
        asked = replace(request, mesh=mesh)
        said = yield from _said(asked, finding, row["texts"])
        if said is _FACTOR or (said is _WRONG and (yield from _said(asked, finding, {})) is _RIGHT):
            return Chance(asked)
        if said is _NOTHING and (yield from _said(asked, finding, {})) is not _NOTHING:
            return Chance(None)
        if said is _WRONG:
            doubt = doubt or Chance(asked, certain=False)
        tried = tried or (said is _RIGHT and not (of_axis and (yield from _said(asked, finding, {})) is _RIGHT))
    varied = yield from _with_other_constants(request, finding, row)
    if isinstance(varied, Chance):
        return varied
    return Chance(None) if (row["brings_numbers"] or of_axis) and not (tried or varied is _RIGHT) else doubt


def unless_right_elsewhere(
    broken: Broken, finding: Finding, row: Mapping[str, Any]
) -> Generator[Step, Any, Chance | None]:
    """As :func:`by_chance`, of an edit for which nothing but its proof speaks: it must be right on all meshes that can be recorded, smaller and larger ones, and on one at least.

    Programs that cut what more ranks do not divide are wrong there whatever they are: where another larger number of ranks is right, or ranks are given parts of several sizes there alone, that says nothing.
    An axis of which no other size is right, where another axis is, may be one that the program is written for: that is not ``certain``.
    """
    request, sizes = broken.request, broken.report.mesh
    even = not (yield Step("prover", "uneven", {"proof": broken.report.proof}))
    right, larger = set[str](), set[str]()
    wrong: list[tuple[frozenset[str], CheckRequest]] = []
    for mesh in all_meshes(sizes):
        asked = replace(request, mesh=mesh)
        said = yield from _said(asked, finding, row["texts"], even)
        axes = frozenset(axis for axis in mesh if mesh[axis] != sizes[axis])
        if said is _FACTOR:
            return Chance(asked)
        if said is _WRONG:
            wrong.append((axes, asked))
        elif said is _RIGHT:
            right |= axes
            larger |= {axis for axis in axes if mesh[axis] > sizes[axis]}
    wrong = [
        (axes, asked)
        for axes, asked in wrong
        if not any((asked.mesh or {})[axis] > sizes[axis] for axis in axes & larger)
    ]
    known = next((asked for axes, asked in wrong if axes <= right), None)
    if known is not None or (wrong and not right):
        return Chance(known or wrong[0][1])
    varied = yield from _with_other_constants(request, finding, row)
    if isinstance(varied, Chance):
        return varied
    if wrong:
        return Chance(wrong[0][1], certain=False)
    return None if right or varied is _RIGHT else Chance(None)


def _with_other_constants(
    request: CheckRequest, finding: Finding, row: Mapping[str, Any]
) -> Generator[Step, Any, Chance | str]:
    """What numbers say of an edited program whose constants are others; the chance, where they refute it."""
    if not row["varied"]:
        return _NOTHING
    said = yield from _said(request, finding, row["varied"])
    if said in (_FACTOR, _WRONG):
        return Chance(replace(request, overlay={**request.overlay, **row["plain"]}))
    return said


def told_elsewhere(
    broken: Broken, finding: Finding, elsewhere: CheckRequest, judge: Judge
) -> Generator[Step, Any, tuple[Diagnostic, frozenset[str]] | None]:
    """What is said of the broken program where no chance hides what is wrong, with its fixes that mend it here as well; and the promises that they leave broken."""
    elsewhere = replace(elsewhere, smallest=False)
    captured = yield from capture(elsewhere, dict(elsewhere.overlay))
    if captured.troubles:
        return None
    blank = Report(captured.check, captured.mesh, None, operators=dict(captured.summary["operators"]))
    report: Report = yield from in_silence(judge(elsewhere, captured, blank))
    sources = dict(broken.request.overlay)
    for diagnostic in report.diagnostics:
        for fix in diagnostic.fixes:
            texts = yield Step("prover", "texts", {"edits": to_plain(fix.edits), "sources": sources})
            mended = None if texts is None else (yield from mends(broken, finding, texts))
            if mended is None:
                continue
            key, failing = mended
            if (yield Step("prover", "same_question", {"proof": broken.report.proof, "other": key})):
                return replace(diagnostic, fixes=(fix,)), failing
    return None


def _said(
    request: CheckRequest, finding: Finding, texts: Mapping[str, str], even: bool = False
) -> Generator[Step, Any, str]:
    """What numbers say of all that a finding spoils, in the program of these texts; nothing, where all ranks are to be given parts of one size (``even``) and are not."""
    captured = yield from capture(request, {**request.overlay, **texts})
    if captured.troubles:
        return _NOTHING
    result = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    doubtful = set(finding.promises) & set(from_plain(Outcome, result["outcome"]).failing)
    if not doubtful:
        return _RIGHT
    numbers = from_plain(Confirmation, (yield confirming(as_proved(captured, result), CROSS_CHECK)))
    wrong = doubtful & set(numbers.differing)
    if not wrong:
        return _RIGHT
    if even and (yield Step("prover", "uneven", {"proof": result["proof"]})):
        return _NOTHING
    return _FACTOR if wrong & (numbers.ratios or {}).keys() else _WRONG
