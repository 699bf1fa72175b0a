"""The checks that a file declares, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import copy
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphguard.ir import CheckRef, Span, Trouble
from graphguard.trace.claims.api import as_mesh
from graphguard.trace.claims.declarations import names_in


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """A check as its file declares it.

    ``meshes`` is None where they are computed: only running the file tells.  ``instance`` is which combination of the declared ``params`` it is.  What cannot be found has a
    ``trouble``: a file that does not parse, which has no name, and params that are computed.
    """

    ref: CheckRef
    meshes: tuple[dict[str, int], ...] | None = None
    trouble: Trouble | None = None
    instance: int | None = None


def identifier(path: str, name: str, root: str) -> str:
    """``path::name`` relative to the project; a file outside of it keeps its absolute path."""
    relative = os.path.relpath(path, root)
    shown = path if relative.startswith("..") else Path(relative).as_posix()
    return f"{shown}::{name}" if name else shown


def checks_in(path: str, text: str, root: str, tree: ast.Module | None = None) -> list[FoundCheck]:
    """The checks that a file's text declares; raises ``SyntaxError``, unless its ``tree`` is known."""
    if not may_declare(text):
        return []
    tree = tree or ast.parse(text, path)
    names = names_in(tree, path, root)
    lines = text.splitlines()
    own, constants = (
        {id(node) for node in ast.walk(tree)},
        _constants_of(tree),
    )  # a kept decorator may be another file's
    found: list[FoundCheck] = []
    for function in functions_of(tree.body):
        for decorator in filter(names.declares, function.decorator_list):
            span = name_span(path, function, lines)
            call = names.declaration(decorator)
            if call is None:
                found.append(FoundCheck(CheckRef(identifier(path, function.name, root), function.name, span), None))
            else:
                found += _instances(call, function.name, span, root, constants if id(call) in own else {})
    for statement in assignments_of(tree.body):
        assigned, target = names.called(statement.value), statement.targets[0]
        if assigned is not None and isinstance(target, ast.Name):
            span = span_of(path, target, lines)
            found += _instances(assigned, target.id, span, root, constants if id(assigned) in own else {})
    return found


def _instances(
    call: ast.Call, name: str, span: Span, root: str, constants: dict[str, ast.Constant]
) -> Iterator[FoundCheck]:
    """The checks that one declaration is: one for every combination of its params."""

    def reference(own: str) -> CheckRef:
        return CheckRef(identifier(span.file, own, root), own, span)

    meshes = _literal_meshes(call, constants)
    params = next((one.value for one in call.keywords if one.arg == "params"), call.args[1] if call.args[1:] else None)
    if params is None or (isinstance(params, ast.Constant) and params.value is None):
        yield FoundCheck(reference(name), meshes)
        return
    rows = _ids(params)
    if rows is None:
        yield FoundCheck(reference(name), meshes, Trouble("trace-error", COMPUTED, span))
        return
    for instance, values in enumerate(itertools.product(*rows)):
        yield FoundCheck(reference(f"{name}[{'-'.join(values)}]"), meshes, instance=instance)


COMPUTED = (
    "the params of this check are computed, so that nothing tells which checks there are before the file is run\n"
    "fix: write them out in gg.check, as in params={'layers': [1, 2]}"
)


def _ids(params: ast.expr) -> list[list[str]] | None:
    """What each value is called in the names of checks: plain ones by themselves, any other by its argument and number; None where they are not written out."""
    if not isinstance(params, ast.Dict):
        return None
    rows: list[list[str]] = []
    for key, values in zip(params.keys, params.values, strict=True):
        if (
            not isinstance(key, ast.Constant)
            or not isinstance(key.value, str)
            or not isinstance(values, ast.List | ast.Tuple)
        ):
            return None
        if any(isinstance(one, ast.Starred) for one in values.elts):
            return None
        ids = [_plain(one) for one in values.elts]
        named = [f"{key.value}{place}" if ids.count(one) > 1 or one is None else one for place, one in enumerate(ids)]
        rows.append(named)
    return rows


def _plain(value: ast.expr) -> str | None:
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    return str(found) if found is None or isinstance(found, str | int | float) else None


def function_name(check: str) -> str:
    """The name of a check's function: that of the check without the values of its params."""
    return check.partition("[")[0]


def assignments_of(body: list[ast.stmt]) -> Iterator[ast.Assign]:
    """The assignments to one name each that importing the file makes in the module itself, once."""
    for statement in body:
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from assignments_of(statement.body)
            yield from assignments_of(getattr(statement, "orelse", []))


def span_of(path: str, node: ast.expr, lines: list[str]) -> Span:
    """Where an expression of one line stands, in characters."""

    def column(at: int) -> int:
        return len(lines[node.lineno - 1].encode()[:at].decode()) + 1

    return Span(path, node.lineno, column(node.col_offset), node.lineno, column(node.end_col_offset or node.col_offset))


def may_declare(text: str) -> bool:
    """Whether a file names GraphGuard, or has decorators, which may come from a file of the project that does."""
    return "graphguard" in text or "\n@" in text


def functions_of(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """The functions that importing the file defines in the module itself."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from functions_of(statement.body)
            yield from functions_of(getattr(statement, "orelse", []))


def _literal_meshes(call: ast.Call, constants: dict[str, ast.Constant]) -> tuple[dict[str, int], ...] | None:
    value = next((one.value for one in call.keywords if one.arg == "mesh"), call.args[0] if call.args else None)
    if value is None:
        return None
    try:
        mesh = ast.literal_eval(_Written(constants).visit(copy.deepcopy(value)))
        meshes = tuple(as_mesh(one) for one in (mesh if isinstance(mesh, list | tuple) else [mesh]))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    return meshes or None


class _Written(ast.NodeTransformer):
    """Writes constants in the place of their names."""

    def __init__(self, constants: dict[str, ast.Constant]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._constants.get(node.id, node)


def _constants_of(tree: ast.Module) -> dict[str, ast.Constant]:
    """The numbers and texts that the module's own statements name, ``DP, TP = 2, 4``: names that nothing else in the file can bind."""
    found: dict[str, ast.Constant] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name() as name], value=ast.Constant(value=int() | str()) as value):
                found[name.id] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                pairs = zip(names, values, strict=True)
                found |= {n.id: v for n, v in pairs if isinstance(n, ast.Name) and isinstance(v, ast.Constant)}
    bound = [name for node in ast.walk(tree) for name in _bound(node)]
    return {} if "*" in bound else {name: value for name, value in found.items() if bound.count(name) == 1}


def _bound(node: ast.AST) -> Iterable[str]:
    """The names that a node binds, wherever it stands; ``*`` for names that it does not say."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.arg(arg=name):
            return (name,)
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [each.asname or each.name.partition(".")[0] for each in names]
        case ast.Global(names=names):
            return names
    return ()


def name_span(path: str, function: ast.FunctionDef, lines: list[str]) -> Span:
    """Where a function is named."""
    line = lines[function.lineno - 1]
    match = re.compile(r"def\s+" + re.escape(function.name)).search(line)
    end = match.end() if match else len(line)
    return Span(path, function.lineno, end - len(function.name) + 1, function.lineno, end + 1)
