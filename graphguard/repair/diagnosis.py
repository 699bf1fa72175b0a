"""One finding per defect: the repair that a proof confirms tells what is wrong and where."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph, Node, Span
from graphguard.refine.finding import Finding, Related
from graphguard.refine.outcome import SPECIFICATION, Gap, Location, Outcome
from graphguard.refine.prove import Proof
from graphguard.repair.dead import dead_reduction
from graphguard.repair.edits import InsertReduction
from graphguard.repair.frames import Read, Sources
from graphguard.repair.messages import headline, summed, whole
from graphguard.repair.search import Repair, Search, search
from graphguard.repair.suspects import suspect

FORWARD = "the forward call whose gradient this is"
UNEXPLAINED = {
    "wrong-relation": "has no clean relation to the specification",
    "lower-precision": "is narrowed, which the specification does not do at this value",
    "nonlinear-on-partial": "is computed from a partial sum, but it is not linear",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings and, for each, the repair that was confirmed on the graphs (None where none was)."""

    findings: tuple[Finding, ...]
    repairs: tuple[Repair | None, ...]


def diagnose(capture: Capture, proof: Proof, numbers: Confirmation | None, read: Read) -> Diagnosis:
    """Explain a failed proof; ``numbers`` is what running the capture said, ``read`` gives the present source texts."""
    sources = Sources.of(capture, read)
    outcome = proof.outcome
    if outcome.conflicts:
        return Diagnosis((_conflict(capture, outcome),), (None,))
    if numbers is None or numbers.status != "differs":
        left_open = tuple(_open(capture, outcome, sources))
        return Diagnosis(left_open, (None,) * len(left_open))
    unproved = tuple(promise.name for promise in outcome.promises if not promise.holds)
    broken = tuple(name for name in unproved if name in numbers.differing) or unproved
    found = search(capture, proof, broken, numbers.ratios or {}, sources)
    findings = [_repaired(capture, repair, sources) for repair in found.repairs]
    repairs: list[Repair | None] = list(found.repairs)
    if found.left:
        findings.append(_unexplained(capture, found, sources, numbers))
        repairs.append(None)
    return Diagnosis(tuple(findings), tuple(repairs))


def _graph(capture: Capture, location: Location) -> Graph:
    if location.graph == SPECIFICATION:
        assert capture.spec is not None
        return capture.spec
    return capture.ranks[location.graph]


def _repaired(capture: Capture, repair: Repair, sources: Sources) -> Finding:
    guess = repair.hypothesis
    site = guess.site
    rank = min(site.position)
    graph = capture.ranks[rank]
    span = sources.place(graph, site.node)
    name = _name(graph, site.node, span, sources, repair.mends)
    partial = isinstance(guess.edit, InsertReduction)
    if isinstance(guess.edit, InsertReduction) and (dead := dead_reduction(graph, site.node)) is not None:
        return _dropped(capture, repair, sources, dead, guess.edit.axis, name)
    value = f"grad({name})" if guess.rule == "gradient-not-reduced" else name
    return Finding(
        rule=guess.rule,
        headline=headline(guess.rule, guess.edit, name, site, capture),
        span=span,
        where=Location(rank, site.position[rank]),
        needed=whole(value, site.tensors) if partial else "",
        found=summed(value, site.tensors) if partial else "",
        tensor=name,
        axes=(guess.edit.axis,) if isinstance(guess.edit, InsertReduction) else (),
        promises=repair.mends,
        related=tuple(_related(capture, graph, site.node, span, sources, repair)),
    )


def _dropped(capture: Capture, repair: Repair, sources: Sources, dead: Node, axis: str, name: str) -> Finding:
    """The reduction is there, but its result is not read."""
    site = repair.hypothesis.site
    rank = min(site.position)
    graph = capture.ranks[rank]
    span = sources.place(graph, dead)
    related = _related(capture, graph, dead, span, sources, repair)
    if (born := sources.place(graph, site.node)) is not None:
        related.insert(0, Related(born, f"a partial sum over axis '{axis}'"))
    operation = dead.op.removeprefix("gg.")
    return Finding(
        rule="dead-collective",
        headline=f"the result of this {operation} is never used: '{name}' stays a partial sum over axis '{axis}'",
        span=span,
        where=Location(rank, graph.nodes.index(dead)),
        needed=whole(name, site.tensors),
        found=summed(name, site.tensors),
        tensor=name,
        axes=(axis,),
        promises=repair.mends,
        related=tuple(related),
    )


def _name(graph: Graph, node: Node, span: Span | None, sources: Sources, mends: tuple[str, ...]) -> str:
    """The author's name for a node's tensor; for a gradient, of the tensor whose gradient it is."""
    if node.phase != "backward":
        return sources.tensor_at(span) or graph.labels.get(node.outs[0], "") or node.op
    gradients = [name.removeprefix("grad(").removesuffix(")") for name in mends if name.startswith("grad(")]
    if len(gradients) == 1 and graph.outputs.get(mends[0]) in node.outs:
        return gradients[0]
    return sources.operand_at(span) or (gradients[0] if gradients else node.op)


def _related(
    capture: Capture, graph: Graph, node: Node, span: Span | None, sources: Sources, repair: Repair
) -> list[Related]:
    outer = (frame for frame in sources.frames(graph, node) if frame.span != span)
    found = [Related(frame.span, f"called in {frame.function}") for frame in outer]
    if node.phase == "backward" and node.stack >= 0 and node.forward >= 0:
        forward = [frame for frame in graph.stack_of(node.forward) if sources.in_project(frame.span.file)]
        found.extend(Related(frame.span, FORWARD) for frame in forward[:1])
    spoiled = ", ".join(repair.mends[:6]) + (", ..." if len(repair.mends) > 6 else "")
    found.append(Related(capture.check.span, f"the check that fails: {spoiled}"))
    return found


def _unexplained(capture: Capture, found: Search, sources: Sources, numbers: Confirmation) -> Finding:
    """Broken, but no edit that we know of mends it: both frontiers, and the factor where numbers show one."""
    outcome = found.proof.outcome
    promise = next(promise for promise in outcome.promises if promise.name in found.left)
    rule, where = suspect(found, promise.name)
    span = None
    if where is not None:
        graph = _graph(found.capture, where)
        span = sources.place(graph, graph.nodes[where.node])
    ratio = (numbers.ratios or {}).get(promise.name)
    what = sources.tensor_at(span) or promise.name
    spoiled = ", ".join(found.left[:4])
    if rule == "dead-collective" and where is not None:
        operation = found.capture.ranks[where.graph].nodes[where.node].op.removeprefix("gg.")
        text = f"the result of this {operation} is not used: it spoils {spoiled}"
    elif rule == "wrong-relation" and ratio is not None:
        rule = "wrong-scale"
        text = f"'{promise.name}' is {ratio:.6g} times what the specification computes"
    else:
        text = f"'{what}' {UNEXPLAINED[rule]}: it spoils {spoiled}"
    related = [
        Related(place, "the specification's operator that has no counterpart")
        for location in outcome.specification_frontier[:2]
        if (place := _specification_place(capture, location, sources)) is not None
    ]
    related.append(Related(capture.check.span, "the check that fails"))
    return Finding(
        rule=rule,
        headline=text,
        span=span,
        where=where,
        needed=promise.needed,
        found=promise.found,
        tensor=what,
        promises=found.left,
        related=tuple(related),
    )


def _specification_place(capture: Capture, location: Location, sources: Sources) -> Span | None:
    graph = _graph(capture, location)
    return sources.place(graph, graph.nodes[location.node])


def _conflict(capture: Capture, outcome: Outcome) -> Finding:
    return Finding(
        rule="conflicting-relations",
        headline="the input relations contradict each other, so nothing can be said",
        span=capture.check.span,
        found="; ".join(outcome.conflicts[:4]),
    )


def _open(capture: Capture, outcome: Outcome, sources: Sources) -> list[Finding]:
    """Neither proved nor refuted: the operators that stayed closed, else the promises that stayed open."""
    gaps: dict[str, Gap] = {}
    for gap in sorted(outcome.gaps, key=lambda gap: gap.where.graph == SPECIFICATION):
        gaps.setdefault(gap.op, gap)  # once for each operator, at the implementation's call where there is one
    if gaps:
        return [_gap(capture, gap, sources) for gap in list(gaps.values())[:3]]
    open_promises = [promise for promise in outcome.promises if not promise.holds]
    names = ", ".join(promise.name for promise in open_promises[:4])
    reasons = "; ".join(dict.fromkeys(promise.reason for promise in open_promises if promise.reason))
    needed = open_promises[0].needed if open_promises else ""
    where = next((one for one in outcome.implementation_frontier if one.graph != SPECIFICATION), None)
    span = None
    if where is not None:
        graph = _graph(capture, where)
        span = sources.place(graph, graph.nodes[where.node])
    related = (Related(capture.check.span, f"the check that stays open: {names}"),) if span is not None else ()
    return [
        Finding(
            rule="unproved",
            headline=f"neither proved nor refuted: {names}",
            span=span or capture.check.span,
            where=where,
            needed=needed,
            found=reasons,
            related=related,
        )
    ]


def _gap(capture: Capture, gap: Gap, sources: Sources) -> Finding:
    graph = _graph(capture, gap.where)
    span = sources.place(graph, graph.nodes[gap.where.node]) if gap.where.node >= 0 else None
    return Finding(
        rule="unsupported-operator",
        headline=f"{gap.op} is not understood, and a promise rests on it: {gap.reason}",
        span=span or capture.check.span,
        where=gap.where,
    )
