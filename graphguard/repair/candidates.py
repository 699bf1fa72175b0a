"""From a repair of the graphs to edited sources worth tracing, best first."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.ir import Capture, Node, Span, Var
from graphguard.refine.exposed import ROUNDED
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Location
from graphguard.repair import gradients, idioms, plans, removal, source, triangles
from graphguard.repair.accumulation import reduced_behind_loop
from graphguard.repair.alignment import Position
from graphguard.repair.alike import EVERYTHING
from graphguard.repair.applied import apart, applied, renamed
from graphguard.repair.asked import forward_place
from graphguard.repair.attention import causal_from
from graphguard.repair.bypassed import through_wrapper
from graphguard.repair.chains import chain_added
from graphguard.repair.counted_targets import over_all_targets
from graphguard.repair.dead import dead_reduction, rearranged_outputs, use_result
from graphguard.repair.diagnosis import Diagnosis
from graphguard.repair.dtensor_source import partial_instead, sharded_instead, whole_instead
from graphguard.repair.edits import (
    Accumulate,
    AddAfterReduction,
    BiasAfterReduction,
    Bypass,
    ChangeCall,
    InsertCall,
    InsertGather,
    InsertReduction,
    Mask,
    MoveDiagonal,
    MoveReduction,
    MoveSlice,
    Offset,
    OtherCalls,
    OtherPart,
    OwnPlace,
    ReduceToAll,
    Reread,
    Scale,
    SetArgument,
    Shift,
    SwapTensors,
    Tensors,
)
from graphguard.repair.fill_source import other_fill
from graphguard.repair.frames import Read, Sources
from graphguard.repair.gather_source import gathered as gathered_parts
from graphguard.repair.gathers import differentiable
from graphguard.repair.group_source import other_groups
from graphguard.repair.guided_source import as_specified, guided_drafts
from graphguard.repair.hypotheses import Hypothesis
from graphguard.repair.join_source import join_along
from graphguard.repair.losses import passed_losses, scaled_losses
from graphguard.repair.lost_gradients import gathered, switched_on
from graphguard.repair.means import averaged, is_count
from graphguard.repair.meeting import meeting_place
from graphguard.repair.messages import factor_text
from graphguard.repair.neighbours import SCALING
from graphguard.repair.norms import squares_added
from graphguard.repair.offset_source import offset_drafts, starts, written_further
from graphguard.repair.packed_source import cut_by_parts
from graphguard.repair.parameters import other_module
from graphguard.repair.passed import given_instead, passed
from graphguard.repair.program import Program, is_number
from graphguard.repair.siblings_source import called_alike
from graphguard.repair.source import Draft
from graphguard.repair.stopped import attached
from graphguard.repair.turned import in_order
from graphguard.repair.vocabulary import group_expressions, size_expressions
from graphguard.repair.widening import widened
from graphguard.report.diagnostics import Fix, TextEdit

_REDUCES = "reduce the gradient of "  # what the titles of such drafts begin with
ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fix that is not proved yet, and the texts of the files after it; ``headline`` says what is wrong where it is another thing than was found first."""

    fix: Fix
    texts: dict[str, str]
    headline: str = ""


def candidates(
    capture: Capture, diagnosis: Diagnosis, index: int, read: Read, before: tuple[TextEdit, ...] = ()
) -> list[Candidate]:
    """Edited sources for a finding: first for the repair that was confirmed, then for those that mend as much.

    ``before`` are the edits of other findings' fixes, which the texts have as well.
    """
    repair, sources = diagnosis.repairs[index], Sources.of(capture, read)
    if repair is None:
        return _by_place(diagnosis.findings[index].span, sources, before)
    wrapped = through_wrapper(capture, repair, sources) if not before else ()
    capture = repair.before
    found = {each.fix.edits: each for each in _of_losses(capture, diagnosis, index, sources, before)}
    for each in _of_passes(capture, repair.hypothesis, sources, before):
        found.setdefault(each.fix.edits, each)
    for draft in wrapped:
        if (texts := applied(draft.edits, sources)) is not None:
            found[draft.edits] = Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts)
    for guess in (repair.hypothesis, *repair.alternatives):
        for place, draft in named_first(_drafts(capture, guess, sources), diagnosis.findings[index]):
            draft = renamed(draft, before)
            texts = applied((*before, *draft.edits), sources) if apart(before, draft.edits) else None
            if texts is not None and draft.edits not in found:
                moved = _bytes(capture, guess)
                told = (draft.place or place) if guess is repair.hypothesis else None
                fix = Fix(draft.title, draft.edits, proved=False, bytes_moved=moved, place=told)
                found[draft.edits] = Candidate(fix, texts)
    return list(found.values())


def named_first(drafts: Iterable[tuple[Span, Draft]], finding: Finding) -> list[tuple[Span, Draft]]:
    """Drafts that reduce the gradient of another tensor than the one that was found come last: the call around it gives another."""
    named, other = f"{_REDUCES}{finding.tensor} ", _REDUCES if finding.tensor else "\n"
    return sorted(drafts, key=lambda row: row[1].title.startswith(other) and not row[1].title.startswith(named))


def _of_losses(
    capture: Capture, diagnosis: Diagnosis, index: int, sources: Sources, before: tuple[TextEdit, ...]
) -> Iterator[Candidate]:
    """Scaled losses, where all that is wrong is wrong by the same factor and several findings say so."""
    alike = diagnosis.findings[index].alike
    if before or not alike.startswith(EVERYTHING) or sum(other.alike == alike for other in diagnosis.findings) < 2:
        return
    factor = 1 / Fraction(alike.removeprefix(EVERYTHING))
    for file in sources.project():
        program = sources.program(file)
        for draft in scaled_losses(program, factor, capture) if program is not None else ():
            if (texts := applied(draft.edits, sources)) is not None:
                name = sources.tensor_at(draft.place)
                told = f"'{name}' is {factor_text(1 / factor, capture)} times what the specification computes, and so is all that is computed of it"
                yield Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts, told)


def _of_passes(
    capture: Capture, guess: Hypothesis, sources: Sources, before: tuple[TextEdit, ...]
) -> Iterator[Candidate]:
    """Scaled losses of a loop, where a gradient is so many times too large as the loop is passed."""
    if not isinstance(guess.edit, Scale) or guess.edit.factor.numerator != 1 or guess.edit.factor == 1:
        return
    times = guess.edit.factor.denominator
    graph = capture.ranks[min(guess.site.position)]

    def passes(place: Span) -> int:
        stacks = [graph.stack_of(node.stack) for node in graph.nodes if node.phase == "forward" and node.stack >= 0]
        made = Counter(stack for stack in stacks if any(frame.span == place for frame in stack))
        return min(made.values(), default=0)

    for file in sources.project():
        program = sources.program(file)
        for draft in passed_losses(program, times, passes, capture) if program is not None else ():
            edits = (*before, *draft.edits)
            texts = applied(edits, sources) if apart(before, draft.edits) else None
            if texts is not None:
                name = sources.tensor_at(draft.place)
                told = (
                    f"'{name}' is that of one of {times} passes of the loop, which are added up where their mean is needed:"
                    f" what comes of it is {times} times too large"
                )
                yield Candidate(Fix(draft.title, draft.edits, proved=False, place=draft.place), texts, told)


def _by_place(span: Span | None, sources: Sources, before: tuple[TextEdit, ...]) -> list[Candidate]:
    """Edits that the place alone suggests, where no edit of the graphs was confirmed."""
    program = sources.program(span.file) if span is not None else None
    found = []
    drafts = (
        (
            *attached(program, span),
            *differentiable(program, span),
            *switched_on(program, span),
            *cut_by_parts(program, span),
        )
        if program is not None and span is not None
        else ()
    )
    for draft in drafts:
        texts = applied((*before, *draft.edits), sources) if apart(before, draft.edits) else None
        if texts is not None:
            found.append(Candidate(Fix(draft.title, draft.edits, proved=False, place=span), texts))
    return found


def _drafts(capture: Capture, guess: Hypothesis, sources: Sources) -> Iterator[tuple[Span, Draft]]:
    """Drafts at the primary place of a guess, then at the other frames of the project."""
    rank = min(guess.site.position)
    graph = capture.ranks[rank]
    dead = dead_reduction(capture, rank, guess.site.node) if isinstance(guess.edit, InsertReduction) else None
    unused = None if dead is None else sources.place(graph, dead)
    if dead is not None and unused is not None:
        for span in _places(capture, rank, dead, sources):
            program = sources.program(span.file)
            if program is not None:
                yield from ((unused, draft) for draft in use_result(program, span))
    numbers = sources.numbers(graph, guess.site.node) if isinstance(guess.edit, Scale | MoveSlice | Bypass) else []
    places = _shared(capture, guess, rank, _places(capture, rank, guess.site.node, sources), sources)
    if (within := forward_place(graph, guess.site.node, guess.edit, sources)) is not None:
        places = [within, *(place for place in places if place != within)]
    if guess.rule == "gradient-not-reduced" and (gather := gathered(capture, _where(guess), sources)) is not None:
        program = sources.program(gather.file)
        yield from ((gather, draft) for draft in differentiable(program, gather)) if program is not None else ()
    if guess.own_pass and (called := sources.forward_call(graph, guess.site.node)) is not None:
        program = sources.program(called.file)
        others = [other for file in sources.project() if (other := sources.program(file)) is not None]
        yield from ((called, draft) for draft in idioms.flip_arguments(program, called, others)) if program else ()
        places = [called, *(place for place in places if place != called)]
    if (met := meeting_place(capture, guess.edit, sources)) is not None:
        program = sources.program(met.file)
        assert isinstance(guess.edit, InsertReduction)
        yield from (
            ((met, draft) for draft in source.insert_reduction(program, met, guess.edit, capture))
            if program is not None
            else ()
        )
    yield from _passed(capture, guess, rank, sources)
    for span in [*(numbers if guess.others else ()), *places, *numbers]:
        program = sources.program(span.file)
        if program is not None:
            for draft in _at(capture, guess, rank, program, span, sources):
                yield unused or span, draft if unused is None else replace(draft, place=unused)


def _passed(capture: Capture, guess: Hypothesis, rank: int, sources: Sources) -> Iterator[tuple[Span, Draft]]:
    """Drafts for a factor that a function is given, where it is given."""
    node, edit = guess.site.node, guess.edit
    if node.op not in SCALING or not isinstance(edit, Bypass | Scale):
        return
    for span, neutral in passed(capture.ranks[rank], node, sources):
        program = sources.program(span.file)
        if program is None:
            continue
        if isinstance(edit, Bypass):
            yield from ((span, draft) for draft in given_instead(program, span, neutral))
        else:
            value = program.expression(span)
            sizes = size_expressions(program, value, edit.factor, capture) if value is not None else []
            for by in (1 / edit.factor, edit.factor) if ".div" in node.op else (edit.factor, 1 / edit.factor):
                yield from ((span, replace(draft, place=span)) for draft in source.scale(program, span, by, sizes))


def _where(guess: Hypothesis) -> Location:
    """The node of the first rank that a guess is about."""
    rank = min(guess.site.position)
    return Location(rank, guess.site.position[rank])


def _shared(capture: Capture, guess: Hypothesis, rank: int, places: list[Span], sources: Sources) -> list[Span]:
    """Of the places of a guess those through which all that it changes goes: a change at another one makes only some of its edits."""
    if not guess.others or not isinstance(guess.edit, InsertReduction | AddAfterReduction | BiasAfterReduction):
        return places
    graph = capture.ranks[rank]
    producers = graph.producers()
    for other in guess.others:
        match other:
            case InsertReduction(tensors=tensors):
                node = producers.get(tensors[rank]) if rank in tensors else None
            case AddAfterReduction(addition=position) | BiasAfterReduction(product=position):
                node = position.get(rank)
            case _:
                node = None
        if node is None:
            return places
        mine = _places(capture, rank, graph.nodes[node], sources)
        places = [place for place in places if place in mine] or places
    return places


def _places(capture: Capture, rank: int, node: Node, sources: Sources) -> list[Span]:
    graph = capture.ranks[rank]
    first = sources.place(graph, node)
    spans = [] if first is None else [first]
    forward = graph.stack_of(node.forward) if node.phase == "backward" else ()
    frames = (*sources.frames(graph, node), *(each for each in forward if sources.in_project(each.span.file)))
    return list(dict.fromkeys([*spans, *(frame.span for frame in frames)]))


def _at(
    capture: Capture, guess: Hypothesis, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    edit = guess.edit
    if is_guided(guess):
        yield from guided_drafts(capture, edit, rank, program, span, sources)  # type: ignore[arg-type]
    elif isinstance(edit, InsertReduction) and guess.site.node.phase == "backward":
        yield from _gradient(capture, guess, program, span, sources)
    elif isinstance(edit, InsertReduction):
        operand = _born(capture, edit.tensors, rank, sources) if guess.rule == "nonlinear-on-partial" else span
        if operand is not None and operand.file == span.file:
            yield from _reduced(capture, guess, program, operand, edit, sources)
    elif isinstance(edit, Bypass) and guess.site.node.op == ROUNDED:
        nodes = [edit.position[rank] for edit in guess.edits if isinstance(edit, Bypass) and rank in edit.position]
        yield from widened(program, capture.ranks[rank], nodes, sources)
    elif isinstance(edit, Bypass):
        yield from (
            removal.remove_call(program, span)
            if guess.rule == "extra-reduction"
            else removal.remove_factor(program, span)
        )
    elif isinstance(edit, InsertGather):
        yield from gathered_parts(program, span, edit, capture)
    elif isinstance(edit, Scale):
        yield from _scaled(capture, edit.factor, program, span)
    elif isinstance(edit, OwnPlace):
        others = (sources.program(file) for file in sources.project() if file != program.file)
        for each in (program, *others):
            yield from source.rank_in_group(each, edit.axis) if each is not None else ()
    elif isinstance(edit, SetArgument):
        yield from _arguments(capture, edit, rank, program, span)
    elif isinstance(edit, AddAfterReduction | BiasAfterReduction):
        learned = any(name.startswith("grad(") for name in capture.ranks[rank].outputs)
        forms = ["{}", *(gradients.reducing_forms(program, span) if learned else ())]
        for reduction in _in_function(capture, rank, edit.reduction, program, span, sources):
            yield from source.add_after_reduction(program, span, reduction, forms)
    else:
        yield from _moved(capture, edit, rank, program, span, sources)


def _scaled(capture: Capture, factor: Fraction, program: Program, span: Span) -> Iterator[Draft]:
    yield from source.divide_after(program, span, factor)
    augmented = program.augmented(span)
    if augmented is not None and isinstance(augmented.op, ast.Mult | ast.Div):
        by = factor if isinstance(augmented.op, ast.Mult) else 1 / factor
        sizes = size_expressions(program, augmented.value, by, capture)
        for draft in source.scale(program, program.span(augmented.value), by, sizes):
            verb, _, size = draft.title.partition(" by ")
            turned = {"multiply": "divide", "divide": "multiply"}[verb] if by != factor else verb
            yield replace(draft, title=f"{turned} by {size}")
        return
    value = program.expression(span)
    number = value is not None and is_number(program, value)
    sizes = size_expressions(program, value, factor, capture) if value is not None else []
    for by in (factor, 1 / factor) if number else (factor,):
        yield from source.scale(program, span, by, sizes)


def _arguments(capture: Capture, edit: SetArgument, rank: int, program: Program, span: Span) -> Iterator[Draft]:
    """Another argument of a collective, or of the joining of what it gave."""
    if edit.what == "row":
        return  # another number on every rank: no text of the file says it
    call = program.expression(span)
    if edit.what in {"dim", "order", "parts"}:
        yield from source.change_concatenation(program, span, edit.what, edit.values[rank])
        if edit.what == "dim":
            yield from sharded_instead(program, span, edit.values[rank])
    elif edit.what == "src":
        yield from source.change_sender(program, span, edit.values[rank])
    elif edit.what != "reduce":
        yield from source.change_group(program, span, edit.what, capture)
    elif isinstance(call, ast.Call) and idioms.functional_call(program, call):
        yield from idioms.change_functional(program, call, str(edit.values[rank]))
    else:
        yield from source.change_reduce(program, span, str(edit.values[rank]))


def _reduced(
    capture: Capture, guess: Hypothesis, program: Program, span: Span, edit: InsertReduction, sources: Sources
) -> Iterator[Draft]:
    """A reduction in the idioms of the project: a flag, a plan, a helper, else the plain collective."""
    value = program.expression(span)
    others = [other for file in sources.project() if (other := sources.program(file)) is not None]
    if edit.reduce != "sum":
        yield from source.insert_reduction(program, span, edit, capture)
        return
    yield from idioms.flip_flags(program, span, others)
    for other in others:
        yield from plans.output_layouts(other, guess.site.node.module, capture.check.span)
    if value is not None:
        yield from idioms.reduced_by_helper(program, value, edit.axis, group_expressions(program, value, edit.axis))
    yield from partial_instead(program, span)
    yield from reduced_behind_loop(program, span, edit, capture)
    yield from whole_instead(program, span)
    yield from source.insert_reduction(program, span, edit, capture)


def is_guided(guess: Hypothesis) -> bool:
    """Whether the specification suggested an edit."""
    match guess.edit:
        case (
            InsertCall() | ChangeCall() | SwapTensors() | SetArgument(what="operand") | Reread() | Accumulate() | Mask()
        ):
            return True
        case Bypass():
            return guess.rule == "wrong-relation"
    return False


def _moved(
    capture: Capture, edit: object, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    graph = capture.ranks[rank]
    if isinstance(edit, MoveReduction):
        operand = _born(capture, edit.tensors, rank, sources)
        for reduction in _in_function(capture, rank, edit.reduction, program, span, sources):
            if operand is not None:
                yield from removal.move_reduction(program, operand, reduction, edit, capture)
    elif isinstance(edit, MoveSlice):
        node = graph.nodes[edit.position[rank]]
        dim = node.args[1] if len(node.args) > 1 else 0
        length = graph.types[node.outs[0]].shape[dim] if isinstance(dim, int) and node.op != "aten.select.int" else 1
        if isinstance(dim, int) and isinstance(length, int):
            yield from source.move_slice(program, span, edit, length, dim)
    elif isinstance(edit, Shift):
        length = max(edit.offsets.values()) // max(1, capture.mesh[edit.axis] - 1)
        value = program.expression(span)
        places = starts(program, value, Offset(edit.axis, length, "number")) if value is not None else ()
        yield from source.shift(program, span, edit.axis, places)
    elif isinstance(edit, MoveDiagonal):
        yield from triangles.move_diagonal(program, span, edit)
    elif isinstance(edit, ReduceToAll):
        yield from source.reduce_to_all(program, span)
    elif isinstance(edit, OtherPart):
        yield from source.other_part(program, span, edit.axis)
    elif isinstance(edit, OtherCalls):
        yield from _other_calls(capture, edit, rank, program, span, sources)


def _other_calls(
    capture: Capture, edit: OtherCalls, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """What other calls mean for the text, where that is known."""
    if edit.filled is not None:
        yield from other_fill(program, span, *edit.filled)
    if edit.renamed is not None:
        yield from other_module(program, span, edit.renamed)
    if edit.joined is not None:
        yield from join_along(program, span, edit.joined)
        yield from sharded_instead(program, span, edit.joined)
    if edit.regrouped is not None:
        yield from other_groups(program, span, edit.regrouped, capture)
    if edit.turned is not None:
        yield from in_order(program, span, edit.turned, capture)
    if edit.masked is not None and edit.masked.axis:
        yield from causal_from(program, span, edit.masked)
    elif edit.masked is not None:
        yield from as_specified(program, span, edit.masked.written, sources)
    if edit.averaged:
        yield from averaged(program, span, edit.averaged, capture, is_count(capture, edit, rank))
    if edit.squared:
        yield from squares_added(program, span, edit.squared == "rooted")
    if edit.chain:
        yield from chain_added(program, span, edit.chain, sources)
    if edit.targets is not None:
        yield from over_all_targets(program, span, edit.targets, capture)
    yield from called_alike(capture, edit, program, span, sources)
    if edit.moved is not None:
        yield from written_further(program, span, *edit.moved)
    if edit.offset is not None:
        yield from offset_drafts(capture, edit.offset, rank, program, span, sources)


def _born(capture: Capture, tensors: Tensors, rank: int, sources: Sources) -> Span | None:
    """Where a tensor is computed."""
    graph = capture.ranks[rank]
    born = graph.producers().get(tensors[rank])
    return sources.place(graph, graph.nodes[born]) if born is not None else None


def _in_function(
    capture: Capture, rank: int, position: Position, program: Program, span: Span, sources: Sources
) -> Iterator[Span]:
    """The places of a node that lie in the same function as a span."""
    function = program.enclosing_function(span)
    for place in _places(capture, rank, capture.ranks[rank].nodes[position[rank]], sources):
        if place.file == span.file and program.enclosing_function(place) is function:
            yield place


def _gradient(capture: Capture, guess: Hypothesis, program: Program, span: Span, sources: Sources) -> Iterator[Draft]:
    """Reduce a gradient where the program asked for it, in the backward of a function, or on its way back to what it is of."""
    call, node, edit = program.expression(span), guess.site.node, guess.edit
    if call is None or not isinstance(edit, InsertReduction):
        return
    axis = edit.axis
    taken = gradients.taken(program, span)
    if taken is not None:
        yield from source.insert_reduction(program, taken, edit, capture, "gradient")
    groups = group_expressions(program, call, axis)
    if capture.mesh[axis] == capture.world_size:
        groups.append("")
    if node.stack >= 0:  # the program itself asked for its gradients
        yield from gradients.after_backward(program, span, axis, groups, _read_as(capture, guess, sources))
        yield from gradients.reduced_results(program, span, axis, groups)
    others = [other for file in sources.project() if (other := sources.program(file)) is not None]
    yield from gradients.in_backward(program, span, axis, others)
    yield from plans.sequence_parallel(program, node.module, capture.check.span)
    for name in _parameters(capture, guess):
        yield from gradients.reduced_parameter(program, call, name, axis, groups)
    if _within(capture, guess, program, span, sources):
        yield from gradients.reduced_result(program, span, axis, groups)
    yield from gradients.reduced_operand(program, span, axis, groups)
    if node.stack >= 0 and taken is None:  # a hook, or the backward of a function: its own value can be reduced
        yield from source.insert_reduction(program, span, edit, capture)


def _parameters(capture: Capture, guess: Hypothesis) -> list[str]:
    """The parameters whose gradient a guess is about, rearranged at most."""
    rank = min(guess.site.position)
    graph, tensors = capture.ranks[rank], getattr(guess.edit, "tensors", {})
    names = {var: name for var, name in rearranged_outputs(graph) if name.startswith("grad(")}
    return [name.removeprefix("grad(").removesuffix(")") for var, name in names.items() if var == tensors.get(rank)]


def _read_as(capture: Capture, guess: Hypothesis, sources: Sources) -> set[str]:
    """The names in the expressions that compute with the tensor of a guess."""
    rank = min(guess.site.position)
    graph, tensors = capture.ranks[rank], getattr(guess.edit, "tensors", {})
    var: Var | None = tensors.get(rank)
    places = (sources.place(graph, node) for node in graph.nodes if var is not None and var in node.operands())
    values = (
        program.expression(place)
        for place in places
        if place is not None and (program := sources.program(place.file)) is not None
    )
    return {node.id for value in values if value is not None for node in ast.walk(value) if isinstance(node, ast.Name)}


def _within(capture: Capture, guess: Hypothesis, program: Program, span: Span, sources: Sources) -> bool:
    """Whether the forward call of a gradient lies further in than a place: what the call there gives may be what to reduce."""
    frames = sources.frames(capture.ranks[min(guess.site.position)], guess.site.node)
    return bool(frames) and frames[0].span != span and isinstance(program.expression(span), ast.Call)


def _bytes(capture: Capture, guess: Hypothesis) -> int:
    """Bytes that a repair sends per rank: the size of the tensor that it reduces."""
    if not isinstance(guess.edit, InsertReduction):
        return 0
    rank, var = next(iter(guess.edit.tensors.items()))
    kind = capture.ranks[rank].types[var]
    sizes = [size for size in kind.shape if isinstance(size, int)]
    return math.prod(sizes) * ELEMENT_BYTES.get(kind.dtype, 4)
