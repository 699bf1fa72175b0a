"""Where a number was decided that a call brings in: not where it is kept or handed on, but where a caller gives it, or leaves it at a default."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from graphguard.ir import Frame, Graph, Node, Span
from graphguard.refine.finding import Finding, Related
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program, is_module
from graphguard.repair.text.vocabulary import called_name

_STEPS = 6  # from what keeps a number to who gave it
_Read = tuple[Program, ast.expr]


def origin(graph: Graph, node: Node, sources: Sources) -> Span | None:
    """Where the number that a call reads from an attribute was given, if one place gives it, or one that makes the object in sight; None where it is no such number, or is worked out where it is kept.

    Of what the function around it reads as well: what another object of its class was given otherwise.
    """
    frames = sources.frames(graph, node)
    owners = {name for frame in frames[1:] for name in _receivers(sources, frame.span)}
    return _given_at(sources, frames[0].span, owners, around=True) if frames else None


def given_to_shared(finding: Finding, sources: Sources) -> Finding:
    """A finding in code that the specification runs too, at the one place that gives what is read there: such code is right, and what it was given is not."""
    span = finding.span
    if span is None or not sources.is_shared(Frame(span, "")):
        return finding
    given = _given_at(sources, span, frozenset(), around=False)
    inner = Related(span, "what is computed with it")
    return finding if given is None else replace(finding, span=given, related=(inner, *finding.related))


def _given_at(sources: Sources, span: Span, owners: Collection[str], *, around: bool) -> Span | None:
    """Where what an expression reads from attributes was given; ``owners`` are names of objects of which the calls around it ask something.

    ``around``: what the function around it reads as well, if another object of its class was given otherwise.
    """
    program = sources.program(span.file)
    value = program.expression(span) if program is not None else None
    if program is None or value is None:
        return None
    while isinstance(outer := program.parents.get(value), ast.BinOp):
        value = outer
    klass = program.klass(value)
    places: list[tuple[ast.AST, bool]] = [(value, False)] if isinstance(value, ast.BinOp | ast.Call) else []
    if around and (function := program.function(value)) is not None:
        places.append((function, True))
    for place, differing in places:
        for read in ast.walk(place):
            if isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load) and _is_number(program, read):
                own = klass if isinstance(read.value, ast.Name) and read.value.id == "self" else None
                for holder, given in _assigned(sources, read.attr, own):
                    found = _given(sources, holder, given, owners, _STEPS, differing)
                    if found is not None:
                        return found
    return None


def _is_number(program: Program, read: ast.Attribute) -> bool:
    """Whether what is read may be a number: not what a module has, nor a group to communicate in."""
    around = program.parents.get(read)
    return not is_module(read) and not (isinstance(around, ast.keyword) and around.arg == "group")


def _receivers(sources: Sources, span: Span) -> Iterator[str]:
    """The object of which a call asks something, by its name."""
    program = sources.program(span.file)
    match program.expression(span) if program is not None else None:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            yield name


def _assigned(sources: Sources, attr: str, klass: ast.ClassDef | None) -> list[_Read]:
    """What functions of the project, or of a class alone, set an attribute to."""
    found: list[_Read] = []
    for program in sources.programs():
        for statement in ast.walk(program.tree):
            if not isinstance(statement, ast.Assign) or program.function(statement) is None:
                continue
            if klass is not None and program.klass(statement) is not klass:
                continue
            for target in statement.targets:
                pairs = (
                    zip(target.elts, statement.value.elts, strict=False)
                    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
                    else [(target, statement.value)]
                )
                found += [(program, v) for t, v in pairs if isinstance(t, ast.Attribute) and t.attr == attr]
    return found


def _given(
    sources: Sources, program: Program, value: ast.expr, owners: Collection[str], steps: int, differing: bool
) -> Span | None:
    """Where callers give what a parameter is, the name of a parameter followed further; None for anything else.  ``differing``: if another caller gives another thing."""
    function = program.function(value)
    if not isinstance(value, ast.Name) or function is None or not steps or not _is_parameter(program, value):
        return None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    klass = program.klass(function)
    called = _heirs(sources, klass.name) if klass is not None and function.name == "__init__" else {function.name}
    bound = names[1:] if names[:1] in (["self"], ["cls"]) else names
    calls = [
        (each, node)
        for each in sources.programs()
        for node in ast.walk(each.tree)
        if isinstance(node, ast.Call) and called_name(node) in called
    ]
    chosen = calls if len(calls) < 2 else [row for row in calls if any(name in owners for name in _names(*row))]
    if len(chosen) != 1 or (differing and len({_text(each, call, value.id, bound) for each, call in calls}) < 2):
        return None
    holder, call = chosen[0]
    argument = _argument(call, value.id, bound)
    if argument is not None and _is_parameter(holder, argument):
        return _given(sources, holder, argument, owners, steps - 1, False)
    return holder.span(call)


def _heirs(sources: Sources, name: str) -> set[str]:
    """A class, and those of the project that are made as it is."""
    heirs = {name}
    for program in sources.programs():
        for node in ast.walk(program.tree):
            if isinstance(node, ast.ClassDef) and heirs.intersection(map(_last_word, node.bases)):
                own = any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body)
                heirs.update(() if own else (node.name,))
    return heirs


def _last_word(value: ast.expr) -> str:
    """The name that an expression ends in."""
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def _is_parameter(program: Program, value: ast.expr) -> bool:
    function = program.function(value)
    names = () if function is None else (each.arg for each in (*function.args.posonlyargs, *function.args.args))
    return isinstance(value, ast.Name) and value.id in names


def _argument(call: ast.Call, name: str, bound: Sequence[str]) -> ast.expr | None:
    """What a call gives for a parameter."""
    at = bound.index(name)
    given = next((word.value for word in call.keywords if word.arg == name), None)
    return call.args[at] if given is None and at < len(call.args) else given


def _text(program: Program, call: ast.Call, name: str, bound: Sequence[str]) -> str:
    argument = _argument(call, name, bound)
    return "" if argument is None else program.source(argument)


def _names(program: Program, call: ast.Call) -> Sequence[str]:
    """The names that the statement around a call gives what it makes."""
    statement = program.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
