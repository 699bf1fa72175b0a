"""Neither proved nor refuted: the operators that stayed closed, else the promises that stayed open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph
from graphguard.ir.graph import Size
from graphguard.refine.finding import Finding, Related
from graphguard.refine.outcome import CONSEQUENCES, SPECIFICATION, Gap, Location, Outcome
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.words import operation
from graphguard.report.wording import UNKNOWN_OPERATOR


def graph_at(capture: Capture, location: Location) -> Graph:
    """The graph in which a location is."""
    if location.graph == SPECIFICATION:
        assert capture.spec is not None
        return capture.spec
    return capture.ranks[location.graph]


def left_open(capture: Capture, outcome: Outcome, numbers: Confirmation | None, sources: Sources) -> list[Finding]:
    """Neither proved nor refuted: the operators that stayed closed, else the promises that stayed open."""
    gaps: dict[str, Gap] = {}
    for gap in sorted(outcome.gaps, key=lambda gap: gap.where.graph == SPECIFICATION):
        gaps.setdefault(gap.op, gap)  # once for each operator, at the implementation's call where there is one
    if gaps:
        first, *others = causes(list(gaps.values()))[:3]
        return [
            replace(_gap(capture, first, outcome, sources), found=_on_numbers(numbers)),
            *(_gap(capture, gap, outcome, sources) for gap in others),
        ]
    open_promises = [promise for promise in outcome.promises if not promise.holds]
    names = ", ".join(promise.name for promise in open_promises[:4])
    reasons = "; ".join(dict.fromkeys(promise.reason for promise in open_promises if promise.reason))
    needed = open_promises[0].needed if open_promises else ""
    where = next((one for one in outcome.implementation_frontier if one.graph != SPECIFICATION), None)
    span = None
    if where is not None:
        graph = graph_at(capture, where)
        span = sources.place(graph, graph.nodes[where.node])
    related = (Related(capture.check.span, f"the check that stays open: {names}"),) if span is not None else ()
    return [
        Finding(
            rule="unproved",
            headline=f"neither proved nor refuted: {names}",
            span=span or capture.check.span,
            needed=needed,
            found="; ".join(text for text in (*_shapes(capture, outcome), reasons, _on_numbers(numbers)) if text),
            related=related,
        )
    ]


def _shapes(capture: Capture, outcome: Outcome) -> Iterator[str]:
    """Open outputs whose parts no rank can have: of another number of dims, or larger along one."""
    if capture.spec is None:
        return
    for name in outcome.failing[:4]:
        whole = _shape(capture.spec, name)
        for rank, graph in enumerate(capture.ranks):
            local = _shape(graph, name)
            if whole is None or local is None or not _is_no_part(local, whole):
                continue
            yield f"{name} has shape {list(whole)} in the specification and {list(local)} on rank {rank}"
            break


def _shape(graph: Graph, name: str) -> tuple[Size, ...] | None:
    var = graph.outputs.get(name)
    return None if var is None else graph.types[var].shape


def _is_no_part(local: tuple[Size, ...], whole: tuple[Size, ...]) -> bool:
    """Whether a tensor of one shape is neither the other nor a part of it."""
    if len(local) != len(whole):
        return True
    pairs = zip(local, whole, strict=True)
    return any(isinstance(mine, int) and isinstance(all_, int) and mine > all_ for mine, all_ in pairs)


def causes(gaps: list[Gap]) -> list[Gap]:
    """Without the operators that stayed closed only because others did."""
    return [gap for gap in gaps if gap.reason not in CONSEQUENCES] or gaps


def _gap(capture: Capture, gap: Gap, outcome: Outcome, sources: Sources) -> Finding:
    graph = graph_at(capture, gap.where)
    span = sources.place(graph, graph.nodes[gap.where.node]) if gap.where.node >= 0 else None
    names = outcome.failing
    resting = f"{', '.join(names[:4])} {'rests' if len(names) == 1 else 'rest'}"
    return Finding(
        rule="unsupported-operator",
        headline=f"{operation(gap.op)} {why_closed(gap)}, and {resting} on it",
        span=span or capture.check.span,
    )


def _on_numbers(numbers: Confirmation | None) -> str:
    """What running both programs said, where it decided nothing."""
    if numbers is None:
        return ""
    if numbers.status == "equal":
        sizes = " at reduced sizes" if numbers.reduced else ""
        return f"no difference in {numbers.draws} runs on random numbers{sizes}"
    return f"no run on numbers: {numbers.reason}" if numbers.reason else ""


def why_closed(gap: Gap) -> str:
    """Why an operator stayed closed, behind its name."""
    if gap.reason == f"no rule for {gap.op}":
        return UNKNOWN_OPERATOR
    return f"is not understood here ({gap.reason})"
