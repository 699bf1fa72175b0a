"""Losses that are means over each rank's own targets that count: with other numbers of ignored ones on every rank, a mean of means.

The sum of a rank's losses divided by the mean of the ranks' counts is averaged to the mean of all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, DType, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten, gg
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls, group_of
from graphguard.repair.graph.meanings import CountedTargets
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import distributed_name
from graphguard.repair.writing.source import Draft, groups_for
from graphguard.report.diagnostics import TextEdit

FORWARD: Final = frozenset({aten.nll_loss_forward.default, aten.nll_loss2d_forward.default})
_BACKWARD: Final = frozenset({aten.nll_loss_backward.default, aten.nll_loss2d_backward.default})
_MEAN, _SUM = 1, 2
OWN_TARGETS: Final = (
    "'{what}' is each rank's mean over its own targets that are not ignored, and their numbers differ along axis '{axis}':"
    " averaged, it is a mean of means"
)


def counted_targets(around: Neighbours) -> Iterator[Guess]:
    """A guess for each mean of losses over ranks that may ignore different numbers of targets."""
    for site in around.sites.values():
        if site.node.op not in FORWARD or site.state == "whole" or not is_mean(site.node):
            continue
        if len(site.position) < around.capture.world_size:
            continue
        for axis, size in around.capture.mesh.items():
            if size > 1:
                told = OWN_TARGETS.replace("{what}", "{name}").replace("{axis}", axis)
                calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
                types: dict[int, Mapping[Var, TensorType]] = {}
                for rank, index in site.position.items():
                    graph = around.capture.ranks[rank]
                    calls[rank], types[rank] = _of_all(graph, index, group_of(around.capture, rank, axis))
                ignored = site.node.args[4]
                number = ignored if isinstance(ignored, int) else -100
                yield "missing-reduction", OtherCalls(calls, types, told, CountedTargets(axis, number)), site, 1


def is_mean(node: Node) -> bool:
    """Whether a loss is the mean over the targets that count, all classes weighing alike."""
    return len(node.args) > 4 and node.args[2] is None and node.args[3] == _MEAN


def _of_all(
    graph: Graph, index: int, group: tuple[int, ...]
) -> tuple[Mapping[int, tuple[Node, ...]], Mapping[Var, TensorType]]:
    """The sum of a rank's losses over the mean of the ranks' counts, and its gradient."""
    node, number = graph.nodes[index], fresh(graph)
    target, ignored = node.args[1], node.args[4]
    assert isinstance(target, Var)
    loss, total = node.outs
    kind, whole = graph.types[loss], graph.types[target]
    counts, count, real, mean, summed = (Var(number + place) for place in range(5))
    types = {
        counts: replace(whole, dtype="bool"),
        count: replace(kind, dtype="int64"),
        real: kind,
        mean: kind,
        summed: kind,
    }
    made = (
        replace(node, op=aten.ne.Scalar, args=(target, ignored), outs=(counts,)),
        replace(node, op=aten.sum.default, args=(counts,), outs=(count,)),
        replace(node, op=aten._to_copy.default, args=(count,), kwargs={"dtype": DType(kind.dtype)}, outs=(real,)),
        replace(node, op=gg.all_reduce, args=(real, "avg", group), outs=(mean,)),
        replace(node, args=(*node.args[:3], _SUM, *node.args[4:]), outs=(summed, total)),
        replace(node, op=aten.div.Tensor, args=(summed, mean), outs=(loss,)),
    )
    calls: dict[int, tuple[Node, ...]] = {index: made}
    following = number + len(types)
    for later, each in enumerate(graph.nodes):
        if each.op in _BACKWARD and each.args[1:3] == node.args[:2] and isinstance(gradient := each.args[0], Var):
            shared = Var(following)
            following += 1
            types[shared] = graph.types[gradient]
            calls[later] = (
                replace(each, op=aten.div.Tensor, args=(gradient, mean), outs=(shared,)),
                replace(each, args=(shared, *each.args[1:4], _SUM, *each.args[5:])),
            )
    return calls, types


def over_all_targets(program: Program, span: Span, meant: CountedTargets, capture: Capture) -> Iterator[Draft]:
    """``F.cross_entropy(x, t)`` as the sum over the mean of the ranks' counts."""
    call, dist = program.expression(span), distributed_name(program)
    statement = program.statement(call) if call is not None else None
    if not isinstance(call, ast.Call) or statement is None or dist is None or len(call.args) < 2:
        return
    if any(word.arg in ("reduction", "weight") for word in call.keywords):
        return
    indent = " " * (program.span(statement).column - 1)
    start = program.span(statement)
    at = replace(start, column=1, end_line=start.line, end_column=1)
    inside = program.source(call)[:-1].rstrip().rstrip(",")
    target = program.source(call.args[1])
    bare = target if isinstance(call.args[1], ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({target})"
    for group in groups_for(program, call, meant.axis, capture):
        over = f", group={group}" if group else ""
        asked = f"if {group} is not None:"
        inner = f"{indent}{asked}\n{indent}    " if group and asked in program.text else indent
        lines = (
            f"{indent}count = ({bare} != {meant.ignored}).sum().float()\n"
            f"{inner}{dist}.all_reduce(count, op={dist}.ReduceOp.AVG{over})\n"
        )
        edits = (TextEdit(at, lines), TextEdit(program.span(call), f'{inside}, reduction="sum") / count'))
        yield Draft(f"divide by the mean over '{meant.axis}' of the numbers of targets", edits)
