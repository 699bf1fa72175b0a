"""Parts that are exchanged between ranks in another order than they are needed in: by rank and then by part, or the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten, gg
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Turning
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.retyping import Shape
from graphguard.repair.graph.slices import JOINING, LAYOUT, SPLITS, Site
from graphguard.repair.text.program import Program, first_operand
from graphguard.repair.text.vocabulary import size_expressions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_VIEW, _PERMUTE = aten.view.default, aten.permute.default
_SHOWN = 6  # parts that are told one by one


def turned(around: Neighbours) -> Iterator[Guess]:
    """A guess for each tensor whose parts are sent, or were received, for each way to tell them apart."""
    for site in around.sites.values():
        if site.node.op != gg.all_to_all:
            continue
        size = len(site.node.outs)
        for split in (each for each in around.operands(site) if each.node.op in SPLITS):
            for made in (each for each in around.operands(split) if each.node.op in LAYOUT):
                yield from _parts(around, made, size, sent=True)
        for joint in _joined_at_once(site, around):
            for reader in _readers(joint, around, LAYOUT - SPLITS):
                yield from _parts(around, reader, size, sent=False)


def _joined_at_once(site: Site, around: Neighbours) -> Iterator[Site]:
    """The joining of received parts by the very call that exchanges them: where the author joins them, another dim is likelier to be meant."""
    return (joint for joint in _readers(site, around, JOINING) if joint.node.stack == site.node.stack)


def _readers(site: Site, around: Neighbours, ops: frozenset[str]) -> Iterator[Site]:
    readers = around.readers_of(site)
    return (reader for reader in readers if reader.node.op in ops)


def _parts(around: Neighbours, site: Site, size: int, sent: bool) -> Iterator[Guess]:
    """The parts along the first dim of what a site gives (``sent``) or reads, told apart by rank first or last."""
    graph = around.capture.ranks[min(site.position)]
    var = site.node.outs[0] if sent else next(site.node.operands())
    count = graph.types[var].shape[0] if graph.types[var].shape else 0
    other = count // size if isinstance(count, int) and count % size == 0 else 0
    ways = ((size, other), (other, size)) if other > 1 and other != size else ((size, other),) if other > 1 else ()
    for way in ways:
        places = [str(row * way[1] + column) for column in range(way[1]) for row in range(way[0])]
        shown = ", ".join(places if len(places) <= _SHOWN else [*places[: _SHOWN - 1], "..."])
        told = f"'{{name}}' has its parts in another order than they are needed in: {shown} is meant"
        calls: dict[int, dict[int, tuple[Node, ...]]] = {}
        types: dict[int, dict[Var, TensorType]] = {}
        for rank, index in site.position.items():
            own = types.setdefault(rank, {})
            made = _turned(around.capture, rank, index, way, sent, own)
            calls[rank] = {index: made}
        edit = OtherCalls(calls, types, told, Turning(way, 0 if way[0] == size else 1, sent))
        yield "wrong-shard", edit, site, 0


def _turned(
    capture: Capture, rank: int, index: int, way: tuple[int, int], sent: bool, types: dict[Var, TensorType]
) -> tuple[Node, ...]:
    """The call whose result, or whose operand, has its parts in the other order."""
    graph = capture.ranks[rank]
    node = graph.nodes[index]
    var = node.outs[0] if sent else next(node.operands())
    if not sent:
        moved = Var(fresh(graph))
        calls = _moved(graph, node, var, moved, way, types)
        args = tuple(moved if arg == var else arg for arg in node.args)
        return (*calls, replace(node, args=args))
    before = Var(fresh(graph))
    types[before] = graph.types[var]
    made = replace(node, outs=(before, *node.outs[1:]))
    return (made, *_moved(graph, node, before, var, way, types))


def _moved(
    graph: Graph, node: Node, given: Var, result: Var, way: tuple[int, int], types: dict[Var, TensorType]
) -> list[Node]:
    kind: TensorType = types.get(given) or graph.types[given]
    shape: Shape = tuple(size if isinstance(size, int) else 0 for size in kind.shape)
    start = max(fresh(graph), result.id, given.id, *(var.id for var in types)) + 1
    apart, turned_round = Var(start), Var(start + 1)
    rest = shape[1:]
    types[apart] = replace(kind, shape=(*way, *rest))
    types[turned_round] = replace(kind, shape=(way[1], way[0], *rest))
    types.setdefault(result, kind)
    template = replace(node, kwargs={}, draw=None)
    order = (1, 0, *range(2, len(rest) + 2))
    return [
        replace(template, op=_VIEW, args=(given, (*way, *rest)), outs=(apart,)),
        replace(template, op=_PERMUTE, args=(apart, order), outs=(turned_round,)),
        replace(template, op=_VIEW, args=(turned_round, shape), outs=(result,)),
    ]


def in_order(program: Program, span: Span, turning: Turning, capture: Capture) -> Iterator[Draft]:
    """Put the parts of what an expression gives, or reads, in the other order."""
    value = program.expression(span)
    operand = value if turning.sent else first_operand(value)
    if value is None or operand is None:
        return
    size = turning.parts[turning.ranks]
    for name in [*size_expressions(program, value, Fraction(size), capture)[:1], str(size)]:
        parts = f"({name}, -1)" if turning.ranks == 0 else f"(-1, {name})"
        simple = isinstance(operand, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
        text = program.source(operand) if simple else f"({program.source(operand)})"
        new = f"{text}.unflatten(0, {parts}).transpose(0, 1).flatten(0, 1)"
        yield Draft(f"write {new}", (TextEdit(program.span(operand), new),), program.span(value))
