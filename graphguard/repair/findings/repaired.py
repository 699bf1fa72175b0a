"""The finding of a defect that a repair mends: what the repair undoes is what is wrong, where it goes is where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.ops import REDUCTIONS
from graphguard.refine.finding import Finding, Related
from graphguard.refine.found.naming import operator
from graphguard.repair.backward.anew import applied_for
from graphguard.repair.backward.asked import differentiated, forward_place, is_asked, is_computed
from graphguard.repair.backward.buffers import gradient_in
from graphguard.repair.drafting.gradient_loops import unreduced
from graphguard.repair.findings.messages import (
    asked_for,
    headline,
    held_before,
    is_asking,
    needed_and_found,
    unadded,
    unreduced_gradient,
)
from graphguard.repair.graph.edits import (
    Accumulate,
    Bypass,
    InsertReduction,
    Mask,
    OtherCalls,
    Reread,
    Scale,
    SetArgument,
    SwapTensors,
    group_of,
)
from graphguard.repair.graph.leaves import differentiated_leaf, gradient_ahead, leaf_behind
from graphguard.repair.graph.meanings import (
    Averaging,
    Called,
    Chain,
    Filling,
    Masking,
    Rescaling,
    Sending,
    Squaring,
    Term,
    Unapplied,
)
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.operators.chains import chain_name, chain_text
from graphguard.repair.operators.guided_source import exchanged_places, names_of
from graphguard.repair.operators.lacking import term_text
from graphguard.repair.operators.siblings_source import (
    called_names,
    called_place,
    sent_name,
    sibling_name,
    sibling_place,
)
from graphguard.repair.scales.accumulation import are_added_up
from graphguard.repair.scales.rescaled import factor_and_sibling
from graphguard.repair.shards.attention import SDPA, masking_text
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import definitions
from graphguard.repair.text.vocabulary import factor_name, passes_name
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.trying.trials import Repair
from graphguard.repair.writing.dead import dead_everywhere, dead_reduction, rearranged_outputs
from graphguard.repair.writing.fill_source import filled_at
from graphguard.repair.writing.meeting import meeting_place
from graphguard.repair.writing.words import Named, axis_of_group, factor_text, operation

FORWARD = "the forward call whose gradient this is"
ASKED = "the gradient is asked for here"


def repaired(capture: Capture, repair: Repair, sources: Sources) -> Finding:
    """What to say of a defect, in the program before its repair."""
    repair = replace(repair, hypothesis=_of_gradient(capture, repair.hypothesis))
    guess = repair.hypothesis
    site = guess.site
    rank = min(site.position)
    graph = capture.ranks[rank]
    within = forward_place(graph, site.node, guess.edit, sources)
    within = sources.forward_call(graph, site.node) if guess.own_pass else within
    met = meeting_place(capture, guess.edit, sources)
    span = _exchanged(capture, guess, rank, sources) or met or within or placed(guess, graph, sources)
    told = span if span != sources.place(graph, site.node) else sources.name_place(graph, site.node)
    name = _name(graph, guess, within or told, sources, repair.mends)
    if met is not None:
        name = sources.tensor_at(met)
    if isinstance(guess.edit, OtherCalls):
        span, name = _other_calls(capture, guess, guess.edit, name, sources)
    if (factor := _forward_factor(graph, guess, sources)) is not None:
        span, name = factor, sources.tensor_at(factor) or name
    if isinstance(guess.edit, Accumulate):
        name = _assigned_near(capture, guess, rank, guess.edit.tensors[rank], sources) or name
    by_hand = _computed_by_hand(graph, guess, span, name, sources)
    name = by_hand or name
    if guess.rule == "gradient-not-reduced" and (of := _parameters_asked_for(capture, guess)):
        name = of
    if isinstance(guess.edit, InsertReduction) and (dead := dead_reduction(capture, rank, site.node)) is not None:
        return _dropped(capture, repair, sources, dead, guess.edit, name)
    itself = met is not None or (bool(by_hand) and name == by_hand)
    needed, found = _relations(capture, repair, name, sources, itself)
    return Finding(
        rule=guess.rule,
        headline=_added_shards(capture, repair, name)
        or (unadded(guess.edit, name) if met is not None else "")
        or (unreduced_gradient(guess.edit, name) if itself and met is None else "")
        or _headline(capture, guess, name, span, sources),
        span=span,
        needed=needed,
        found=found,
        tensor=name,
        promises=repair.mends,
        related=tuple(_related(capture, graph, site.node, span, sources, repair)),
    )


def placed(guess: Hypothesis, graph: Graph, sources: Sources) -> Span | None:
    """The primary place of a guess: where a sum is missing, in a function that can know so."""
    if isinstance(guess.edit, InsertReduction) and guess.site.node.phase == "forward":
        return sources.knowing_place(graph, guess.site.node)
    return sources.place(graph, guess.site.node)


def _of_gradient(capture: Capture, guess: Hypothesis) -> Hypothesis:
    """What is guessed of a part of a buffer, told of the gradient that was added to it."""
    rank = min(guess.site.position)
    gradient = gradient_in(capture.ranks[rank], guess.site.node)
    if gradient is None or guess.rule != "missing-reduction":
        return guess
    return replace(guess, rule="gradient-not-reduced", site=replace(guess.site, node=gradient))


def _other_calls(
    capture: Capture, guess: Hypothesis, edit: OtherCalls, name: str, sources: Sources
) -> tuple[Span | None, str]:
    """The place of calls that are to be others, and the name of what they make; ``name`` where they say none."""
    rank, node = min(guess.site.position), guess.site.node
    graph = capture.ranks[rank]
    span = sources.own_place(graph, node, edit.calls.get(rank, {}))
    name = sources.tensor_at(span) or name
    match edit.means:
        case Sending():
            span = sibling_place(capture, edit.means, sources) if edit.means.later else span
            name = sent_name(capture, edit.means, span, sources) or name
        case Called():
            span = called_place(graph, node, edit.means, sources)
            name = called_names(capture, edit.means, span, sources)[0] or name
        case Chain() | Term():
            name = chain_name(span, sources) or name
        case Squaring(over=axis) if axis:
            name = sources.name_at(span) or name
        case Averaging():
            name = sources.tensor_at(sources.name_place(graph, node)) or name
        case Filling(number):
            span = _filled(span, number, sources) or span
            return span, name
    nodes = (capture.ranks[each].nodes[index] for each, index in guess.site.position.items())
    return own_number(nodes, span, sources) or span, name


def _parameters_asked_for(capture: Capture, guess: Hypothesis) -> str:
    """The parameters whose gradients the program itself asks for and does not reduce; an empty text where it is about anything else."""
    what = unreduced(capture, guess) if guess.site.node.stack >= 0 else None
    return ", ".join(sorted(what.names)) if what is not None else ""


def _headline(capture: Capture, guess: Hypothesis, name: str, span: Span | None, sources: Sources) -> str:
    """What is wrong, of the gradient where the place is the forward call that it is of."""
    count = _count(guess, span, sources)
    text = headline(guess.rule, guess.edit, name, guess.site, capture, _named(capture, guess, sources), count)
    passes = 1 + len(guess.others)
    looped = guess.site.node.phase == "forward" and guess.site.node.op not in SCALING
    averaged = isinstance(guess.edit, Scale) and looped and passes > 1 and guess.edit.factor == Fraction(1, passes)
    if averaged and are_added_up(capture, guess.edits, min(guess.site.position)):
        text = f"'{name}' is added up over {passes} passes of the loop where their mean is needed: it is {factor_text(Fraction(passes), capture, count=count)} times what the specification computes"
    if isinstance(guess.edit, OtherCalls):
        text = _filled_in(capture, guess, guess.edit, text, name, span, sources)
    if guess.rule == "nonlinear-on-partial" and (call := sources.call_with_effect(span, guess.site.node.op)):
        text = text.replace(f"'{name}' is ", f"'{call}' computes ", 1)
    own = guess.own_pass and text.startswith(f"'{name}' ")
    return f"the gradient of {text}" if own else asked_for(name, text)


def _filled_in(
    capture: Capture, guess: Hypothesis, edit: OtherCalls, text: str, name: str, span: Span | None, sources: Sources
) -> str:
    """A headline of other calls with what it leaves open: another tensor's name, the specification's expression, how an attention masks."""
    match edit.means:
        case Sending():
            exchanged = sibling_name(capture, edit.means, sources)
            return text.replace("{sibling}", f"'{exchanged}'" if exchanged else "another tensor")
        case Called():
            return text.replace("{sibling}", called_names(capture, edit.means, span, sources)[1])
        case Unapplied():
            operand = sources.operand_at(span)
            return text.replace("{operand}", f"'{operand}'" if operand else "a tensor")
        case Rescaling():
            factor, other = factor_and_sibling(edit.means, sources)
            text = text.replace("{factor}", f"'{factor}'" if factor else "a factor")
            return text.replace("{sibling}", f"'{other}'" if other else "another sum")
        case Masking():
            return _masked(capture, guess, edit.means, text, sources)
        case Chain(spans):
            return text.replace("{chain}", f"'{chain_text(spans, name if name.isidentifier() else 'x', sources)}'")
        case Term():
            return text.replace("{chain}", _term(capture, edit.means, guess, span, sources))
    return text


def _term(capture: Capture, term: Term, guess: Hypothesis, span: Span | None, sources: Sources) -> str:
    """A term of the specification in the words of the program that lacks it."""
    program = sources.program(span.file) if span is not None else None
    text = term_text(capture, term, min(guess.site.position), program, sources) if program is not None else ""
    return f"'{text}'" if text else "a term"


def _masked(capture: Capture, guess: Hypothesis, masking: Masking, text: str, sources: Sources) -> str:
    """How an attention masks, and the specification's, in place of ``{mine}`` and ``{its}``."""
    graph, meant, told = capture.ranks[min(guess.site.position)], _meant(capture, masking), text
    for mark, held, node in (("{mine}", graph, guess.site.node), ("{its}", capture.spec, meant)):
        if mark in told and held is not None and node is not None:
            frames = held.stack_of(node.stack)
            span = frames[0].span if frames else None
            told = told.replace(mark, masking_text(node, span, sources.program(span.file) if span else None))
    return told


def _meant(capture: Capture, masking: Masking) -> Node | None:
    """The specification's attention whose place an edit names."""
    spec = capture.spec
    for node in spec.nodes if spec is not None else ():
        frames = spec.stack_of(node.stack) if spec is not None else ()
        if node.op == SDPA and frames and frames[0].span == masking.written:
            return node
    return None


def _count(guess: Hypothesis, span: Span | None, sources: Sources) -> str:
    """What the author calls the factor that is wrong: a constant of the file that is read there, or that says how often the loop around is passed."""
    program = sources.program(span.file) if span is not None else None
    value = program.expression(span) if program is not None and span is not None else None
    if program is None or value is None:
        return ""
    match guess.edit:
        case Scale(factor=factor):
            return passes_name(program, value, factor)
        case Bypass() if len(guess.site.node.args) > 1 and isinstance(number := guess.site.node.args[1], int | float):
            return factor_name(program, value, Fraction(number).limit_denominator(1 << 20)) if number else ""
    return ""


def _filled(span: Span | None, number: float, sources: Sources) -> Span | None:
    """Where the number is said that a tensor is filled up with, if it is not in the call at a place."""
    program = sources.program(span.file) if span is not None else None
    return None if program is None or span is None else filled_at(program, span, number)


def own_number(nodes: Iterable[Node], span: Span | None, sources: Sources) -> Span | None:
    """Where a number is made that another one is on every rank, and that a place multiplies or divides by: of the one name there that stands for it."""
    numbers = {node.args[1] for node in nodes if node.op in SCALING and isinstance(node.args[1], int | float)}
    program = sources.program(span.file) if span is not None and len(numbers) > 1 else None
    value = program.expression(span) if program is not None and span is not None else None
    if program is None or not isinstance(value, ast.BinOp):
        return None
    number = value.right.value if isinstance(value.right, ast.Subscript) else value.right
    names = [node for node in ast.walk(number) if isinstance(node, ast.Name)]
    made = {program.span(each) for name in names for each in definitions(program, name)}
    return made.pop() if len(made) == 1 else None


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
    if dead.phase == "backward" and (
        operand := sources.operand_at(span)
    ):  # what is reduced in vain is the gradient itself
        name = operand
        needed, found = needed_and_found(name, site, axis)
    return Finding(
        rule="dead-collective",
        headline=f"the result of this {operation(dead.op)} is never used: '{name}' stays {held} over axis '{axis}'",
        span=span,
        needed=needed,
        found=found,
        tensor=name,
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


def _relations(capture: Capture, repair: Repair, name: str, sources: Sources, itself: bool = False) -> tuple[str, str]:
    """The relation that a missing reduction would give, and the one that is there; empty where the defect is another one.

    A gradient is named after what it is of, unless the name is that of the gradient ``itself``.
    """
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
    of = guess.rule == "gradient-not-reduced" and not itself and not name.endswith(".grad")
    value = f"grad({name})" if of else name
    return needed_and_found(value, site, edit.axis)


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


def _name(graph: Graph, guess: Hypothesis, span: Span | None, sources: Sources, mends: tuple[str, ...]) -> str:
    """The author's name for a node's tensor; for a gradient, of the tensor whose gradient it is, or of all parameters whose gradients are mended alike."""
    node = guess.site.node
    if node.phase != "backward" or (isinstance(guess.edit, SetArgument) and guess.edit.what == "row"):
        return sources.tensor_at(span) or graph.labels.get(node.outs[0], "") or operator(node.op)
    gradients = [name.removeprefix("grad(").removesuffix(")") for name in mends if name.startswith("grad(")]
    own = [name for name in gradients if graph.outputs.get(f"grad({name})") in node.outs]
    if own and (own == gradients or len(gradients) == 1 + len(guess.others)):
        return ", ".join(gradients)
    returned = [name for var, name in rearranged_outputs(graph) if var in node.outs and name in mends]
    if returned and not gradients:  # the program hands out the gradient itself
        hooked = sources.tensor_at(span) if guess.others and sources.is_operator(span) else ""
        if re.fullmatch(r"[\w.]+", hooked):
            return hooked
        alike = guess.rule == "gradient-not-reduced" and len(mends) == 1 + len(guess.others)
        return differentiated(span, sources) or ", ".join(mends if alike else returned[:1])
    if names := _parameters_of(graph, guess, span, sources):
        return names
    anew = bool(applied_for(graph, node))
    # what a library runs, and autograd for itself
    within = (node.forward < 0 or anew) and not sources.is_operator(span)
    if operand := ("" if within else sources.operand_at(span)) or differentiated_leaf(graph, node):
        return operand
    forward = None if anew else next(iter(graph.stack_of(node.forward)), None)
    call = sources.name_at(forward.span) if forward is not None else ""
    if gradients or call:
        return gradients[0] if gradients else f"an operand of {call}"
    asked = sources.name_at(span) if within and not isinstance(guess.edit, Scale) else ""
    if is_asking(asked):
        return asked
    return gradient_ahead(graph, node.outs[0]) or (mends[0] if mends else operation(node.op))


def _parameters_of(graph: Graph, guess: Hypothesis, span: Span | None, sources: Sources) -> str:
    """The parameters and inputs whose gradients are mended alike at a call that is given none of them: of a whole model, or one in which a library differentiates."""
    if guess.rule != "gradient-not-reduced":
        return ""
    if sources.is_operator(span) and not is_asked(graph, guess.site.node, sources):
        return ""
    rank = min(guess.site.position)
    edits = [edit for edit in (guess.edit, *guess.others) if isinstance(edit, InsertReduction) and rank in edit.tensors]
    tensors = [edit.tensors[rank] for edit in edits]
    names = list(dict.fromkeys(gradient_ahead(graph, var) or leaf_behind(graph, var) for var in tensors))
    return ", ".join(names) if all(names) else ""


def _computed_by_hand(graph: Graph, guess: Hypothesis, span: Span | None, name: str, sources: Sources) -> str:
    """The author's name of a gradient that the backward of a function of the author's computes, where ``name`` is only that of what it is computed from; empty elsewhere."""
    if guess.rule != "gradient-not-reduced" or name != sources.operand_at(span):
        return ""
    if span is None or not is_computed(graph, guess.site.node, span, sources) or not sources.is_named(span):
        return ""
    given = sources.tensor_at(span)
    return given if given.isidentifier() else ""


def _in_vain(capture: Capture, graph: Graph, repair: Repair, sources: Sources) -> list[Related]:
    """The first reduction over the axis of one that is missing whose own result nobody reads: of a parameter, say, whose gradient is meant."""
    edit, rank = repair.hypothesis.edit, min(repair.hypothesis.site.position)
    if not isinstance(edit, InsertReduction):
        return []
    group = group_of(capture, rank, edit.axis)
    for node in dead_everywhere(capture, rank):
        if node.op in REDUCTIONS and node.args[-1] == group and (place := sources.place(graph, node)) is not None:
            return [Related(place, f"what is reduced over '{edit.axis}' here is read nowhere")]
    return []


def _related(
    capture: Capture, graph: Graph, node: Node, span: Span | None, sources: Sources, repair: Repair
) -> list[Related]:
    outer = [frame for frame in sources.frames(graph, node) if span is None or frame.span.line != span.line]
    forward = [frame for frame in graph.stack_of(node.forward) if sources.in_project(frame.span.file)][:1]
    if forward_place(graph, node, repair.hypothesis.edit, sources) is not None:
        found = [Related(frame.span, ASKED) for frame in outer[:1]]
    elif isinstance(repair.hypothesis.edit, OtherCalls) and isinstance(repair.hypothesis.edit.means, Filling):
        found = [Related(frame.span, "what is filled up") for frame in outer[:1]]
    else:
        found = [Related(frame.span, f"called in {frame.function.rpartition('<locals>.')[2]}") for frame in outer]
    if (
        node.phase == "backward"
        and node.stack >= 0
        and (span is None or all(each.span.line != span.line for each in forward))
    ):
        found.extend(Related(frame.span, FORWARD) for frame in forward)
    found.extend(_in_vain(capture, graph, repair, sources))
    spoiled = ", ".join(repair.mends[:6]) + (", ..." if len(repair.mends) > 6 else "")
    found.append(Related(capture.check.span, f"the check that fails: {spoiled}"))
    return found
