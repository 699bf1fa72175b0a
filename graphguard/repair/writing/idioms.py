"""Reductions as a file itself does them: its own helpers, autograd functions, functional collectives, and flags of its classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.text.program import Function, Program, assigned_name
from graphguard.repair.text.vocabulary import called_name
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

FUNCTIONAL = "torch.distributed._functional_collectives"
_HELPERS = ("reduce_from_", "tensor_model_parallel_all_reduce")


def functional_call(program: Program, call: ast.expr) -> bool:
    """Whether a call is one of a functional collective."""
    if not isinstance(call, ast.Call):
        return False
    match call.func:
        case ast.Name(id=name):
            return name in _functional_names(program).values()
        case ast.Attribute(value=ast.Name(id=module)):
            return module in _functional_modules(program)
    return False


def change_functional(program: Program, call: ast.Call, reduce: str) -> Iterator[Draft]:
    """Give a functional collective another reduction."""
    given = next((word.value for word in call.keywords if word.arg == "reduceOp"), None)
    place = given if given is not None else call.args[1] if len(call.args) > 1 else None
    if place is not None:
        yield Draft(f"reduce with {reduce}", (TextEdit(program.span(place), f'"{reduce}"'),))


def reduced_by_helper(program: Program, value: ast.expr, axis: str, groups: list[str]) -> Iterator[Draft]:
    """Send a value through what the file has for reductions: its result replaces the value."""
    text = program.source(value)
    for helper, takes_group in _helpers(program, value):
        for group in groups if takes_group else [""]:
            if not takes_group or group:
                arguments = f"{{}}, {group}" if takes_group else "{}"
                yield _through(program, value, f"{helper}({arguments})", f"{helper}({text})", axis)
    name = _functional_names(program).get("all_reduce")
    if name is None:
        module = next(iter(_functional_modules(program)), None)
        name = None if module is None else f"{module}.all_reduce"
    for group in _functional_groups(program) if name is not None else ():
        yield _through(program, value, f'{name}({{}}, "sum", {group})', f"{name}({text})", axis)


def _through(program: Program, value: ast.expr, form: str, title: str, axis: str) -> Draft:
    statement = program.statement(value)
    name = assigned_name(statement, value)
    if name and statement is not None:
        line = f"\n{program.indent(statement)}{name} = {form.format(name)}"
        last = statement.end_lineno or statement.lineno
        column = len(program.lines[last - 1]) + 1
        edit = TextEdit(Span(program.file, last, column, last, column), line)
        return Draft(f"{name} = {form.format(name)}, over '{axis}'", (edit,))
    return Draft(f"{title} over '{axis}'", (TextEdit(program.span(value), form.format(program.source(value))),))


def _functional_names(program: Program) -> dict[str, str]:
    """The local names of functional collectives, by their own."""
    return {
        alias.name: alias.asname or alias.name
        for node in program.tree.body
        if isinstance(node, ast.ImportFrom) and node.module == FUNCTIONAL
        for alias in node.names
    }


def _functional_modules(program: Program) -> list[str]:
    found = []
    for node in program.tree.body:
        if isinstance(node, ast.Import):
            found += [alias.asname for alias in node.names if alias.name == FUNCTIONAL and alias.asname]
        elif isinstance(node, ast.ImportFrom) and f"{node.module}._functional_collectives" == FUNCTIONAL:
            found += [alias.asname or alias.name for alias in node.names if alias.name == "_functional_collectives"]
    return found


def _functional_groups(program: Program) -> list[str]:
    """What the file gives its functional collectives as groups."""
    calls = [node for node in ast.walk(program.tree) if isinstance(node, ast.Call) and functional_call(program, node)]
    texts = [program.source(word.value) for call in calls for word in call.keywords if word.arg == "group"]
    texts += [program.source(call.args[-1]) for call in calls if len(call.args) > 2]
    return list(dict.fromkeys(texts))


def _helpers(program: Program, value: ast.expr) -> Iterator[tuple[str, bool]]:
    """Callables in sight that reduce their argument and give it back, with whether they want a group."""
    around = program.klass(value)
    for node in program.tree.body:
        match node:
            case ast.ImportFrom(names=names):
                for alias in names:
                    if alias.name.startswith(_HELPERS):
                        yield alias.asname or alias.name, False
            case ast.ClassDef(name=name) if node is not around:
                forward, backward = method_of(node, "forward"), method_of(node, "backward")
                if forward and backward and _reduces(forward) and not _reduces(backward):
                    yield f"{name}.apply", len(forward.args.args) > 2
    for name in reducing_functions(program, value):
        yield name, False


def reducing_functions(program: Program, at: ast.AST) -> Iterator[str]:
    """Functions of the file, other than the one around a place, that reduce their only argument and give it back."""
    inside = program.function(at)
    for node in program.tree.body:
        if not isinstance(node, ast.FunctionDef) or node is inside or not node.args.args:
            continue
        required = len(node.args.args) - len(node.args.defaults)
        if required == 1 and _reduces(node) and _returns(node):
            yield node.name


def method_of(klass: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The method of a class by its name."""
    return next((node for node in klass.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _reduces(scope: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and called_name(node) == "all_reduce"
        for node in ast.walk(scope)
    )


def _returns(function: ast.FunctionDef) -> bool:
    first = function.args.args[0].arg
    last = function.body[-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and last.value.id == first


def flip_flags(program: Program, span: Span, others: list[Program]) -> Iterator[Draft]:
    """Turn a flag of the class around a place where an object of that class is made: ``reduce_results=False``."""
    function = program.enclosing_function(span)
    klass = program.klass(function) if function is not None else None
    if function is None or klass is None:
        return
    flags = _tested(function)
    for other in dict.fromkeys([program.file, *(each.file for each in others)]):
        there = next(each for each in [program, *others] if each.file == other)
        for call in ast.walk(there.tree):
            if not isinstance(call, ast.Call) or called_name(call) != klass.name:
                continue
            for word in call.keywords:
                if word.arg in flags and isinstance(word.value, ast.Constant) and isinstance(word.value.value, bool):
                    text = str(not word.value.value)
                    place = there.span(word.value)
                    yield Draft(f"{word.arg}={text}", (TextEdit(place, text),), there.span(call))


def flip_arguments(program: Program, span: Span, others: list[Program]) -> Iterator[Draft]:
    """Turn a flag that a function is called with, or that it has by default: ``tensor_parallel_output_grad=False``."""
    call = program.expression(span)
    if not isinstance(call, ast.Call):
        return
    for word in call.keywords:
        if word.arg and isinstance(word.value, ast.Constant) and isinstance(word.value.value, bool):
            text = f"{word.arg}={not word.value.value}"
            yield Draft(text, (TextEdit(program.span(word.value), str(not word.value.value)),), span)
    given = {word.arg for word in call.keywords}
    for name, default in _flags(called_name(call), len(call.args), [program, *others]):
        if name not in given:
            text = f"{name}={not default}"
            end = program.span(call)
            at = Span(end.file, end.end_line, end.end_column - 1, end.end_line, end.end_column - 1)
            yield Draft(text, (TextEdit(at, f"{', ' if call.args or call.keywords else ''}{text}"),), span)


def _flags(called: str, given: int, programs: list[Program]) -> Iterator[tuple[str, bool]]:
    """The flags, with their defaults, that a function of the project has behind its first arguments."""
    for program in programs:
        for node in program.tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name != called:
                continue
            arguments, defaults = node.args.args, node.args.defaults
            pairs = list(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
            known = {argument.arg for argument in arguments[:given]}
            pairs += [
                (name, value) for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
            ]
            for argument, value in pairs:
                if argument.arg not in known and isinstance(value, ast.Constant) and isinstance(value.value, bool):
                    yield argument.arg, value.value


def _tested(function: Function) -> set[str]:
    """The attributes of ``self`` that a function decides by."""
    return {
        node.attr
        for branch in ast.walk(function)
        if isinstance(branch, ast.If | ast.IfExp)
        for node in ast.walk(branch.test)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
