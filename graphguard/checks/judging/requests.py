"""What the steps of a check ask of the processes, and in which form they answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from graphguard.ir import CheckRef, Trouble
from graphguard.ir.codec import capture_from_json
from graphguard.ir.fuel import SECOND
from graphguard.ir.plain import from_plain
from graphguard.refine.finding import Finding
from graphguard.report.diagnostics import Diagnostic, RelatedPlace, Report
from graphguard.report.registry import reported
from graphguard.trace.depends.unshared import Processes

LARGE = 400  # calls of a program, such as a decoder layer, that is recorded once more only where that cannot be helped: it would take seconds
CROSS_CHECK = 2 * SECOND  # steps of numbers beside a proof, or that an edited program is tried on


@dataclass(frozen=True, slots=True)
class Step:
    """A request to one of the processes: the tracing ``worker`` (torch, user code) or the ``prover`` (pure Python).

    ``params`` and the answer are plain data (JSON), except captures, which travel as ``bytes``.
    """

    process: Literal["worker", "prover"]
    method: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """One check on one mesh.

    ``overlay`` maps absolute paths to texts that stand in for the files; ``root`` is the project's folder.  ``levels`` are severities by rule from
    the configuration.  ``fixes`` asks for repairs; ``cross_check`` runs the numbers beside a proof as well;
    ``relations`` asks for the relation of every tensor of the specification, which costs more than the verdict;
    ``machines``: on how many the ranks are; ``processes``: how those of a job differ in what they do not share (:mod:`graphguard.trace.depends.unshared`);
    ``audit`` asks for every step of a proof to be read again;
    ``script`` is a training script that is run in place of a check, as plain data;
    ``ranks``: up to how many ranks all are recorded (None: however many there are);
    ``smallest`` asks for a counterexample on a smaller mesh, where the check can be run on one.
    """

    file: str
    name: str
    mesh: dict[str, int] | None
    root: str
    overlay: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    fixes: bool = True
    cross_check: bool = True
    relations: bool = True
    audit: bool = False
    smallest: bool = True
    cache: bool = True
    timeout: float = 60.0
    machines: int = 1
    processes: Processes = "apart"
    script: Mapping[str, Any] | None = None
    ranks: int | None = None


Steps: TypeAlias = Generator[Step | tuple[Step, ...] | Report, Any, Report]


@dataclass(frozen=True, slots=True)
class Captured:
    """The worker's answer: the capture's bytes for the prover, and what the steps themselves need of it."""

    data: bytes
    check: CheckRef
    mesh: dict[str, int]
    troubles: tuple[Trouble, ...]
    summary: dict[str, Any]
    cached: bool
    depends: dict[str, Any] | None = None
    doubts: tuple[Trouble, ...] = ()
    unshared: tuple[Trouble, ...] = ()


class Probed(NamedTuple):
    """A capture and what the programs held at places of their files: rows of program, place, value, and what was in sight."""

    captured: Captured
    observed: list[list[Any]]


Judge: TypeAlias = Callable[[CheckRequest, Captured, Report], Steps]


def capture(request: CheckRequest, overlay: dict[str, str]) -> Generator[Step, Any, Captured]:
    """The capture of a check with some texts in place of its files."""
    return _captured((yield _recording(request, overlay)))


def captures(
    request: CheckRequest, overlays: Sequence[dict[str, str]]
) -> Generator[tuple[Step, ...], Any, list[Captured]]:
    """The same with other texts each, recorded beside one another."""
    answers = yield tuple(_recording(request, overlay) for overlay in overlays)
    return [_captured(answer) for answer in answers]


def probed(request: CheckRequest, probes: Sequence[dict[str, Any]]) -> Generator[tuple[Step, ...], Any, list[Probed]]:
    """The captures of a check, once for each of what is asked of the values at places of its files (:mod:`graphguard.trace.source.probes`), with what was seen there."""
    answers = yield tuple(_recording(request, dict(request.overlay), each) for each in probes)
    return [Probed(_captured(answer), answer.get("observed", [])) for answer in answers]


def _recording(request: CheckRequest, overlay: dict[str, str], probes: dict[str, Any] | None = None) -> Step:
    return Step(
        "worker",
        "capture",
        {
            "file": request.file,
            "name": request.name,
            "mesh": request.mesh,
            "root": request.root,
            "overlay": overlay,
            "cache": request.cache and request.processes == "apart",
            "processes": request.processes,
            "timeout": request.timeout,
            "machines": request.machines,
            "ranks": request.ranks,
            "script": request.script,
            **({} if probes is None else {"probes": probes}),
        },
    )


def _captured(answer: Any) -> Captured:
    summary = answer["summary"]
    return Captured(
        data=answer["capture"],
        check=from_plain(CheckRef, summary["check"]),
        mesh=summary["mesh"],
        troubles=tuple(from_plain(Trouble, row) for row in summary["troubles"]),
        summary=summary,
        cached=bool(answer.get("cached", False)),
        depends=answer.get("depends"),
        doubts=tuple(from_plain(Trouble, row) for row in summary.get("doubts", ())),
        unshared=tuple(from_plain(Trouble, row) for row in summary.get("unshared", ())),
    )


def same_programs(one: Captured, other: Captured) -> bool:
    """Whether two recordings are of the same programs with the same promises."""
    first, second = (capture_from_json(each.data) for each in (one, other))
    return (first.spec, first.ranks, first.promises) == (second.spec, second.ranks, second.promises)


def as_proved(captured: Captured, answer: dict[str, Any]) -> Captured:
    """The capture that the prover's answer is about: arithmetic in a narrower type than the specification's is written as such there."""
    data = answer.get("exposed")
    return captured if data is None else replace(captured, data=data)


def confirming(captured: Captured, steps: float, *, explained: bool = True) -> Step:
    """The request to run a capture on numbers; unless ``explained``, without an example that a person can read."""
    return Step("worker", "confirm", {"capture": captured.data, "steps": steps, "explained": explained})


def in_silence(steps: Steps) -> Generator[Any, Any, Report]:
    """What steps come to, without the reports on the way: they are of another program or mesh."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            report: Report = end.value
            return report
        answer = None if isinstance(step, Report) else (yield step)


def is_long(request: CheckRequest, report: Report) -> bool:
    """Whether recording the programs once more takes so long that it is done as seldom as can be."""
    return request.script is not None or sum(report.operators.get(side, 0) for side in ("spec", "impl")) > LARGE


def diagnostic_of_finding(finding: Finding, report: Report, request: CheckRequest) -> Diagnostic:
    """A finding as it is shown."""
    lines = [finding.headline]
    if finding.needed:
        lines.append(f"needed: {finding.needed}")
    if finding.found:
        lines.append(f"found:  {finding.found}")
    related = (RelatedPlace(place.span, place.message) for place in finding.related)
    return reported(finding.rule, "\n".join(lines), request.levels, finding.span or report.check.span, related)
