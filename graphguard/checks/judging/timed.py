"""Where the time of a check goes: what was waited for between its first step and its report, phase by phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from graphguard.checks.judging.requests import Step, Steps
from graphguard.report.diagnostics import Report

# What is waited for while a step is answered; what its answer does not account for.
_PHASES: Final = {
    "capture": "worker",
    "confirm": "confirm",
    "prove": "infer",
    "at_once": "infer",
    "finish": "infer",
    "relations": "relations",
    "layouts": "relations",
    "diagnose": "diagnose",
}


def timed(steps: Steps, clock: Callable[[], float] = time.perf_counter) -> Steps:
    """The same steps; every report says in ``seconds`` what was waited for, and the sum of these is all that was.

    What runs beside a proof counts as far as it was waited for when the proof was there.  Everything after a report that is shown before the end
    is the search for ``fixes``.
    """
    spent: defaultdict[str, float] = defaultdict(float)
    answer: Any = None
    shown = False
    since = clock()

    def passed() -> float:
        nonlocal since
        before, since = since, clock()
        return since - before

    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            spent["fixes" if shown else "other"] += passed()
            report: Report = stop.value
            return replace(report, seconds=dict(spent))
        spent["fixes" if shown else "other"] += passed()
        if isinstance(step, Report):
            shown = True
            answer = yield replace(step, seconds=dict(spent))
            spent["fixes"] += passed()
            continue
        answer = yield step
        waited = passed()
        if shown:
            spent["fixes"] += waited
        else:
            _share(spent, step, answer, waited)


def _share(spent: defaultdict[str, float], step: Step | tuple[Step, ...], answer: Any, waited: float) -> None:
    """Add what was waited for to the phases that the answers tell of, first come first served, and the rest to the last step's own.

    A recording that was stopped underway tells of none.
    """
    told = zip(step, answer, strict=True) if isinstance(step, tuple) else ((step, answer),)
    last = step[-1] if isinstance(step, tuple) else step
    left = waited
    for each, said in told:
        for phase, seconds in _accounted(each, said).items():
            spent[phase] += min(seconds, left)
            left -= min(seconds, left)
    stopped = last.method == "capture" and bool(answer["summary"].get("troubles"))
    spent["trace" if stopped else _PHASES.get(last.method, "diagnose")] += left


def _accounted(step: Step, answer: Any) -> Mapping[str, float]:
    """What an answer says of where its time went; a recording that was read from a cache took none of it."""
    if step.method == "capture":
        return {} if answer.get("cached") else dict(answer["summary"]["seconds"])
    if step.method in ("prove", "finish"):
        return {"infer": float(answer["seconds"])}
    return {}
