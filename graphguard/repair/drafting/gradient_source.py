"""Reductions of gradients as text: where a program asked for a gradient, in the backward of a function, or on its way back to what it is of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, Span
from graphguard.repair.backward.asked import is_computed
from graphguard.repair.drafting.gradient_loops import in_a_loop, unreduced
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import group_expressions
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.writing import gradients, plans, source
from graphguard.repair.writing.dead import rearranged_outputs
from graphguard.repair.writing.source import Draft


def reduced_gradient(
    capture: Capture, guess: Hypothesis, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
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
    own = is_computed(capture.ranks[min(guess.site.position)], node, span, sources)
    if own:
        yield from source.insert_reduction(program, span, edit, capture)
    elif node.stack >= 0:  # the program itself asked for its gradients
        what = unreduced(capture, guess)
        is_shared = capture.spec is not None and any(
            (frame.span.file, frame.span.line) == (span.file, span.line) for frame in capture.spec.frames
        )
        if what is not None:
            yield from in_a_loop(
                program, span, axis, groups, what, _readers(capture, guess, sources), is_shared=is_shared
            )
        yield from gradients.after_backward(program, span, axis, groups, _read_as(capture, guess, sources))
        yield from gradients.reduced_results(program, span, axis, groups)
    yield from gradients.in_backward(program, span, axis, sources.programs())
    yield from plans.sequence_parallel(program, node.module, capture.check.span)
    for name in _parameters(capture, guess):
        yield from gradients.reduced_parameter(program, call, name, axis, groups)
    if _within(capture, guess, program, span, sources):
        yield from gradients.reduced_result(program, span, axis, groups)
    yield from gradients.reduced_operand(program, span, axis, groups)
    if node.stack >= 0 and taken is None and not own:  # in a hook its own value can be reduced
        yield from source.insert_reduction(program, span, edit, capture)


def _parameters(capture: Capture, guess: Hypothesis) -> list[str]:
    """The parameters whose gradient a guess is about, rearranged at most."""
    rank = min(guess.site.position)
    graph, tensors = capture.ranks[rank], getattr(guess.edit, "tensors", {})
    names = {var: name for var, name in rearranged_outputs(graph) if name.startswith("grad(")}
    return [name.removeprefix("grad(").removesuffix(")") for var, name in names.items() if var == tensors.get(rank)]


def _read_as(capture: Capture, guess: Hypothesis, sources: Sources) -> set[str]:
    """The names in the expressions that compute with the tensor of a guess."""
    values = (
        program.expression(place)
        for place in _readers(capture, replace(guess, others=()), sources)
        if (program := sources.program(place.file)) is not None
    )
    return {node.id for value in values if value is not None for node in ast.walk(value) if isinstance(node, ast.Name)}


def _readers(capture: Capture, guess: Hypothesis, sources: Sources) -> list[Span]:
    """Where the tensors of a guess are read."""
    rank = min(guess.site.position)
    graph, tensors = capture.ranks[rank], (getattr(edit, "tensors", {}) for edit in guess.edits)
    read = {each[rank] for each in tensors if rank in each}
    places = (sources.place(graph, node) for node in graph.nodes if not read.isdisjoint(node.reads))
    return [place for place in places if place is not None]


def _within(capture: Capture, guess: Hypothesis, program: Program, span: Span, sources: Sources) -> bool:
    """Whether the forward call of a gradient lies further in than a place: what the call there gives may be what to reduce."""
    frames = sources.frames(capture.ranks[min(guess.site.position)], guess.site.node)
    return bool(frames) and frames[0].span != span and isinstance(program.expression(span), ast.Call)
