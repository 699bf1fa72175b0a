"""What an edit of the graphs is as text, at one place of a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.ops import aten
from graphguard.refine.evaluation.exposed import ROUNDED
from graphguard.repair.drafting.gradient_source import reduced_gradient
from graphguard.repair.drafting.offset_source import offset_drafts, starts, written_further
from graphguard.repair.graph.alignment import Position
from graphguard.repair.graph.edits import (
    Accumulate,
    AddAfterReduction,
    Bypass,
    ChangeCall,
    InsertCall,
    InsertGather,
    InsertReduction,
    Mask,
    MoveDiagonal,
    MoveReduction,
    MoveSlice,
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
from graphguard.repair.graph.meanings import (
    Averaging,
    Called,
    Chain,
    CountedTargets,
    Filling,
    Joining,
    Masking,
    Offset,
    Regrouping,
    Renaming,
    Rescaling,
    Sending,
    Squaring,
    Term,
    Turning,
    Unapplied,
    Writing,
)
from graphguard.repair.operators.chains import chain_added
from graphguard.repair.operators.guided_source import as_specified, guided_drafts
from graphguard.repair.operators.lacking import term_added
from graphguard.repair.operators.parameters import other_module
from graphguard.repair.operators.siblings_source import called_alike, exchanged_alike
from graphguard.repair.operators.unapplied import computed_first
from graphguard.repair.scales.accumulation import reduced_behind_loop
from graphguard.repair.scales.counted_targets import over_all_targets
from graphguard.repair.scales.means import averaged, is_count
from graphguard.repair.scales.norms import norm_of_all, squares_added
from graphguard.repair.scales.rescaled import multiplied
from graphguard.repair.shards import triangles
from graphguard.repair.shards.attention import causal_from
from graphguard.repair.shards.turned import in_order
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program, is_number
from graphguard.repair.text.vocabulary import group_expressions, size_expressions
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.writing import gradients, idioms, plans, removal, source
from graphguard.repair.writing.dtensor_source import partial_instead, sharded_instead, whole_instead
from graphguard.repair.writing.fill_source import other_fill
from graphguard.repair.writing.gather_source import gathered as gathered_parts
from graphguard.repair.writing.group_source import other_groups
from graphguard.repair.writing.join_source import join_along
from graphguard.repair.writing.source import Draft
from graphguard.repair.writing.widening import widened


def drafts_at(
    capture: Capture, guess: Hypothesis, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """What the edit of a guess is as text at a place."""
    edit = guess.edit
    if is_guided(guess):
        yield from guided_drafts(capture, edit, rank, program, span, sources)  # type: ignore[arg-type]
    elif isinstance(edit, InsertReduction) and guess.site.node.phase == "backward":
        yield from reduced_gradient(capture, guess, program, span, sources)
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
        for each in (program, *(other for other in sources.programs() if other.file != program.file)):
            yield from source.rank_in_group(each, edit.axis)
    elif isinstance(edit, SetArgument):
        yield from _arguments(capture, edit, rank, program, span)
    elif isinstance(edit, AddAfterReduction):
        learned = any(name.startswith("grad(") for name in capture.ranks[rank].outputs)
        forms = ["{}", *(gradients.reducing_forms(program, span) if learned else ())]
        for reduction in _in_function(capture, rank, edit.reduction, program, span, sources):
            yield from source.add_after_reduction(program, span, reduction, forms)
    else:
        yield from _moved(capture, edit, rank, program, span, sources)


def _sizes_of_last(
    capture: Capture, edit: SetArgument, rank: int, program: Program, call: ast.expr | None
) -> list[str]:
    """Texts for the number of ranks of a broadcast, where the one that is to send is the last of them."""
    group = capture.ranks[rank].nodes[edit.position[rank]].args[2]
    if call is None or not isinstance(group, tuple) or len(group) == 1 or edit.values[rank] != group[-1]:
        return []
    return size_expressions(program, call, Fraction(len(group)), capture)


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
        sizes = _sizes_of_last(capture, edit, rank, program, call)
        yield from source.change_sender(program, span, edit.values[rank], sizes)
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
    others = sources.programs()
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
        length = graph.types[node.outs[0]].shape[dim] if isinstance(dim, int) and node.op != aten.select.int else 1
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
    match edit.means:
        case Filling(number, needed):
            yield from other_fill(program, span, number, needed)
        case Renaming():
            yield from other_module(program, span, edit.means)
        case Joining(dim):
            yield from join_along(program, span, dim)
            yield from sharded_instead(program, span, dim)
        case Regrouping():
            yield from other_groups(program, span, edit.means, capture)
        case Turning():
            yield from in_order(program, span, edit.means, capture)
        case Masking():
            yield from _masked(program, span, edit.means, sources)
        case Sending() | Called() | Rescaling() | Unapplied() | Chain():
            yield from _as_elsewhere(capture, edit.means, program, span, sources)
        case Term():
            yield from term_added(capture, edit.means, rank, program, span, sources)
        case Averaging() | Squaring() | CountedTargets():
            yield from _other_means(capture, edit, edit.means, rank, program, span)
        case Writing(offset, further):
            yield from () if further is None else written_further(program, span, *further)
            yield from () if offset is None else offset_drafts(capture, offset, rank, program, span, sources)
        case Offset():
            yield from offset_drafts(capture, edit.means, rank, program, span, sources)


def _as_elsewhere(
    capture: Capture,
    meaning: Sending | Called | Rescaling | Unapplied | Chain,
    program: Program,
    span: Span,
    sources: Sources,
) -> Iterator[Draft]:
    """What is computed of another tensor of the program, or of the specification's, is computed here, too."""
    match meaning:
        case Sending():
            return exchanged_alike(capture, meaning, program, span, sources)
        case Called():
            return called_alike(capture, meaning, program, span, sources)
        case Rescaling():
            return multiplied(program, span, meaning, sources)
        case Unapplied(written):
            return computed_first(program, span, written, sources)
        case Chain(spans):
            return chain_added(program, span, spans, sources)


def _other_means(
    capture: Capture,
    edit: OtherCalls,
    meaning: Averaging | Squaring | CountedTargets,
    rank: int,
    program: Program,
    span: Span,
) -> Iterator[Draft]:
    """What is summed over ranks is another thing: a count, squares, what all targets give."""
    match meaning:
        case Averaging(axis):
            return averaged(program, span, axis, capture, is_count(capture, edit, rank))
        case Squaring(rooted, axis):
            return norm_of_all(program, span, axis, capture) if axis else squares_added(program, span, rooted)
        case CountedTargets():
            return over_all_targets(program, span, meaning, capture)


def _masked(program: Program, span: Span, masking: Masking, sources: Sources) -> Iterator[Draft]:
    if masking.axis:
        return causal_from(program, span, masking)
    return as_specified(program, span, masking.written, sources)


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
    for place in sources.places(capture.ranks[rank], capture.ranks[rank].nodes[position[rank]]):
        if place.file == span.file and program.enclosing_function(place) is function:
            yield place
