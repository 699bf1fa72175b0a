"""Gradients of a module's parameters that nothing reduces: a loop over these behind the backward pass, or behind the loop of micro-batches that it stands in."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from graphguard.ir import Capture, Span
from graphguard.ops import REDUCTIONS
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.graph.leaves import gradient_ahead, leaf_behind
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import distributed_name
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_LISTED = 6  # parameters that are named one by one


@dataclass(frozen=True, slots=True)
class Unreduced:
    """The names of the parameters whose gradients a guess reduces, of all that there are, and how."""

    names: frozenset[str]
    all: frozenset[str]
    reduce: str


def unreduced(capture: Capture, guess: Hypothesis) -> Unreduced | None:
    """What a guess reduces, if that is the gradients of parameters, all in one way, which nothing reduces too late; else None."""
    rank = min(guess.site.position)
    edits = [edit for edit in guess.edits if isinstance(edit, InsertReduction) and rank in edit.tensors]
    late = {var for node in capture.ranks[rank].nodes if node.op in REDUCTIONS for var in node.reads}
    if any(edit.tensors[rank] in late for edit in edits):
        return None
    every = frozenset(leaf.name for leaf in capture.leaves if leaf.kind == "parameter")
    graph = capture.ranks[rank]
    names = frozenset(
        gradient_ahead(graph, edit.tensors[rank]) or leaf_behind(graph, edit.tensors[rank]) for edit in edits
    )
    ways = {edit.reduce for edit in edits}
    known = len(edits) == len(guess.edits) and len(ways) == 1 and names and names <= every
    return Unreduced(names, every, ways.pop()) if known and ways <= {"sum", "avg"} else None


def in_a_loop(
    program: Program,
    span: Span,
    axis: str,
    groups: list[str],
    what: Unreduced,
    readers: Collection[Span],
    *,
    is_shared: bool,
) -> Iterator[Draft]:
    """Drafts with such a loop behind ``loss.backward()``, or behind the loops around it in which nothing reads the gradients.

    ``readers``: where they are read.  Where the specification runs the call, too (``is_shared``), those that ask for a group come first.
    """
    call, dist = program.expression(span), distributed_name(program)
    statement = program.statement(call) if call is not None else None
    match call, statement:
        case ast.Call(func=ast.Attribute(attr="backward")), ast.Expr() if dist is not None:
            behind = _behind(program, statement, readers)
        case _:
            return
    for module in _modules(program, call):
        parameters = _parameters(module, what)
        for group, condition in _asked(program, call, dist, groups, is_shared=is_shared) if parameters else ():
            indent = program.indent(behind)
            inner = f"{indent}    " if condition else indent
            lines = _loop(inner, parameters, _reduction(program, dist, group, what.reduce))
            end = behind.end_lineno or behind.lineno
            at = Span(program.file, end + 1, 1, end + 1, 1)
            asked = f"{indent}if {condition}:\n" if condition else ""
            yield Draft(f"all_reduce the gradients of {parameters} over '{axis}'", (TextEdit(at, asked + lines),))


def _asked(
    program: Program, call: ast.Call, dist: str, groups: list[str], *, is_shared: bool
) -> Iterator[tuple[str, str]]:
    """Groups, each with what is to be asked before its ranks exchange anything: nothing, or, where one process runs the same code, whether there are any."""
    function = program.function(call)
    known = [
        program.source(node.test)
        for node in (ast.walk(function) if is_shared and function is not None else ())
        if isinstance(node, ast.If) and not node.orelse and _exchanges(node, dist)
    ]
    for group in groups:
        if is_shared:
            yield from ((group, condition) for condition in dict.fromkeys(known))
        if is_shared and group:
            yield group, f"{group} is not None"
        yield group, ""


def _exchanges(node: ast.If, dist: str) -> bool:
    """Whether a branch calls a collective itself."""
    calls = (each.func for statement in node.body for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == dist for each in calls
    )


def _behind(program: Program, statement: ast.Expr, readers: Collection[Span]) -> ast.stmt:
    """The backward pass, or the outermost loop of micro-batches: one that ends before an optimizer reads what it has added up."""
    behind: ast.stmt = statement
    others = [at.line for at in readers if at.file == program.file and at.line != statement.lineno]
    for outer in program.ancestors(statement):
        if isinstance(outer, ast.For | ast.While):
            if any(outer.lineno <= line <= (outer.end_lineno or outer.lineno) for line in others):
                break
            behind = outer
    return behind


def _loop(indent: str, parameters: str, body: Collection[str]) -> str:
    return f"{indent}for parameter in {parameters}:\n" + "".join(f"{indent}    {line}\n" for line in body)


def _reduction(program: Program, dist: str, group: str, reduce: str) -> list[str]:
    over = f", group={group}" if group else ""
    if reduce == "avg" and "ReduceOp.AVG" in program.text:
        return [f"{dist}.all_reduce(parameter.grad, op={dist}.ReduceOp.AVG{over})"]
    divided = [f"parameter.grad /= {dist}.get_world_size({group})"] if reduce == "avg" else []
    return [f"{dist}.all_reduce(parameter.grad{over})", *divided]


def _modules(program: Program, call: ast.Call) -> list[str]:
    """Expressions in sight that may hold the module: those whose parameters are asked for, else those that are called."""
    function = program.function(call)
    if function is None:
        return []
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    asked = [
        node.func.value
        for node in calls
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("parameters", "named_parameters")
    ]
    called = [node.func for node in calls if isinstance(node.func, ast.Name) or _is_of_self(node.func)]
    return list(dict.fromkeys(program.source(one) for one in asked or called))


def _is_of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _parameters(module: str, what: Unreduced) -> str:
    """An expression for the parameters, all of a module, all of one in it, or one by one; an empty text for too many."""
    if what.names == what.all:
        return f"{module}.parameters()"
    own = f"{module.rpartition('.')[2]}."
    own = own if all(name.startswith(own) for name in what.all) else ""
    within = {name.rpartition(".")[0] for name in what.names}
    inner = within.pop() if len(within) == 1 else ""
    if inner and {name for name in what.all if name.startswith(f"{inner}.")} == what.names:
        return f"{_reached(module, inner.removeprefix(own), 'submodule')}.parameters()"
    if len(what.names) > _LISTED:
        return ""
    listed = [_reached(module, name.removeprefix(own), "parameter") for name in sorted(what.names)]
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


def _reached(module: str, name: str, kind: str) -> str:
    """What a dotted name of a module's stands for."""
    plain = all(part.isidentifier() for part in name.split("."))
    return f"{module}.{name}" if plain else f'{module}.get_{kind}("{name}")'
