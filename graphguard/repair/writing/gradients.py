"""Repairs of gradients: the forward call stays as it is, the gradient is reduced on its way back."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from graphguard.ir import Span
from graphguard.repair.text.program import Function, Program, assigned_name, first_operand
from graphguard.repair.text.vocabulary import distributed_name, group_expressions, import_line
from graphguard.repair.writing.idioms import method_of, reducing_functions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

COMMUNICATING = ("reduce", "gather", "all_to_all", "broadcast")
CLASS = '''class ReduceGradient(torch.autograd.Function):
    """Identity in the forward pass; the gradient is summed over a group in the backward pass."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        {dist}.all_reduce(gradient, group=ctx.group)
        return gradient, None


'''


def after_backward(
    program: Program, span: Span, axis: str, groups: list[str], meant: Collection[str] = ()
) -> Iterator[Draft]:
    """Reduce gradients behind the call that computes them: ``loss.backward()``, or ``(grad,) = torch.autograd.grad(...)``; first those whose names are among those ``meant``."""
    call = program.expression(span)
    statement = program.statement(call) if call is not None else None
    function = program.function(call) if call is not None else None
    dist = distributed_name(program)
    if not isinstance(call, ast.Call) or statement is None or function is None or dist is None:
        return
    several = list(_gradients_of(program, call, statement, function))
    known = {name for names in several for name in names if name in meant}
    several.sort(key=lambda names: {*names} != known)
    for group in groups:
        for names in several:
            argument = f", group={group}" if group else ""
            indent = program.indent(statement)
            lines = "".join(f"{indent}{dist}.all_reduce({name}{argument})\n" for name in names)
            end = statement.end_lineno or statement.lineno
            place = Span(program.file, end + 1, 1, end + 1, 1)
            yield Draft(f"all_reduce({', '.join(names)}) over '{axis}'", (TextEdit(place, lines),))


def taken(program: Program, span: Span) -> Span | None:
    """Where one gradient is taken from what ``torch.autograd.grad`` gives: ``grad(...)[0]``; None for any other call."""
    call = program.expression(span)
    outer = program.parents.get(call) if call is not None else None
    match call, outer:
        case ast.Call(func=ast.Attribute(attr="grad") | ast.Name(id="grad")), ast.Subscript(
            slice=ast.Constant(value=int())
        ):
            return program.span(outer)
    return None


def _gradients_of(
    program: Program, call: ast.Call, statement: ast.stmt, function: Function
) -> Iterator[tuple[str, ...]]:
    """The expressions that hold gradients after a call of autograd: all of them together first, then each alone."""
    match call.func:
        case ast.Attribute(attr="backward") if isinstance(statement, ast.Expr):
            found = [
                program.source(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name)
            ]
        case ast.Attribute(attr="grad") if isinstance(statement, ast.Assign):
            targets = statement.targets[0]
            elements = targets.elts if isinstance(targets, ast.Tuple | ast.List) else [targets]
            found = [each.id for each in elements if isinstance(each, ast.Name)]
        case _:
            return
    names = tuple(dict.fromkeys(found))
    if names:
        yield names
    if len(names) > 1:
        yield from ((name,) for name in names)


def in_backward(program: Program, span: Span, axis: str, others: list[Program]) -> Iterator[Draft]:
    """Reduce in the backward of a custom function of the project through which the operand came, and which forgets it."""
    call = program.expression(span)
    function = program.function(call) if call is not None else None
    if call is None or function is None:
        return
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    for other in [program, *(each for each in others if each.file != program.file)]:
        for klass in _functions_applied(other, function, names):
            backward = method_of(klass, "backward")
            if backward is not None and not any(_named(backward, word) for word in COMMUNICATING):
                yield from _reduced_returns(other, klass, backward, axis)


def reduced_result(program: Program, span: Span, axis: str, groups: list[str]) -> Iterator[Draft]:
    """Send what a call gives through a function that is the identity forward and a reduction backward."""
    call = program.expression(span)
    if call is None:
        return
    text = program.source(call)
    title = f"reduce the gradient of {assigned_name(program.statement(call), call) or text} over '{axis}'"
    for replacement, more in _reducing(program, call, text, groups):
        yield Draft(title, (TextEdit(program.span(call), replacement), *more))


def reduced_results(program: Program, span: Span, axis: str, groups: list[str]) -> Iterator[Draft]:
    """Reduce all gradients of a tuple where a call has just given it to a name."""
    call = program.expression(span)
    statement = program.statement(call) if call is not None else None
    dist, name = distributed_name(program), assigned_name(statement, call) if call is not None else ""
    if dist is None or statement is None or not name:
        return
    indent = program.indent(statement)
    end = statement.end_lineno or statement.lineno
    at = Span(program.file, end + 1, 1, end + 1, 1)
    for group in groups:
        more = f", group={group}" if group else ""
        loop = f"{indent}for gradient in {name}:\n{indent}    {dist}.all_reduce(gradient{more})\n"
        yield Draft(f"all_reduce each of {name} over '{axis}'", (TextEdit(at, loop),))


def reduced_parameter(program: Program, call: ast.expr, name: str, axis: str, groups: list[str]) -> Iterator[Draft]:
    """Send a parameter, where the function around a call reads it, through the identity whose backward reduces."""
    function = program.function(call)
    for node in ast.walk(function) if function is not None else ():
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        text = program.source(node)
        if not text.startswith("self.") or not f".{name}".endswith(text.removeprefix("self")):
            continue
        title = f"reduce the gradient of {text} over '{axis}'"
        for replacement, more in _reducing(program, call, text, groups):
            yield Draft(title, (TextEdit(program.span(node), replacement), *more), program.span(node))


def reduced_operand(program: Program, span: Span, axis: str, groups: list[str]) -> Iterator[Draft]:
    """Send the operand of a call through a function that is the identity forward and a reduction backward.

    A name that is read several times is bound again before its first use, so that all its gradients are reduced together.
    """
    call = program.expression(span)
    operand = first_operand(call)
    if call is None or operand is None:
        return
    if isinstance(operand, ast.Starred):  # ``f(*args)``: the first of them
        args = program.source(operand.value)
        for replacement, more in _reducing(program, call, f"{args}[0]", groups):
            edit = TextEdit(program.span(operand), f"{replacement}, *{args}[1:]")
            yield Draft(f"reduce the gradient of {args}[0] over '{axis}'", (edit, *more))
        return
    for replacement, more in _reducing(program, call, program.source(operand), groups):
        yield from _used(program, call, operand, replacement, more, axis)


def reducing_forms(program: Program, span: Span) -> list[str]:
    """What the file has to read a tensor through so that its gradient is reduced, with ``{}`` in the tensor's place."""
    at = program.enclosing_function(span)
    groups = group_expressions(program, at, "") if at is not None else []
    return [
        form
        for name, count in _existing(program)
        for form in ([f"{name}({{}})"] if count == 1 else [f"{name}({{}}, {group})" for group in groups])
    ]


def _reducing(
    program: Program, call: ast.expr, text: str, groups: list[str]
) -> Iterator[tuple[str, tuple[TextEdit, ...]]]:
    """Calls on an expression that reduce its gradient, with what must be written for them: what the file has, else a new class."""
    for name, count in _existing(program):
        if count == 1:
            yield f"{name}({text})", ()
        else:
            yield from ((f"{name}({text}, {group or 'None'})", ()) for group in groups)
    for group in groups:
        yield f"ReduceGradient.apply({text}, {group or 'None'})", _new_class(program, call)


def _used(
    program: Program, call: ast.expr, operand: ast.expr, replacement: str, more: tuple[TextEdit, ...], axis: str
) -> Iterator[Draft]:
    text = program.source(operand)
    title = f"reduce the gradient of {text} over '{axis}'"
    wrapped = Draft(title, (TextEdit(program.span(operand), replacement), *more))
    function = program.function(call)
    if not isinstance(operand, ast.Name) or function is None:
        yield wrapped
        return
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == text]
    reads = sorted((node for node in names if isinstance(node.ctx, ast.Load)), key=lambda node: node.lineno)
    bound = [
        Draft(title, (_line_before(program, statement, f"{text} = {replacement}"), *more))
        for statement in dict.fromkeys((program.statement(reads[0] if reads else operand), program.statement(operand)))
        if statement is not None
    ]
    yield from [*bound, wrapped] if len(reads) > 1 else [wrapped, *bound]


def _line_before(program: Program, statement: ast.stmt, line: str) -> TextEdit:
    place = Span(program.file, statement.lineno, 1, statement.lineno, 1)
    return TextEdit(place, f"{program.indent(statement)}{line}\n")


def _functions_applied(program: Program, function: Function, names: set[str]) -> Iterator[ast.ClassDef]:
    """The autograd functions of this file whose ``apply`` gave one of these names, or stands in the call itself."""
    classes = {node.name: node for node in ast.walk(program.tree) if isinstance(node, ast.ClassDef)}
    wrappers = {
        node.name: applied
        for node in ast.walk(program.tree)
        if isinstance(node, ast.FunctionDef)
        for applied in _applied(node)
        if applied in classes
    }
    for statement in ast.walk(function):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not any(isinstance(target, ast.Name) and target.id in names for target in targets):
            continue
        for inner in ast.walk(statement):
            match inner:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="apply")) if name in classes:
                    yield classes[name]
                case ast.Call(func=ast.Name(id=name)) if name in wrappers:
                    yield classes[wrappers[name]]


def _applied(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="apply")):
                yield name


def _named(scope: ast.AST, word: str) -> bool:
    """Whether a function calls one whose name contains a word: a collective, or a helper that is called after it."""
    calls = (node.func for node in ast.walk(scope) if isinstance(node, ast.Call))
    names = (each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls)
    return any(word in name for name in names)


def _reduced_returns(program: Program, klass: ast.ClassDef, backward: ast.FunctionDef, axis: str) -> Iterator[Draft]:
    """Reduce the first value that a backward returns, with the group that its forward was given."""
    statement = backward.body[-1]
    if not isinstance(statement, ast.Return) or statement.value is None:
        return
    first = (
        statement.value.elts[0] if isinstance(statement.value, ast.Tuple) and statement.value.elts else statement.value
    )
    dist = distributed_name(program) or "torch.distributed"
    indent = program.indent(statement)
    name = program.source(first) if isinstance(first, ast.Name) else program.fresh("gradient", backward)
    at = Span(program.file, statement.lineno, 1, statement.lineno, 1)
    for helper in reducing_functions(program, statement):
        title = f"return {helper}({program.source(first)}) in {klass.name}.backward"
        edit = TextEdit(program.span(first), f"{helper}({program.source(first)})")
        yield Draft(title, (edit,), program.span(statement))
    for group, saved in _saved_groups(program, klass):
        argument = f", group={group}" if group else ""
        lines = f"{indent}{name} = {program.source(first)}.contiguous()\n{indent}{dist}.all_reduce({name}{argument})\n"
        rename = () if isinstance(first, ast.Name) else (TextEdit(program.span(first), name),)
        title = f"all_reduce({name}) over '{axis}' in {klass.name}.backward"
        yield Draft(title, (TextEdit(at, lines), *rename, *saved), program.span(statement))


def _saved_groups(program: Program, klass: ast.ClassDef) -> Iterator[tuple[str, tuple[TextEdit, ...]]]:
    """Group expressions for a backward: what the forward saved, else a parameter that it must save first."""
    forward = method_of(klass, "forward")
    if forward is None:
        return
    saved = [
        target.attr
        for statement in ast.walk(forward)
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "ctx"
    ]
    for attribute in saved:
        if "group" in attribute or attribute == "pg":
            yield f"ctx.{attribute}", ()
    parameters = [argument.arg for argument in forward.args.args if "group" in argument.arg]
    for parameter in parameters:
        first = forward.body[0]
        line = f"{program.indent(first)}ctx.{parameter} = {parameter}\n"
        at = Span(program.file, first.lineno, 1, first.lineno, 1)
        yield f"ctx.{parameter}", (TextEdit(at, line),)
    yield "", ()


def _existing(program: Program) -> Iterator[tuple[str, int]]:
    """Callables of this file that are the identity forward and reduce backward, with their number of arguments."""
    for node in program.tree.body:
        if isinstance(node, ast.ClassDef):
            forward, backward = method_of(node, "forward"), method_of(node, "backward")
            if forward and backward and _named(backward, "reduce") and not _named(forward, "reduce"):
                yield f"{node.name}.apply", len(forward.args.args) - 1
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name.startswith("copy_to_"):
                    yield alias.asname or alias.name, 1


def _new_class(program: Program, call: ast.expr) -> tuple[TextEdit, ...]:
    """The class before the top-level statement around a call, and the imports that it needs."""
    top: ast.AST = call
    for outer in program.ancestors(call):
        if isinstance(outer, ast.Module):
            break
        top = outer
    decorators = [decorator.lineno for decorator in getattr(top, "decorator_list", [])]
    line = min([getattr(top, "lineno", 1), *decorators])
    dist = distributed_name(program)
    edits = [TextEdit(Span(program.file, line, 1, line, 1), CLASS.format(dist=dist or "dist"))]
    if dist is None:
        after, text = import_line(program)
        edits.append(TextEdit(Span(program.file, after + 1, 1, after + 1, 1), text))
    return tuple(edits)
