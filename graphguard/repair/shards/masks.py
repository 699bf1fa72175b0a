"""What could be wrong with masks: a bound that is off by one, a look-up whose foreign rows stay."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Graph, Span, Var
from graphguard.ops import aten, traits_of
from graphguard.repair.graph.edits import Call, ChangeCall, Mask, Tensors
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import LAYOUT, Site
from graphguard.repair.text.program import Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

RULE = "wrong-relation"
_PAIRS = (
    *((aten.gt.Tensor, aten.ge.Tensor), (aten.gt.Scalar, aten.ge.Scalar)),
    *((aten.lt.Tensor, aten.le.Tensor), (aten.lt.Scalar, aten.le.Scalar)),
)
BOUNDS = dict((*_PAIRS, *(pair[::-1] for pair in _PAIRS)))
"""Every comparison, and the one that differs where both sides are equal."""


def masks(around: Neighbours) -> Iterator[Guess]:
    """Every guess about masks."""
    for site in around.sites.values():
        if site.node.op in BOUNDS:
            nodes = {rank: around.capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
            args = {rank: node.args for rank, node in nodes.items()}
            yield RULE, ChangeCall(site.position, Call(BOUNDS[site.node.op], args, site.node.kwargs)), site, 2
        traits = traits_of(site.node.op)
        if traits.looks_up is not None and traits.exact and site.state == "off":
            yield from _foreign_rows(site, traits.looks_up.at, around)


def _foreign_rows(site: Site, index_at: int, around: Neighbours) -> Iterator[Guess]:
    """A look-up by an index that a mask made harmless: what it gives there counts for nothing."""
    masked: Tensors = {}
    shape: tuple[int, ...] = ()
    for rank, index in site.position.items():
        graph = around.capture.ranks[rank]
        number = graph.nodes[index].args[index_at]
        mask = _mask_behind(graph, number) if isinstance(number, Var) else None
        if mask is None or not isinstance(number, Var):
            return
        masked[rank] = mask
        sizes, result = graph.types[number].shape, graph.types[site.tensors[rank]].shape
        shape = tuple(size for size in (*sizes, *(1 for _ in range(len(result) - len(sizes)))) if isinstance(size, int))
        if len(shape) != len(result):
            return
    yield RULE, Mask(site.tensors, masked, shape), site, 1


def _mask_behind(graph: Graph, var: Var) -> Var | None:
    """The mask that filled a tensor, rearrangements not counted."""
    producers = graph.producers()
    while (index := producers.get(var)) is not None:
        node = graph.nodes[index]
        if (place := traits_of(node.op).mask_at) is not None:
            mask = node.args[place]
            return mask if isinstance(mask, Var) else None
        if node.op not in LAYOUT:
            return None
        var = next(node.operands())
    return None


def change_bound(program: Program, span: Span, wanted: str) -> Iterator[Draft]:
    """Another comparison at an expression, or in it."""
    value = program.expression(span)
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            left, right = program.source(node.left), program.source(node.comparators[0])
            text = f"{left} {wanted} {right}"
            yield Draft(f"write {text}", (TextEdit(program.span(node), text),), program.span(node))


def fill_masked(program: Program, span: Span, names: list[str], added: int) -> Iterator[Draft]:
    """Put zeros in what an expression gives where a mask holds, which ``added`` trailing dims are put to."""
    value = program.expression(span)
    if value is None:
        return
    text = program.source(value)
    bare = text if isinstance(value, ast.Call | ast.Name | ast.Subscript | ast.Attribute) else f"({text})"
    for name in names:
        mask = f"{name}[{', '.join(['...', *['None'] * added])}]" if added else name
        yield Draft(f"mask it by {name}", (TextEdit(program.span(value), f"{bare}.masked_fill({mask}, 0.0)"),))
