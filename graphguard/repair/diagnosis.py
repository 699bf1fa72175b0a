"""One finding per defect: the repair that a proof confirms tells what is wrong and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.refine.finding import Finding, Related
from graphguard.refine.outcome import CONSEQUENCES, SPECIFICATION, Gap, Location, Outcome
from graphguard.refine.prove import Proof
from graphguard.repair.dead import dead_reduction, rearranged_outputs
from graphguard.repair.edits import (
    Accumulate,
    Bypass,
    InsertReduction,
    Mask,
    OtherCalls,
    Reread,
    SetArgument,
    SwapTensors,
)
from graphguard.repair.frames import Read, Sources
from graphguard.repair.guided_source import exchanged_places, names_of
from graphguard.repair.hypotheses import Hypothesis
from graphguard.repair.messages import (
    Named,
    axis_of_group,
    factor_text,
    gradients_unreduced,
    headline,
    held_before,
    listed,
    needed_and_found,
    operation,
    spoiled_text,
)
from graphguard.repair.opened import opened
from graphguard.repair.packed import packed, packed_finding
from graphguard.repair.reads import is_moved, reads_text
from graphguard.repair.search import Repair, Search, search
from graphguard.repair.slices import partial_axes
from graphguard.repair.stopped import detached_by
from graphguard.repair.suspects import STOPPED, Suspect, suspect
from graphguard.report.wording import UNKNOWN_OPERATOR

FORWARD = "the forward call whose gradient this is"
_WIDER_SECONDS = 1.0


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
        left_open = tuple(_open(capture, outcome, numbers, sources))
        return Diagnosis(left_open, (None,) * len(left_open))
    whole = capture
    capture, proof = opened(capture, proof)
    unproved = outcome.failing
    broken = tuple(name for name in unproved if name in numbers.differing) or unproved
    found = search(capture, proof, broken, numbers.ratios or {}, sources)
    first = found
    if not found.repairs:
        found = _wider(found, broken, numbers, sources)
    own = frozenset() if whole.spec is None else frozenset(whole.spec.types)
    findings = [
        replace(
            _repaired(repair.before, repair, sources),
            where=_origin(capture, repair),
            written_out=found is not first,
            regains=tuple(var.id for var in repair.regains if var in own),
        )
        for repair in found.repairs
    ]
    repairs: list[Repair | None] = list(found.repairs)
    if found.left:
        findings.append(_without_repair(found, sources, numbers))
        repairs.append(None)
    return Diagnosis(tuple(findings), tuple(repairs))


def _wider(found: Search, broken: tuple[str, ...], numbers: Confirmation, sources: Sources) -> Search:
    """The search on the attempt that writes out products of sums: the repaired program may be one that only this one proves."""
    proof = found.proof.expanded(_WIDER_SECONDS)
    if not proof.failing or not proof.failing <= found.proof.failing:
        return found
    left = tuple(name for name in broken if name in proof.failing)
    wider = search(found.capture, proof, left, numbers.ratios or {}, sources, _WIDER_SECONDS)
    return wider if wider.repairs and left == broken else found


def _without_repair(found: Search, sources: Sources, numbers: Confirmation) -> Finding:
    """What no edit of the program mends: parameters that are cut in another way than the program reads them, or both frontiers."""
    cut = packed(found.capture, found.proof, found.left)
    if cut is not None:
        return packed_finding(found.capture, cut, sources)
    return _unexplained(found, sources, numbers)


def _origin(capture: Capture, repair: Repair) -> Location | None:
    """The node at fault in the program as it was recorded, which earlier repairs may have moved."""
    rank = min(repair.hypothesis.site.position)
    outs = repair.hypothesis.site.node.outs
    found = (index for index, node in enumerate(capture.ranks[rank].nodes) if node.outs == outs)
    return next((Location(rank, index) for index in found), None)


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
    span = _exchanged(capture, guess, rank, sources) or sources.place(graph, site.node)
    name = _name(graph, site.node, sources.name_place(graph, site.node), sources, repair.mends)
    if isinstance(guess.edit, OtherCalls):
        span = sources.own_place(graph, site.node, guess.edit.calls.get(rank, {}))
        name = sources.tensor_at(span) or name
    if (factor := _forward_factor(graph, guess, sources)) is not None:
        span, name = factor, sources.tensor_at(factor) or name
    if isinstance(guess.edit, Accumulate):
        name = _assigned_near(capture, guess, rank, guess.edit.tensors[rank], sources) or name
    if isinstance(guess.edit, InsertReduction) and (dead := dead_reduction(capture, rank, site.node)) is not None:
        return _dropped(capture, repair, sources, dead, guess.edit, name)
    needed, found = _relations(capture, repair, name, sources)
    return Finding(
        rule=guess.rule,
        headline=_added_shards(capture, repair, name)
        or headline(guess.rule, guess.edit, name, site, capture, _named(capture, guess, sources)),
        span=span,
        needed=needed,
        found=found,
        tensor=name,
        axes=(guess.edit.axis,) if isinstance(guess.edit, InsertReduction) else (),
        promises=repair.mends,
        related=tuple(_related(capture, graph, site.node, span, sources, repair)),
    )


def _added_shards(capture: Capture, repair: Repair, name: str) -> str:
    """What a reduction that is one too many does to parts of one tensor; empty where its operand is whole."""
    guess = repair.hypothesis
    if not isinstance(guess.edit, Bypass) or guess.rule != "extra-reduction":
        return ""
    axis = axis_of_group(guess.site.node.args[-1], capture)
    for number in guess.site.operands:
        relation = repair.sites[number].relation if number in repair.sites else None
        place = (relation.placements or {}).get(axis) if relation is not None else None
        if place is not None and place.kind == "shard":
            return f"'{name}' adds up over axis '{axis}' what are no summands but the ranks' parts of one tensor, cut along dim {place.dim}"
    return ""


def _exchanged(capture: Capture, guess: Hypothesis, rank: int, sources: Sources) -> Span | None:
    """Where the first of two tensors stands that are in each other's place."""
    if not isinstance(guess.edit, SwapTensors):
        return None
    pair = guess.edit.tensors[rank], guess.edit.others[rank]
    places = exchanged_places(capture, rank, pair, sources)
    return places[0][0] if places else None


def _dropped(
    capture: Capture, repair: Repair, sources: Sources, dead: Node, edit: InsertReduction, name: str
) -> Finding:
    """The reduction is there, but its result is not read."""
    held, axis = held_before(edit), edit.axis
    site = repair.hypothesis.site
    rank = min(site.position)
    graph = capture.ranks[rank]
    span = sources.place(graph, dead)
    related = _related(capture, graph, dead, span, sources, repair)
    if (born := sources.place(graph, site.node)) is not None:
        related.insert(0, Related(born, f"{held} over axis '{axis}'"))
    needed, found = _relations(capture, repair, name, sources)
    return Finding(
        rule="dead-collective",
        headline=f"the result of this {operation(dead.op)} is never used: '{name}' stays {held} over axis '{axis}'",
        span=span,
        needed=needed,
        found=found,
        tensor=name,
        axes=(axis,),
        promises=repair.mends,
        related=tuple(related),
    )


def _forward_factor(graph: Graph, guess: Hypothesis, sources: Sources) -> Span | None:
    """Where the forward pass multiplies by a factor that a gradient is found to have too many."""
    node = guess.site.node
    if guess.rule != "wrong-scale" or not isinstance(guess.edit, Bypass) or node.phase != "backward":
        return None
    frames = (frame.span for frame in graph.stack_of(node.forward) if sources.in_project(frame.span.file))
    return next(frames, None)


def _relations(capture: Capture, repair: Repair, name: str, sources: Sources) -> tuple[str, str]:
    """The relation that a missing reduction would give, and the one that is there; empty where the defect is another one."""
    guess = repair.hypothesis
    edit = guess.edit
    if not isinstance(edit, InsertReduction) or edit.reduce != "sum" or len(guess.site.position) == 1:
        return "", ""
    site = guess.site
    if guess.rule == "nonlinear-on-partial":  # the site computes from the partial sum
        partial = next((each for each in repair.sites.values() if each.tensors == edit.tensors), None)
        if partial is None:
            return "", ""
        rank = min(partial.position)
        site, name = partial, _naming(capture, sources)(rank, partial.tensors[rank])
    value = f"grad({name})" if guess.rule == "gradient-not-reduced" else name
    return needed_and_found(value, site, edit.axis, capture)


def _named(capture: Capture, guess: Hypothesis, sources: Sources) -> Named:
    """Names for what a repair is about: two tensors that are in each other's place are named where their sources part."""
    named = _naming(capture, sources)
    if isinstance(guess.edit, Reread | Mask | SetArgument):
        return lambda rank, var: _assigned_near(capture, guess, rank, var, sources) or named(rank, var)
    if not isinstance(guess.edit, SwapTensors):
        return named
    rank = min(guess.edit.tensors)
    pair = guess.edit.tensors[rank], guess.edit.others[rank]
    for spans in exchanged_places(capture, rank, pair, sources)[:1]:
        texts = dict(zip(pair, map(sources.tensor_at, spans), strict=True))
        return lambda rank, var: texts.get(var) or named(rank, var)
    return named


def _assigned_near(capture: Capture, guess: Hypothesis, rank: int, var: Var, sources: Sources) -> str:
    """The name that a tensor is assigned to in the file where a repair goes; empty where it has none there."""
    graph = capture.ranks[rank]
    place = sources.place(graph, graph.nodes[guess.site.position[rank]]) if rank in guess.site.position else None
    program = sources.program(place.file) if place is not None else None
    return next(iter(names_of(capture, rank, var, program, sources)), "") if program is not None else ""


def _naming(capture: Capture, sources: Sources) -> Named:
    """The author's name for any tensor of a rank: that of its expression, else of the input or parameter that it is."""

    def named(rank: int, var: Var) -> str:
        graph = capture.ranks[rank]
        producers = graph.producers()
        while var in producers and (node := graph.nodes[producers[var]]).stack < 0:
            operand = next(node.operands(), None)  # how an input is cut for this rank
            if operand is None:
                break
            var = operand
        if var in producers:
            return sources.tensor_at(sources.place(graph, graph.nodes[producers[var]])) or graph.labels.get(var, "")
        return graph.labels.get(var, "") or graph.inputs.get(var, "")

    return named


def _name(graph: Graph, node: Node, span: Span | None, sources: Sources, mends: tuple[str, ...]) -> str:
    """The author's name for a node's tensor; for a gradient, of the tensor whose gradient it is."""
    if node.phase != "backward":
        return sources.tensor_at(span) or graph.labels.get(node.outs[0], "") or node.op
    gradients = [name.removeprefix("grad(").removesuffix(")") for name in mends if name.startswith("grad(")]
    own = [name for name in gradients if graph.outputs.get(f"grad({name})") in node.outs]
    if own and own == gradients:
        return ", ".join(own)
    returned = [name for var, name in rearranged_outputs(graph) if var in node.outs and name in mends]
    if returned and not gradients:  # the program hands out the gradient itself
        return returned[0]
    if operand := sources.operand_at(span):
        return operand
    forward = next(iter(graph.stack_of(node.forward)), None)
    call = sources.name_at(forward.span) if forward is not None else ""
    return gradients[0] if gradients else f"an operand of {call}" if call else operation(node.op)


def _related(
    capture: Capture, graph: Graph, node: Node, span: Span | None, sources: Sources, repair: Repair
) -> list[Related]:
    outer = (frame for frame in sources.frames(graph, node) if span is None or frame.span.line != span.line)
    found = [Related(frame.span, f"called in {frame.function.rpartition('<locals>.')[2]}") for frame in outer]
    if node.phase == "backward" and node.stack >= 0 and node.forward >= 0:
        forward = [frame for frame in graph.stack_of(node.forward) if sources.in_project(frame.span.file)]
        found.extend(Related(frame.span, FORWARD) for frame in forward[:1])
    spoiled = ", ".join(repair.mends[:6]) + (", ..." if len(repair.mends) > 6 else "")
    found.append(Related(capture.check.span, f"the check that fails: {spoiled}"))
    return found


def _unexplained(found: Search, sources: Sources, numbers: Confirmation) -> Finding:
    """Broken, but no edit that we know of mends it: both frontiers, and the factor where numbers show one."""
    capture = found.capture
    outcome = found.proof.outcome
    promise = next(promise for promise in outcome.promises if promise.name in found.left)
    suspected = suspect(found, promise.name)
    rule, where = suspected.rule, suspected.where
    span = None
    if where is not None:
        graph = _graph(found.capture, where)
        span = _beside(found.capture, suspected, sources) or sources.place(graph, graph.nodes[where.node])
        span = _detached(suspected, span, sources) or span
    factor = Fraction((numbers.ratios or {}).get(promise.name, 1)).limit_denominator(1 << 10)
    what = sources.tensor_at(span) or promise.name
    difference = found.proof.difference(promise.name) if rule in ("wrong-relation", "wrong-shard") else None
    if rule == "wrong-relation" and (axis := _unreduced_axis(found, promise.name)):
        rule, text = _left_partial(found, axis)
    elif rule == "wrong-relation" and factor != 1:
        rule = "wrong-scale"
        text = f"'{promise.name}' is {factor_text(factor, capture)} times what the specification computes"
    elif difference is not None:
        unsaid = (
            suspected.where is not None
            and suspected.meant is None
            and not suspected.reason
            and rule == "wrong-relation"
        )
        told = (
            f"'{what}' reads what the specification does not"
            if unsaid
            else _unexplained_text(rule, what, found, suspected)
        )
        text = f"{told}: {reads_text(difference, promise.name, _leaf_names(found))}"
        rule = "wrong-shard" if is_moved(difference) else rule
    else:
        text = f"{_unexplained_text(rule, what, found, suspected)}: {spoiled_text(found.left)}"
    related = [
        Related(place, "the specification computes this, and the ranks do not")
        for location in ((suspected.meant,) if suspected.meant is not None else outcome.specification_frontier[:2])
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


def _leaf_names(found: Search) -> dict[str, str]:
    """The author's names for the inputs and parameters, by leaf."""
    spec, names = found.capture.spec, found.proof.names()
    return {leaf: names[var] for var, leaf in spec.inputs.items() if var in names} if spec is not None else {}


def _unreduced_axis(found: Search, name: str) -> str:
    """The mesh axis over which the ranks' outputs of a name are summands of the specification's; empty where they are none."""
    outputs = {rank: graph.outputs[name] for rank, graph in enumerate(found.capture.ranks) if name in graph.outputs}
    relation = found.proof.group(outputs) if outputs else None
    axes = partial_axes(relation) if relation is not None else ()
    return axes[0] if len(axes) == 1 else ""


def _left_partial(found: Search, axis: str) -> tuple[str, str]:
    """The rule and the text of outputs that are handed out as summands; more may be wrong than these."""
    names = [name for name in found.left if _unreduced_axis(found, name) == axis]
    graph = found.capture.ranks[0]
    made = {out: node for node in graph.nodes for out in node.outs}
    learnt = (made.get(graph.outputs[name]) for name in names if name in graph.outputs)
    if all(node is not None and node.phase == "backward" for node in learnt):
        shown = [name.removeprefix("grad(").removesuffix(")") for name in names]
        return "gradient-not-reduced", gradients_unreduced(shown, axis)
    what = f"'{names[0]}' is a partial sum" if len(names) == 1 else f"{listed(names)} are partial sums"
    return "missing-reduction", f"{what} over axis '{axis}' and handed out as if whole"


def _detached(suspected: Suspect, span: Span | None, sources: Sources) -> Span | None:
    """Where the author cuts off a gradient that stops."""
    program = sources.program(span.file) if span is not None and suspected.reason == STOPPED else None
    call = detached_by(program, span) if program is not None and span is not None else None
    return None if program is None or call is None else program.span(call)


def _beside(capture: Capture, suspected: Suspect, sources: Sources) -> Span | None:
    """Where the function that reads a tensor makes it: a helper that gives it may serve other calls well."""
    if suspected.where is None or suspected.reader is None or suspected.where == suspected.reader:
        return None
    graph = _graph(capture, suspected.where)
    reader = sources.place(graph, graph.nodes[suspected.reader.node])
    program = sources.program(reader.file) if reader is not None else None
    if reader is None or program is None:
        return None
    function = program.enclosing_function(reader)
    frames = (frame.span for frame in sources.frames(graph, graph.nodes[suspected.where.node]))
    inner = (span for span in frames if span.file == reader.file)
    return next((span for span in inner if program.enclosing_function(span) is function), None)


def _unexplained_text(rule: str, what: str, found: Search, suspected: Suspect) -> str:
    where = suspected.where
    if where is None:
        return f"'{what}' is not what the specification computes"
    if suspected.meant is not None and not suspected.reason:
        meant = _graph(found.capture, suspected.meant).nodes[suspected.meant.node]
        does = operation(meant.op).removeprefix("a ").removeprefix("the ")
        if suspected.where == suspected.reader:
            return f"'{what}' is computed from another tensor than the specification's {does}"
        return f"'{what}' is not what the specification's {does} reads"
    if suspected.reason:
        return suspected.reason.format(what=what)
    graph = _graph(found.capture, where)
    node = graph.nodes[where.node]
    does = operation(node.op)
    if rule == "dead-collective":
        return f"the result of this {does} is never used"
    if rule == "lower-precision":
        before, after = graph.types[next(node.operands())].dtype, graph.types[node.outs[0]].dtype
        return f"'{what}' is rounded to {after}; the specification keeps {before} here"
    if rule == "nonlinear-on-partial":
        return f"'{what}' is {does} of a partial sum, and {does} is not linear"
    if rule == "wrong-shard":
        return f"'{what}' joins the parts of the ranks in another way than the specification has them"
    if rule == "wrong-relation" and (gaps := _causes(list(found.proof.outcome.gaps))):
        return (
            f"what is made of '{what}' is wrong, and cannot be followed: {operation(gaps[0].op)} {_why_closed(gaps[0])}"
        )
    return f"'{what}' is the first value that the specification does not have, whole or in parts"


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


def _open(capture: Capture, outcome: Outcome, numbers: Confirmation | None, sources: Sources) -> list[Finding]:
    """Neither proved nor refuted: the operators that stayed closed, else the promises that stayed open."""
    gaps: dict[str, Gap] = {}
    for gap in sorted(outcome.gaps, key=lambda gap: gap.where.graph == SPECIFICATION):
        gaps.setdefault(gap.op, gap)  # once for each operator, at the implementation's call where there is one
    if gaps:
        first, *others = _causes(list(gaps.values()))[:3]
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
            found="; ".join(text for text in (reasons, _on_numbers(numbers)) if text),
            related=related,
        )
    ]


def _causes(gaps: list[Gap]) -> list[Gap]:
    """Without the operators that stayed closed only because others did."""
    return [gap for gap in gaps if gap.reason not in CONSEQUENCES] or gaps


def _gap(capture: Capture, gap: Gap, outcome: Outcome, sources: Sources) -> Finding:
    graph = _graph(capture, gap.where)
    span = sources.place(graph, graph.nodes[gap.where.node]) if gap.where.node >= 0 else None
    names = outcome.failing
    resting = f"{', '.join(names[:4])} {'rests' if len(names) == 1 else 'rest'}"
    return Finding(
        rule="unsupported-operator",
        headline=f"{operation(gap.op)} {_why_closed(gap)}, and {resting} on it",
        span=span or capture.check.span,
        where=gap.where,
    )


def _on_numbers(numbers: Confirmation | None) -> str:
    """What running both programs said, where it decided nothing."""
    if numbers is None:
        return ""
    if numbers.status == "equal":
        return f"no difference in {numbers.draws} runs on random numbers"
    return f"no run on numbers: {numbers.reason}" if numbers.reason else ""


def _why_closed(gap: Gap) -> str:
    if gap.reason == f"no rule for {gap.op}":
        return UNKNOWN_OPERATOR
    return f"is not understood here ({gap.reason})"
