"""The finding of a defect that no edit mends: the likeliest place, both frontiers, and the factor where numbers show one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Node, Span
from graphguard.ir.kept import left_alone
from graphguard.refine.finding import Finding, Related
from graphguard.refine.outcome import Location
from graphguard.repair.backward.lost_gradients import gathered, switch
from graphguard.repair.backward.stopped import detached_by
from graphguard.repair.findings.messages import asked_for, gradients_unreduced
from graphguard.repair.findings.repaired import own_number
from graphguard.repair.findings.suspects import CUT_GATHER, NOT_PASSED_ON, STOPPED, SWITCHED, UNREAD, Suspect, suspect
from graphguard.repair.findings.term_words import terms_text
from graphguard.repair.findings.unchanged import made_by_specification
from graphguard.repair.findings.undecided import causes, graph_at, why_closed
from graphguard.repair.graph.slices import JOINING, LAYOUT, partial_axes
from graphguard.repair.numbers.weighing import OF_THE_SUM
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.reads import is_moved, reads_text
from graphguard.repair.text.unread_calls import called_in_vain
from graphguard.repair.trying.alike import common_factor
from graphguard.repair.trying.search import Search
from graphguard.repair.writing.gathers import without_gradient
from graphguard.repair.writing.widening import rounding_text
from graphguard.repair.writing.words import factor_text, listed, operation, spoiled_text

_VAGUE = frozenset({"wrong-relation", "wrong-shard", "wrong-scale"})
_LOST = frozenset({STOPPED, UNREAD, NOT_PASSED_ON, CUT_GATHER, SWITCHED})


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What is told where no edit that we know of mends what is broken.

    ``is_vague`` says that it is no more than where the programs part, ``is_unread`` that it is a gradient which nothing reads: a program that reads the wrong one leaves one unread as well.
    """

    finding: Finding
    is_vague: bool
    is_unread: bool


def unexplained(found: Search, sources: Sources, numbers: Confirmation) -> Unexplained:
    """Broken, but no edit that we know of mends it: both frontiers, and the factor where numbers show one."""
    capture = found.capture
    outcome = found.proof.outcome
    promise = next(promise for promise in outcome.promises if promise.name in found.left)
    span, suspected = _placed(capture, suspect(found, promise.name, sources), sources)
    rule = suspected.rule
    factor = Fraction((numbers.ratios or {}).get(promise.name, 1)).limit_denominator(1 << 10)
    what = sources.tensor_at(span) or promise.name
    if suspected.summed is not None:
        span = own_number(_on_all_ranks(found, suspected.where), span, sources) or span
    asks = rule in ("wrong-relation", "wrong-shard")
    difference = found.proof.difference(promise.name, _first_wrong(numbers, promise.name)) if asks else None
    untouched = _untouched(capture, promise.name)
    reads = reads_text(difference, promise.name, _leaf_names(found)) if difference is not None else ""
    if untouched:
        text = f"'{untouched}' stays as it was, and the specification writes into it"
    elif rule == "wrong-relation" and (axis := _unreduced_axis(found, promise.name)):
        rule, text = _left_partial(found, axis)
    elif rule == "wrong-relation" and factor != 1:
        rule, text = "wrong-scale", _scaled_text(found, promise.name, factor, numbers)
    elif difference is not None and reads:
        unsaid = (
            suspected.where is not None
            and suspected.meant is None
            and not suspected.reason
            and rule == "wrong-relation"
        )
        told = (
            f"'{what}' reads what the specification does not"
            if unsaid
            else _unexplained_text(rule, what, found, suspected, sources)
        )
        text = f"{told}: {reads}"
        rule = "wrong-shard" if is_moved(difference) else rule
    else:
        text = f"{_unexplained_text(rule, what, found, suspected, sources)}: {spoiled_text(found.left)}"
    related = [
        Related(place, _computed_here(capture, place))
        for location in ((suspected.meant,) if suspected.meant is not None else outcome.specification_frontier[:2])
        if (place := _specification_place(capture, location, sources)) is not None
    ]
    if untouched and (place := made_by_specification(capture, promise.name, sources)) is not None:
        related.append(Related(place, "the specification writes here"))
    related.append(Related(capture.check.span, "the check that fails"))
    vague = rule in _VAGUE and not untouched and (not suspected.reason or OF_THE_SUM in suspected.reason)
    vague |= rule == "dead-collective" and _is_read(capture, suspected)
    finding = Finding(
        rule=rule,
        headline=asked_for(what, text),
        span=span,
        needed=promise.needed,
        found=promise.told,
        tensor=what,
        promises=found.left,
        related=tuple(related),
        written_out=suspected.reason in _LOST,  # what an edit makes of a gradient is not known from the graphs
    )
    return Unexplained(finding, vague, suspected.reason == UNREAD)


def _computed_here(capture: Capture, place: Span) -> str:
    """What is said of a specification's place that no rank has the value of: ranks may run the same text."""
    if any(frame.span == place for graph in capture.ranks for frame in graph.frames):
        return "the ranks run this, too, on other values"
    return "the specification computes this, and the ranks do not"


def _on_all_ranks(found: Search, where: Location | None) -> Iterator[Node]:
    """What every rank calls at the place of a call of one."""
    number = None if where is None else found.alignment.number.get((where.graph, where.node))
    position = {} if number is None else found.alignment.positions[number]
    return (found.capture.ranks[rank].nodes[index] for rank, index in position.items())


def _is_read(capture: Capture, suspected: Suspect) -> bool:
    """Whether something is computed of what a call gives, though no promise may rest on it: more than parts that nothing reads."""
    if suspected.where is None:
        return False
    graph = graph_at(capture, suspected.where)
    held = set(graph.nodes[suspected.where.node].outs)
    for node in graph.nodes:
        if held.intersection(node.reads):
            if node.op not in LAYOUT | JOINING:
                return True
            held.update(node.outs)
    return False


def _first_wrong(numbers: Confirmation, name: str) -> tuple[int, ...]:
    """The first element of an output that numbers show to be wrong, where they compare the whole."""
    shown = numbers.counterexample
    return shown.index if shown is not None and shown.promise == name and shown.rank is None else ()


def _scaled_text(found: Search, name: str, factor: Fraction, numbers: Confirmation) -> str:
    """That what is left is a multiple of the specification's: all of it where numbers show one factor for all."""
    alike = common_factor(found.left, numbers.ratios or {}) == factor
    what = f"{listed(found.left, 4)} are each" if alike and len(found.left) > 1 else f"'{name}' is"
    return f"{what} {factor_text(factor, found.capture)} times what the specification computes"


def _untouched(capture: Capture, output: str) -> str:
    """The buffer or input that every rank leaves as it was, which an output stands for; empty for any other."""
    names = {left_alone(graph, output) for graph in capture.ranks}
    return (names.pop() or "") if len(names) == 1 else ""


def _placed(capture: Capture, suspected: Suspect, sources: Sources) -> tuple[Span | None, Suspect]:
    """Where to tell of what is suspected, and what: a gradient that is lost is told where the author gives it away."""
    if suspected.where is None:
        return None, suspected
    graph = graph_at(capture, suspected.where)
    span = _beside(capture, suspected, sources) or sources.place(graph, graph.nodes[suspected.where.node])
    if suspected.rule == "dead-collective":
        return called_in_vain(graph, graph.nodes[suspected.where.node], sources) or span, suspected
    if (cut := _cut_off(capture, suspected, span, sources)) is not None:
        return cut, replace(suspected, reason=suspected.reason.replace(UNREAD, NOT_PASSED_ON))
    return _switched(capture, suspected, sources) if suspected.reason == UNREAD else (span, suspected)


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


def _cut_off(capture: Capture, suspected: Suspect, span: Span | None, sources: Sources) -> Span | None:
    """Where the author cuts off a gradient that stops: a gather without a gradient, or a ``.detach()``."""
    program = sources.program(span.file) if span is not None and suspected.reason in (STOPPED, UNREAD) else None
    if program is None or span is None or suspected.where is None:
        return None
    if suspected.reason == UNREAD:
        return gathered(capture, suspected.where, sources)
    if (gather := without_gradient(capture, suspected.where, sources)) is not None:
        return gather
    call = detached_by(program, span)
    return None if call is None else program.span(call)


def _switched(capture: Capture, suspected: Suspect, sources: Sources) -> tuple[Span | None, Suspect]:
    """Where the reduction of gradients that nothing reads is switched off, else where they are asked for."""
    assert suspected.where is not None
    graph = graph_at(capture, suspected.where)
    node = graph.nodes[suspected.where.node]
    frames = (frame.span for frame in graph.stack_of(node.stack))
    asked = next((span for span in frames if sources.in_project(span.file)), None)
    off = switch(sources, asked)
    return off or asked or sources.place(graph, node), replace(suspected, reason=SWITCHED if off else UNREAD)


def _beside(capture: Capture, suspected: Suspect, sources: Sources) -> Span | None:
    """Where the function that reads a tensor makes it: a helper that gives it may serve other calls well."""
    if suspected.where is None or suspected.reader is None or suspected.where == suspected.reader:
        return None
    graph = graph_at(capture, suspected.where)
    reader = sources.place(graph, graph.nodes[suspected.reader.node])
    program = sources.program(reader.file) if reader is not None else None
    if reader is None or program is None:
        return None
    function = program.enclosing_function(reader)
    frames = (frame.span for frame in sources.frames(graph, graph.nodes[suspected.where.node]))
    inner = (span for span in frames if span.file == reader.file)
    return next((span for span in inner if program.enclosing_function(span) is function), None)


def _unexplained_text(rule: str, what: str, found: Search, suspected: Suspect, sources: Sources) -> str:
    where = suspected.where
    if where is None:
        return f"'{what}' is not what the specification computes"
    if suspected.meant is not None and not suspected.reason:
        meant = graph_at(found.capture, suspected.meant).nodes[suspected.meant.node]
        does = operation(meant.op).removeprefix("a ").removeprefix("the ")
        if suspected.where == suspected.reader:
            return f"'{what}' is computed from another tensor than the specification's {does}"
        return f"'{what}' is not what the specification's {does} reads"
    if suspected.summed is not None and (counted := terms_text(what, *suspected.summed, found, sources)):
        return counted
    if suspected.reason:
        return suspected.reason.format(what=what)
    graph = graph_at(found.capture, where)
    node = graph.nodes[where.node]
    does = operation(node.op)
    if rule == "dead-collective":
        kept = "reaches nothing that is compared" if _is_read(found.capture, suspected) else "is never used"
        return f"the result of this {does} {kept}"
    if rule == "lower-precision":
        return rounding_text(what, node, graph.types)
    if rule == "nonlinear-on-partial":
        return f"'{what}' is {does} of a partial sum, and {does} is not linear"
    if rule == "wrong-shard":
        return f"'{what}' joins the parts of the ranks in another way than the specification has them"
    if rule == "wrong-relation" and (gaps := causes(list(found.proof.outcome.gaps))):
        return (
            f"what is made of '{what}' is wrong, and cannot be followed: {operation(gaps[0].op)} {why_closed(gaps[0])}"
        )
    if computed := _only_frontier(found, sources):
        return f"'{what}' is not '{computed}', which the specification computes and the ranks do not"
    return f"'{what}' is the first value that the specification does not have, whole or in parts"


def _only_frontier(found: Search, sources: Sources) -> str:
    """The specification's expression that the ranks do not compute, where it is one."""
    places = {
        _specification_place(found.capture, location, sources)
        for location in found.proof.outcome.specification_frontier
    }
    return sources.tensor_at(places.pop()) if len(places) == 1 else ""


def _specification_place(capture: Capture, location: Location, sources: Sources) -> Span | None:
    graph = graph_at(capture, location)
    return sources.place(graph, graph.nodes[location.node])
