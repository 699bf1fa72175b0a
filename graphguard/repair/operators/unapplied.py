"""Operators of the specification that are forgotten of a tensor where one line reads it: the norm in front of a layer, beside a residual that goes round it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, Node, Span, TensorType, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.editing import fresh, like, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.meanings import Unapplied
from graphguard.repair.graph.neighbours import SCALING, Guess, Neighbours
from graphguard.repair.graph.slices import LAYOUT, Site
from graphguard.repair.operators.guided_source import applied_to
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program, first_operand
from graphguard.repair.writing.source import Draft
from graphguard.repair.writing.words import operation
from graphguard.report.diagnostics import TextEdit

_COST: Final = 2
_TOLD: Final = "{{operand}} is read as it is: the specification computes {does} of it first"


def unapplied(missing: Sequence[Node], proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """Guesses for each first operator that the specification has and no rank: it is computed in front of all that first read its operand, and of each of these alone."""
    frontier = [site for site in around.sites.values() if around.at_frontier(site) and _reads(site)]
    for node in missing:
        if node.op in SCALING or (len(node.outs) == 1 and len(set(node.operands())) > 1):
            continue  # a factor or a term is told as that
        readers = [site for site in frontier if _held(node, site, proof, around.capture) is not None]
        for sites in [readers, *([site] for site in readers if len(readers) > 1)] if readers else []:
            edit = _in_front(node, sites, proof, around.capture)
            if edit is not None:
                yield "wrong-relation", edit, sites[0], _COST


def _reads(site: Site) -> bool:
    return site.node.phase == "forward" and site.node.op not in COLLECTIVES | LAYOUT and len(site.node.outs) == 1


def _held(node: Node, site: Site, proof: Proof, capture: Capture) -> Tensors | None:
    """The tensors of a site's ranks that are the operand of one of the specification's operators, and of the type that it keeps."""
    spec, meant = capture.spec, next(node.operands(), None)
    if spec is None or meant is None or spec.types[meant] != spec.types[node.outs[0]]:
        return None
    held: Tensors = {}
    for rank, index in site.position.items():
        graph, wanted = capture.ranks[rank], proof.value(SPECIFICATION, meant)
        found = [
            var
            for var in graph.nodes[index].operands()
            if (value := proof.value(rank, var)) is not None and wanted is not None and value.key() == wanted.key()
        ]
        if not found or graph.types[found[0]] != spec.types[meant]:
            return None
        held[rank] = found[0]
    return held


def _in_front(node: Node, sites: Sequence[Site], proof: Proof, capture: Capture) -> OtherCalls | None:
    """The operator in front of each of some sites, which read what it gives."""
    spec = capture.spec
    meant, *others = dict.fromkeys(node.operands())
    weights: dict[Var, Mapping[int, Var]] = {}
    for other in others:
        holders = proof.holders(other)
        if not holders:
            return None
        weights[other] = holders[0][0]
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for site in sites:
        held = _held(node, site, proof, capture)
        if held is None or spec is None:
            continue
        for rank, index in site.position.items():
            graph, own, kinds = capture.ranks[rank], held[rank], types.setdefault(rank, {})
            first = fresh(graph) + len(kinds)
            outs = tuple(Var(first + place) for place in range(len(node.outs)))
            kind = graph.types[own]
            kinds.update({out: like(spec.types[its], kind) for out, its in zip(outs, node.outs, strict=True)})
            names: dict[Var, Var] = {meant: own, **{other: weights[other][rank] for other in others}}
            reader = graph.nodes[index]
            made = replace(
                renamed(node, names), outs=outs, stack=reader.stack, phase=reader.phase, module=reader.module
            )
            calls.setdefault(rank, {})[index] = (made, renamed(reader, {own: outs[0]}))
    frames = spec.stack_of(node.stack) if spec is not None else ()
    if not calls or not frames:
        return None
    return OtherCalls(calls, types, _TOLD.format(does=operation(node.op)), Unapplied(frames[0].span))


def computed_first(program: Program, span: Span, where: Span, sources: Sources) -> Iterator[Draft]:
    """The specification's expression of what is read at a place: there alone, or for all that follows."""
    value = program.expression(span)
    operand = first_operand(value)
    statement = program.statement(value) if value is not None else None
    if operand is None or statement is None:
        return
    for text in dict.fromkeys(applied_to(program, operand, where, sources)):
        yield Draft(f"read {text}", (TextEdit(program.span(operand), text),))
        if isinstance(operand, ast.Name):
            start = program.span(statement)
            at = Span(start.file, start.line, 1, start.line, 1)
            yield Draft(
                f"{operand.id} = {text}", (TextEdit(at, f"{program.indent(statement)}{operand.id} = {text}\n"),)
            )
