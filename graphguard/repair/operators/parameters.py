"""Parameters of a module that no rank reads, in whose place those of another one are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
from graphguard.repair.graph.editing import renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.meanings import Renaming
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.text.program import Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit


def parameters(around: Neighbours) -> Iterator[Guess]:
    """Calls of a module that read the parameters of one where those of another, which nothing reads, are meant."""
    unread = _unread(around.capture)
    for own in dict.fromkeys(name.rpartition(".")[0] for name in unread):
        meant = {name.rpartition(".")[2]: tensors for name, tensors in unread.items() if name.rpartition(".")[0] == own}
        for other in _alike(own, meant, around.capture):
            for site in around.sites.values():
                calls = {rank: _calls(rank, site, other, meant, around.capture) for rank in site.position}
                if site.node.phase == "forward" and all(calls.values()):
                    told = (
                        f"'{{name}}' reads the parameters of '{other}': those of '{own}' are meant, which nothing reads"
                    )
                    types: dict[int, dict[Var, TensorType]] = {rank: {} for rank in calls}
                    edit = OtherCalls(calls, types, told, Renaming(other, own))
                    yield "wrong-relation", edit, site, 1


def _unread(capture: Capture) -> dict[str, Tensors]:
    """The ranks' parameters, by name, that every rank has and none reads."""
    found: dict[str, Tensors] = {}
    for rank, graph in enumerate(capture.ranks):
        read = {var for node in graph.nodes for var in node.operands()} | set(graph.outputs.values())
        for var, name in graph.labels.items():
            if var not in read:
                found.setdefault(name, {})[rank] = var
    return {name: tensors for name, tensors in found.items() if len(tensors) == len(capture.ranks)}


def _alike(own: str, meant: Mapping[str, Tensors], capture: Capture) -> list[str]:
    """The modules whose parameters are of the same types under the same names."""
    found: dict[str, set[str]] = {}
    graph = capture.ranks[0]
    for var, name in graph.labels.items():
        module, _, last = name.rpartition(".")
        if module != own and last in meant and graph.types[var] == graph.types[meant[last][0]]:
            found.setdefault(module, set()).add(last)
    return [module for module, names in found.items() if names == set(meant)]


def _calls(
    rank: int, site: Site, other: str, meant: Mapping[str, Tensors], capture: Capture
) -> dict[int, tuple[Node, ...]]:
    """The operators of the call around a site with other parameters; empty where it reads none of theirs, or is not the first that does."""
    graph = capture.ranks[rank]
    names = {
        var: meant[name.rpartition(".")[2]][rank]
        for var, name in graph.labels.items()
        if name.rpartition(".")[0] == other and name.rpartition(".")[2] in meant
    }
    start = graph.nodes[site.position[rank]]
    around = [
        index
        for index, node in enumerate(graph.nodes)
        if _outermost(graph, node) == _outermost(graph, start)
        and node.phase == "forward"
        and not names.keys().isdisjoint(node.operands())
    ]
    if not around or around[0] != site.position[rank]:
        return {}
    return {index: (renamed(graph.nodes[index], names),) for index in around}


def _outermost(graph: Graph, node: Node) -> tuple[object, ...]:
    """The places through which an operator was called, but the innermost one."""
    frames = tuple(frame.span for frame in graph.stack_of(node.stack))
    return frames[1:] or frames


def other_module(program: Program, span: Span, renaming: Renaming) -> Iterator[Draft]:
    """Call, or read from, another module of ``self`` in the expression at a place."""
    value = program.expression(span)
    mine, meant = (name.rpartition(".")[2] for name in (renaming.module, renaming.meant))
    for node in ast.walk(value) if value is not None else ():
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name == mine:
                title = f"self.{meant} instead of self.{mine}"
                yield Draft(title, (TextEdit(program.span(node), f"self.{meant}"),))
