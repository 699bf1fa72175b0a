"""A check that reads which machine its ranks are on, on several machines as well: the verdict is the worse of both.

One machine is the case in which ``LOCAL_RANK`` is ``RANK``: a program that means the one and reads the other is right there by accident.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphguard.checks.judging.requests import Captured, CheckRequest, Judge, Steps, capture, same_programs
from graphguard.ir.machines import ONE_MACHINE, several
from graphguard.report.diagnostics import Report, Verdict
from graphguard.trace.depends.footprint import together


def on_one_machine(report: Report) -> bool:
    """Whether a report is of a program that is right on one machine and reads that it is on one."""
    return report.verdict is Verdict.REFINES and any(line.startswith(ONE_MACHINE) for line in report.assumed)


def elsewhere(request: CheckRequest, captured: Captured, report: Report, judge: Judge) -> Steps:
    """The report of a check that refines on one machine, after it was recorded as on several."""
    ranks = prod(captured.mesh.values())
    machines = several(ranks)
    if request.machines > 1 or machines == 1:
        return report
    spread = replace(request, mesh=captured.mesh, machines=machines)
    other = yield from capture(spread, dict(request.overlay))
    if other.troubles and any(trouble.rule != "collective-mismatch" for trouble in other.troubles):
        return replace(report, depends=None)  # a program for one machine, as it says: what was assumed
    report = replace(report, depends=together(captured.depends, other.depends))
    reads = ", ".join(line.removeprefix(ONE_MACHINE) for line in report.assumed if line.startswith(ONE_MACHINE))
    rest = tuple(line for line in report.assumed if not line.startswith(ONE_MACHINE))
    if not other.troubles and same_programs(other, captured):
        return replace(report, assumed=rest)
    judged = yield from judge(spread, other, replace(report, verdict=None, assumed=rest))
    if judged.verdict is Verdict.REFINES:
        both = f"the ranks are on one machine, or {ranks // machines} of them on each of {machines}: {reads}"
        return replace(report, assumed=(*rest, both))
    note = f"note: on {machines} machines with {ranks // machines} of the ranks each; {reads}"
    told = tuple(replace(one, message=f"{one.message}\n{note}") for one in judged.diagnostics)
    return replace(judged, diagnostics=told)
