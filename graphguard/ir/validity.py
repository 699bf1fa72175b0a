"""What every graph must be, as checks: the IR's own specification, run in tests on everything that makes graphs or edits them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphguard.ir.capture import Capture
from graphguard.ir.graph import ASYNCHRONOUS, COMMUNICATOR, Graph, Node, Sym, Var
from graphguard.ir.strict import STRICT
from graphguard.ops import COLLECTIVE, gg

_PHASES = ("prelude", "forward", "backward", "step")
_REDUCTIONS = ("sum", "avg", "max", "min", "product")
_NO_GROUPS = frozenset(("gg.assume", "gg.rounded", "gg.sdpa", "gg.sdpa_backward"))


def well_formed(capture: Capture) -> Capture:
    """The capture, after a rewriting of its graphs.  Where tests run, raises ``AssertionError`` for one with a graph that is not well-formed."""
    if STRICT:
        found = [fault for graph in capture.graphs for fault in faults(graph, capture.world_size)]
        assert not found, f"an edit leaves a graph that is none: {found[0]}"
    return capture


def reads_ahead(graph: Graph) -> bool:
    """Whether a call reads what no call before it makes."""
    defined = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        if any(var not in defined for var in node.operands()):
            return True
        defined.update(node.outs)
    return False


def faults(graph: Graph, world_size: int | None = None) -> list[str]:
    """Every way in which a graph is not well-formed, in words; empty for a good one."""
    return [*_definitions(graph), *_tables(graph), *_nodes(graph, world_size), *_symbols(graph)]


def _definitions(graph: Graph) -> Iterator[str]:
    defined = {*graph.inputs, *graph.constants}
    if len(defined) != len(graph.inputs) + len(graph.constants):
        yield "a variable is both an input and a constant"
    for index, node in enumerate(graph.nodes):
        for var in node.operands():
            if var not in defined:
                yield f"node {index} ({node.op}) reads %{var.id}, which nothing before it defines"
        for out in node.outs:
            if out in defined:
                yield f"node {index} ({node.op}) defines %{out.id} again"
            defined.add(out)
    for name, var in graph.outputs.items():
        if var not in defined:
            yield f"output {name!r} is %{var.id}, which nothing defines"
    for var, name in graph.labels.items():
        if var not in defined:
            yield f"label {name!r} is on %{var.id}, which nothing defines"
    yield from (f"%{var.id} has no type" for var in sorted(defined, key=lambda v: v.id) if var not in graph.types)


def _tables(graph: Graph) -> Iterator[str]:
    names = list(graph.inputs.values())
    yield from (f"leaf {name!r} is an input twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for var, constant in graph.constants.items():
        if graph.types.get(var) != constant.type:
            yield f"constant %{var.id} is declared {graph.types.get(var)} and holds {constant.type}"
    for index, stack in enumerate(graph.stacks):
        if not all(0 <= frame < len(graph.frames) for frame in stack):
            yield f"stack {index} names a frame that does not exist"


def _nodes(graph: Graph, world_size: int | None) -> Iterator[str]:
    for index, node in enumerate(graph.nodes):
        where = f"node {index} ({node.op})"
        if node.phase not in _PHASES:
            yield f"{where} is of phase {node.phase!r}"
        for stack in (node.stack, node.forward):
            if not -1 <= stack < len(graph.stacks):
                yield f"{where} has a stack that does not exist"
        if node.op.startswith("gg.") and node.op not in COLLECTIVE.keys() | _NO_GROUPS:
            yield f"{where} is no operator of ours"
        if node.op in COLLECTIVE:
            yield from (f"{where}: {fault}" for fault in _collective(graph, node, world_size))


def _collective(graph: Graph, node: Node, world_size: int | None) -> Iterator[str]:
    group = node.args[-1] if node.args else None
    if not isinstance(group, tuple) or not group or not all(isinstance(rank, int) for rank in group):
        yield "its last argument is not a group of ranks"
        return
    if len(set(group)) != len(group):
        yield f"a rank is in the group {group} twice"
    if world_size is not None and not all(isinstance(rank, int) and 0 <= rank < world_size for rank in group):
        yield f"the group {group} names a rank outside of the job"
    collective = COLLECTIVE[node.op]
    if len(node.args) != len(collective.arguments.split()):
        yield f"its arguments are not {collective.arguments}"
        return
    if collective.reduces and collective.argument("reduce", node.args) not in _REDUCTIONS:
        yield f"{collective.argument('reduce', node.args)!r} is no reduction"
    if collective.names("root") and collective.argument("root", node.args) not in group:
        yield f"its root {collective.argument('root', node.args)!r} is not in the group {group}"
    number = node.kwargs.get(COMMUNICATOR, 2)
    if not isinstance(number, int) or isinstance(number, bool) or number < 2:
        yield f"{number!r} names no group among those of the same ranks; the first has no name"
    if node.kwargs.get(ASYNCHRONOUS, True) is not True:
        yield "a collective is asynchronous or does not say so"
    members = range(len(group)) if not collective.is_message else (int(node.op == gg.recv),)
    if len(node.outs) not in {len(collective.made(member, len(group), 0)) for member in members}:
        yield f"{len(node.outs)} results for a group of {len(group)}"
    if collective.names("xs") and not collective.names("root"):
        tensors = node.args[0]
        if not isinstance(tensors, tuple) or len(tensors) != len(group):
            yield "not one operand for each member"
    if collective.alike:
        operand = node.args[0]
        if isinstance(operand, Var) and node.outs and graph.types.get(operand) != graph.types.get(node.outs[0]):
            yield "its result is not of its operand's type"


def _symbols(graph: Graph) -> Iterator[str]:
    for name, var in graph.symbols.items():
        kind = graph.types.get(var)
        if kind is None or kind.shape:
            yield f"symbol {name} is %{var.id}, which is no 0-dim variable"
    for var, kind in graph.types.items():
        for size in kind.shape:
            if isinstance(size, Sym):
                if not re.search(r"[A-Za-z_]\w*", size.expr):
                    yield f"%{var.id} has the size {size.expr!r}, which is a number"
            elif size < 0:
                yield f"%{var.id} has a negative size"
