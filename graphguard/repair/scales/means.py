"""Means of means: every rank divides by its own count, which the data decides, and the mean of the quotients is not the mean of all.

Where the quotients are averaged, dividing by the mean of the counts makes up for it: ``sum(a) / n`` is the mean of the ranks' ``a / (n / ranks)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, DType, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten, gg
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import InsertReduction, OtherCalls, Tensors, group_of
from graphguard.repair.graph.meanings import Averaging
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.text.program import Program
from graphguard.repair.writing.source import Draft, insert_reduction
from graphguard.report.diagnostics import TextEdit

_SUMS: Final = frozenset({aten.sum.default, aten.sum.dim_IntList})
_COUNTED: Final = frozenset({"int64", "int32", "int16", "uint8", "int8"})
_TOLD: Final = "'{{name}}' is each rank's own over axis '{axis}', and the ranks' need not be alike: what is divided by it and averaged is a mean of means"


def means(around: Neighbours) -> Iterator[Guess]:
    """A guess for each divisor that is a summand on every rank: the mean of the ranks' divides instead."""
    seen: set[int] = set()
    for site in around.sites.values():
        divisor = _divisor(site, around) if site.node.op == aten.div.Tensor and len(site.node.args) == 2 else None
        if divisor is None or divisor.number in seen or divisor.node.phase != "forward":
            continue
        if len(divisor.tensors) < around.capture.world_size:
            continue
        seen.add(divisor.number)
        for axis in divisor.partial_axes or around.capture.mesh:
            yield "missing-reduction", _averaged(divisor.tensors, axis, around.capture), divisor, 0


def _divisor(site: Site, around: Neighbours) -> Site | None:
    """The site that makes what a quotient is divided by, where that is a partial sum, or a sum of which nothing is known."""
    rank, var = min(site.position), site.node.args[1]
    for operand in around.operands(site):
        unknown = operand.relation is None and operand.node.op in _SUMS
        if (operand.state == "partial" or unknown) and operand.tensors.get(rank) == var:
            return operand
    return None


def _averaged(tensors: Tensors, axis: str, capture: Capture) -> OtherCalls:
    """Everything reads the mean of the ranks' tensors, as a float."""
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    for rank, var in tensors.items():
        graph = capture.ranks[rank]
        calls[rank], types[rank] = _reread(graph, var, group_of(capture, rank, axis))
    return OtherCalls(calls, types, _TOLD.format(axis=axis), Averaging(axis))


def _reread(
    graph: Graph, var: Var, group: tuple[int, ...]
) -> tuple[Mapping[int, tuple[Node, ...]], Mapping[Var, TensorType]]:
    made, number, kind = graph.producers()[var], fresh(graph), graph.types[var]
    node, reduced = graph.nodes[made], Var(number + 1)
    new: list[Node] = [node]
    types: dict[Var, TensorType] = {}
    operand = var
    if kind.dtype in _COUNTED:
        operand, kind = Var(number), replace(kind, dtype="float32")
        types[operand] = kind
        new.append(
            replace(node, op=aten._to_copy.default, args=(var,), kwargs={"dtype": DType("float32")}, outs=(operand,))
        )
    types[reduced] = kind
    new.append(replace(node, op=gg.all_reduce, args=(operand, "avg", group), kwargs={}, outs=(reduced,)))
    later = {
        index: (renamed(each, {var: reduced}),)
        for index, each in enumerate(graph.nodes)
        if index > made and var in each.reads
    }
    return {made: tuple(new), **later}, types


def is_count(capture: Capture, edit: OtherCalls, rank: int) -> bool:
    """Whether what is averaged is made a float first."""
    made = capture.ranks[rank].nodes[min(edit.calls[rank])]
    return capture.ranks[rank].types[made.outs[0]].dtype in _COUNTED


def averaged(program: Program, span: Span, axis: str, capture: Capture, counted: bool) -> Iterator[Draft]:
    """Take the mean of a tensor over an axis as soon as it exists, of a count as a float."""
    value = program.expression(span)
    for draft in insert_reduction(program, span, InsertReduction({}, axis, "avg"), capture, "count"):
        draft = replace(draft, title=f"divide by the mean over '{axis}' of {program.source(value) if value else 'it'}")
        if not counted:
            yield draft
        elif value is not None:
            text = program.source(value)
            edits = tuple(
                TextEdit(edit.span, edit.text.replace(f"= {text}", f"= {text}.float()", 1)) for edit in draft.edits
            )
            if edits != draft.edits:
                yield replace(draft, edits=edits)
