"""What is wrong on very many ranks, explained on few: on the smallest instance of what they run on which the same outputs are wrong.

To find the line rank by rank costs as much for each; numbers alone say that the ranks are wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from math import prod
from typing import Any, Final

from graphguard.checks.judging.requests import Captured, CheckRequest, Judge, Step, capture, confirming, in_silence
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.fuel import SECOND
from graphguard.ir.plain import from_plain
from graphguard.report.diagnostics import Report, Verdict
from graphguard.trace.depends.footprint import together

MANY: Final = 64
"""Of so many ranks each is looked at."""
_NUMBERS: Final = 30 * SECOND
_PLACES: Final = 4  # of an axis whose places have programs of their own, as the stages of a pipeline: the first, the last, and two between them


def on_fewer(
    request: CheckRequest, captured: Captured, report: Report, judge: Judge
) -> Generator[Step | tuple[Step, ...] | Report, Any, Report | None]:
    """The report of a check on very many ranks that numbers refute; None of any other, and where no smaller mesh shows the same."""
    if request.ranks is None or prod(captured.mesh.values()) <= MANY:
        return None
    proved = yield Step("prover", "at_once", {"capture": captured.data})
    if proved["proved"]:
        return None
    numbers = from_plain(Confirmation, (yield confirming(captured, _NUMBERS, explained=False)))
    if numbers.status != "differs" or numbers.rounding or numbers.undefined is not None:
        return None
    for mesh in instances(captured.mesh, proved["digits"]):
        few = replace(request, mesh=mesh, ranks=None)
        smaller = yield from capture(few, dict(request.overlay))
        if smaller.troubles:
            continue  # the program is not written for this mesh
        found = yield from in_silence(judge(few, smaller, replace(report, mesh=mesh)))
        example = found.counterexample
        if found.verdict is Verdict.BROKEN and example is not None and example.promise in numbers.differing:
            told = ",".join(f"{axis}={size}" for axis, size in mesh.items())
            where = f"what is wrong was looked for on {told}, where the same output is wrong"
            depends = together(captured.depends, smaller.depends)
            return replace(found, mesh=report.mesh, cautions=(*report.cautions, where), depends=depends)
    return None


def instances(mesh: dict[str, int], alike: Collection[str]) -> Iterator[dict[str, int]]:
    """Meshes with few ranks along the axes along which all are ``alike``, and some places of the others; smaller than the mesh."""
    some = {axis: min(size, 2 if axis in alike else _PLACES) for axis, size in mesh.items()}
    two, four = ({axis: min(size, most) for axis, size in mesh.items()} for most in (2, _PLACES))
    for each in {tuple(one.items()): one for one in (some, two, four)}.values():
        if 1 < prod(each.values()) < prod(mesh.values()):
            yield each
