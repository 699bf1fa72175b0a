"""Norms of the ranks' parts: their squares are to be added up, and the root of the sum is the norm of the whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten, gg
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import InsertReduction, OtherCalls, group_of
from graphguard.repair.graph.meanings import Squaring
from graphguard.repair.graph.neighbours import SUMMING, Guess, Neighbours
from graphguard.repair.graph.slices import LAYOUT, Site
from graphguard.repair.text.program import Program, first_operand
from graphguard.repair.writing.source import Draft, insert_reduction, line_after
from graphguard.repair.writing.words import axis_of_group
from graphguard.report.diagnostics import TextEdit

_ROOTS: Final = frozenset(
    {aten.linalg_vector_norm.default, aten.sqrt.default, aten.norm.Scalar, aten.norm.ScalarOpt_dim}
)
_COST: Final = 1
_NORMS: Final = _ROOTS - {aten.sqrt.default}
_ALL: Final = re.compile(r"^(?P<indent>[ \t]*)(?P<line>\S*\ball_reduce\((?P<name>[\w.]+)[^\n]*)$", re.MULTILINE)
_OWN: Final = (
    "'{{name}}' is the norm of each rank's own part over axis '{axis}' and is used as if it were that of the whole"
)
_TOLD: Final = "'{{name}}' adds up norms over {over}: what is to be added are their squares{root}"


def norms(around: Neighbours) -> Iterator[Guess]:
    """Guesses for each sum over the ranks of norms: of the squares instead, with the root behind it or without."""
    for site in around.sites.values():
        if site.node.op != gg.all_reduce or site.node.args[1] != "sum" or not _is_norm(site, around):
            continue
        axis = axis_of_group(site.node.args[2], around.capture)
        over = f"axis '{axis}'" if axis else "all ranks"
        for rooted in (True, False):
            told = _TOLD.format(over=over, root=", and the root is taken behind" if rooted else "")
            calls, types = _squared(site, around.capture, rooted)
            yield (
                "nonlinear-on-partial",
                OtherCalls(calls, types, told, Squaring(rooted)),
                site,
                _COST,
            )


def own_norms(around: Neighbours) -> Iterator[Guess]:
    """Guesses for each norm of which the specification has none: the root of the squares' sum over the ranks instead, as soon as it is there."""
    for site in around.sites.values():
        if site.node.op not in _NORMS or site.state != "off" or len(site.position) < around.capture.world_size:
            continue
        for axis, size in around.capture.mesh.items():
            if size > 1 and not _is_summed(site, around):
                calls, types = _of_all(site, around.capture, axis)
                edit = OtherCalls(calls, types, _OWN.format(axis=axis), Squaring(rooted=True, over=axis))
                yield "missing-reduction", edit, site, _COST


def _is_summed(site: Site, around: Neighbours) -> bool:
    """Whether norms are added up over ranks, rearranged at most: that is another mistake."""
    readers = around.readers_of(site)
    return any(
        reader.node.op in SUMMING or (reader.node.op in LAYOUT and _is_summed(reader, around)) for reader in readers
    )


def _of_all(
    site: Site, capture: Capture, axis: str
) -> tuple[dict[int, Mapping[int, tuple[Node, ...]]], dict[int, Mapping[Var, TensorType]]]:
    """The norm, its square, their sum over the ranks, and the root of that, which everything reads."""
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        node, number = graph.nodes[index], fresh(graph)
        norm, square, total = (Var(number + step) for step in range(3))
        calls[rank] = {
            index: (
                replace(node, outs=(norm,)),
                replace(node, op=aten.mul.Tensor, args=(norm, norm), kwargs={}, outs=(square,)),
                replace(
                    node,
                    op=gg.all_reduce,
                    args=(square, "sum", group_of(capture, rank, axis)),
                    kwargs={},
                    outs=(total,),
                ),
                replace(node, op=aten.sqrt.default, args=(total,), kwargs={}),
            )
        }
        types[rank] = dict.fromkeys((norm, square, total), graph.types[node.outs[0]])
    return calls, types


def _is_norm(site: Site, around: Neighbours) -> bool:
    """Whether what a site reduces is a root, rearranged at most."""
    below = around.operands(site)
    while below and below[0].node.op in LAYOUT:
        below = around.operands(below[0])
    return bool(below) and below[0].node.op in _ROOTS


def _squared(
    site: Site, capture: Capture, rooted: bool
) -> tuple[dict[int, Mapping[int, tuple[Node, ...]]], dict[int, Mapping[Var, TensorType]]]:
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        calls[rank], types[rank] = _of(graph, index, rooted)
    return calls, types


def _of(graph: Graph, index: int, rooted: bool) -> tuple[Mapping[int, tuple[Node, ...]], Mapping[Var, TensorType]]:
    node, number = graph.nodes[index], fresh(graph)
    operand, out = node.args[0], node.outs[0]
    square, total = Var(number), Var(number + 1) if rooted else out
    made = [
        replace(node, op=aten.mul.Tensor, args=(operand, operand), outs=(square,)),
        replace(node, args=(square, *node.args[1:]), outs=(total,)),
    ]
    if rooted:
        made.append(replace(node, op=aten.sqrt.default, args=(total,), outs=(out,)))
    return {index: tuple(made)}, {square: graph.types[out], total: graph.types[out]}


def squares_added(program: Program, span: Span, rooted: bool) -> Iterator[Draft]:
    """The square of a tensor before it is reduced in place, and its root behind."""
    call = program.expression(span)
    statement = program.statement(call) if call is not None else None
    operand = first_operand(call) if isinstance(call, ast.Call) else None
    if statement is None or not isinstance(call, ast.Call) or not program.stands_alone(call):
        return
    if isinstance(operand, ast.Name):
        name, start = operand.id, program.span(statement)
        at = Span(start.file, start.line, 1, start.line, 1)
        edits = [TextEdit(at, f"{program.indent(statement)}{name} = {name}**2\n")]
        if rooted:
            edits.append(line_after(program, statement, f"{name} = {name}**0.5"))
        yield Draft(f"add up {name}**2{' and take the root' if rooted else ''}", tuple(edits))


def norm_of_all(program: Program, span: Span, axis: str, capture: Capture) -> Iterator[Draft]:
    """The square of a norm, reduced as soon as it exists, and the root of that."""
    for draft in insert_reduction(program, span, InsertReduction({}, axis), capture, "norm"):
        edits = tuple(replace(edit, text=_ALL.sub(_rooted, edit.text)) for edit in draft.edits)
        if edits != draft.edits:
            yield replace(draft, title=f"{draft.title.replace(')', '**2)', 1)}, and take the root", edits=edits)


def _rooted(found: re.Match[str]) -> str:
    indent, line, name = found["indent"], found["line"], found["name"]
    return f"{indent}{name} = {name}**2\n{indent}{line}\n{indent}{name} = {name}**0.5"
