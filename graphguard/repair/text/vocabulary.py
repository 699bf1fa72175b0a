"""How a file says things: its name for ``torch.distributed``, and the expressions in it that denote process groups."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fractions import Fraction

from graphguard.ir import Capture
from graphguard.repair.text.program import Function, Program, definitions

COLLECTIVES = frozenset(
    {
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "broadcast",
        "all_to_all",
        "all_to_all_single",
        "get_rank",
        "get_world_size",
    }
)


def distributed_name(program: Program) -> str | None:
    """The expression by which a file reaches ``torch.distributed``, such as ``dist``; None where it does not import it."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch.distributed":
                    return alias.asname or "torch.distributed"
        elif isinstance(node, ast.ImportFrom) and node.module == "torch" and node.level == 0:
            for alias in node.names:
                if alias.name == "distributed":
                    return alias.asname or "distributed"
    return None


def functional_name(program: Program) -> str:
    """The expression by which a file reaches ``torch.nn.functional``."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch.nn.functional":
                    return alias.asname or alias.name
    return "torch.nn.functional"


def called_name(call: ast.Call) -> str:
    """The last name of what is called; empty where that has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def imported_all_reduce(program: Program) -> str | None:
    """The local name of ``all_reduce``, where it is imported directly from ``torch.distributed``."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "torch.distributed":
            for alias in node.names:
                if alias.name == "all_reduce":
                    return alias.asname or alias.name
    return None


def import_line(program: Program) -> tuple[int, str]:
    """After which line to import ``torch.distributed``, and the line: behind the last top-level import, else the docstring."""
    line = 0
    for index, statement in enumerate(program.tree.body):
        docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Import | ast.ImportFrom) or docstring:
            line = statement.end_lineno or line
    return line, "import torch.distributed as dist\n"


def group_expressions(program: Program, at: ast.AST, axis: str) -> list[str]:
    """Expressions that may denote the process group of a mesh axis at a place, the likeliest first; empty: the whole world.

    They are guesses from names: an edit that uses one is proved before anybody sees it.
    """
    found: dict[str, None] = {}
    function, klass = program.function(at), program.klass(at)
    around = program.functions(at)
    for scope in (*around[:1], klass, *around[1:]):
        if scope is not None:
            found.update(dict.fromkeys(_group_arguments(program, scope)))
    for each in around:
        found.update(dict.fromkeys(_group_parameters(each, axis)))
        given = assignments(ast.walk(each))
        found.update((name, None) for name, value in given if _gives_group(program, value))
    if function is not None:
        found.update(dict.fromkeys(_attributes(function, "ctx", axis)))
    if klass is not None:
        found.update(dict.fromkeys(_attributes(klass, "self", axis)))
        found.update(dict.fromkeys(_declared_groups(program, klass)))
    found.update(dict.fromkeys(_module_names(program, axis)))
    visible = _visible(program, around)
    named = {text: _meaning(program, around, text) for text in found if _in_scope(text, function, visible)}
    return sorted(named, key=lambda text: (axis not in named[text], text == named[text]))


def _gives_group(program: Program, value: ast.expr) -> bool:
    """Whether an expression asks for a group, and does not only hand one to a call."""
    return "get_group" in program.source(value.func if isinstance(value, ast.Call) else value)


def _meaning(program: Program, functions: list[Function], text: str) -> str:
    """What the functions around a place assign to a name, as text; the text itself where it is no such name."""
    found = assignments(node for function in functions for node in ast.walk(function))
    return next((program.source(value) for name, value in found if name == text), text)


def rank_expressions(program: Program, at: ast.AST, axis: str) -> list[str]:
    """Expressions that may denote this rank's place along a mesh axis, the likeliest first; guesses, like those for groups."""
    found: dict[str, None] = {}
    scopes: list[ast.AST] = [outer for outer in program.ancestors(at) if isinstance(outer, Function)] or [program.tree]
    for scope in scopes:
        found.update(dict.fromkeys(_ranks_in(program, scope)))
    if (klass := program.klass(at)) is not None:
        found.update(dict.fromkeys(_attributes_for_ranks(program, klass)))
    for name in _meshes(program, at):
        found[f'{name}.get_local_rank("{axis}")'] = None
    for scope in scopes:
        found.update(dict.fromkeys(_parts_of_meshes(scope)))
    dist = distributed_name(program)
    if dist is not None:
        found.update(dict.fromkeys(f"{dist}.get_rank({group})" for group in group_expressions(program, at, axis)))
        found[f"{dist}.get_rank()"] = None
    return list(found)


def _meshes(program: Program, at: ast.AST) -> Iterator[str]:
    """Device meshes that can be seen from a place."""
    for function in program.functions(at):
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if "mesh" in argument.arg:
                yield argument.arg
    klass = program.klass(at)
    for node in ast.walk(klass) if klass is not None else ():
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name.endswith("mesh"):
                yield f"self.{name}"


def size_expressions(program: Program, at: ast.AST, factor: Fraction, capture: Capture) -> list[str]:
    """Names in sight for a factor or its reciprocal: numbers of ranks, and constants; those that are not there already come first."""
    found: dict[str, None] = {}
    sizes = {Fraction(size) for size in capture.mesh.values()}
    for scope in (
        ()
        if factor not in sizes and 1 / factor not in sizes
        else (outer for outer in program.ancestors(at) if isinstance(outer, Function))
    ):
        found.update((name, None) for name, value in assignments(ast.walk(scope)) if _gives_size(value))
    if not found:
        found.update((text, None) for text in _asked(program, at, factor, capture))
    used = {name.id for name in ast.walk(at) if isinstance(name, ast.Name)}
    passes = passes_name(program, at, factor)
    named = sorted((*found, *_constants(program, at, factor)), key=used.__contains__)
    return list(dict.fromkeys([*([passes] if passes and passes not in used else []), *named]))[:2]


def _asked(program: Program, at: ast.AST, factor: Fraction, capture: Capture) -> Iterator[str]:
    """The number of ranks as a question to the group, or the mesh, of the one axis that has so many."""
    axes = [axis for axis, size in capture.mesh.items() if size > 1 and factor in (size, Fraction(1, size))]
    dist = distributed_name(program)
    if len(axes) != 1:
        return
    groups = group_expressions(program, at, axes[0])[:1] if dist else []
    yield from (f"{dist}.get_world_size({group})" for group in groups)
    if not groups:
        yield from (f'{mesh}["{axes[0]}"].size()' for mesh in _meshes(program, at))


def passes_name(program: Program, at: ast.AST, factor: Fraction) -> str:
    """The constant of the file that says how often a loop around a place is passed, where that is a factor or its reciprocal; empty where there is none."""
    constants = set(_numbers(program, factor))
    for outer in program.ancestors(at):
        if isinstance(outer, Function):
            break
        if not isinstance(outer, ast.For):
            continue
        names = [node for node in ast.walk(outer.iter) if isinstance(node, ast.Name)]
        behind = (value for name in names for value in definitions(program, name))
        for each in (outer.iter, *behind):
            read = (node.id for node in ast.walk(each) if isinstance(node, ast.Name))
            if (found := next((name for name in read if name in constants), None)) is not None:
                return found
    return ""


def factor_name(program: Program, at: ast.expr, factor: Fraction) -> str:
    """What an expression multiplies or divides by, where that is a factor or its reciprocal: a constant of the file, or the number as it is written; empty where there is none."""
    match at:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            constants = set(_numbers(program, factor))
            for side in (right, left):
                if isinstance(side, ast.Name) and side.id in constants:
                    return side.id
                if isinstance(side, ast.Constant) and type(side.value) is int and side.value == factor:
                    return str(factor)
    return ""


def _numbers(program: Program, factor: Fraction) -> Iterator[str]:
    """Constants of the file that are a factor or its reciprocal."""
    for name, value in assignments(program.tree.body):
        number = value.value if isinstance(value, ast.Constant) else None
        if type(number) is int and number and factor in (number, Fraction(1, number)):
            yield name


def _constants(program: Program, at: ast.AST, factor: Fraction) -> Iterator[str]:
    """Constants of the file that the functions around a place read and that are a factor or its reciprocal."""
    read = {name.id for outer in program.functions(at) for name in ast.walk(outer) if isinstance(name, ast.Name)}
    yield from (name for name in _numbers(program, factor) if name in read)


def assignments(statements: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The names that statements assign a value of their own, pairwise for tuples."""
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name):
                        yield target.id, value


def _gives_size(value: ast.AST) -> bool:
    if isinstance(value, ast.IfExp):  # ``1 if group is None else dist.get_world_size(group)``
        return _gives_size(value.body) or _gives_size(value.orelse)
    return isinstance(value, ast.Call) and _called(value) in {"get_world_size", "size"}


def _ranks_in(program: Program, scope: ast.AST) -> Iterator[str]:
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _gives_rank(value):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, given in zip(names, values, strict=False):
                    if isinstance(target, ast.Name) and _gives_rank(given):
                        yield target.id
            case ast.arg(arg=name) if name == "rank" or name.endswith("_rank"):
                yield name
            case ast.Attribute(attr=name) if name == "rank" or name.endswith("_rank"):
                yield program.source(node)
            case ast.Call() if _gives_rank(node):
                yield program.source(node)


def _attributes_for_ranks(program: Program, klass: ast.ClassDef) -> Iterator[str]:
    """Places of the rank that objects of a class keep."""
    for node in ast.walk(klass):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()) if (
                name == "rank" or name.endswith("_rank")
            ):
                yield program.source(node)


def _parts_of_meshes(scope: ast.AST) -> Iterator[str]:
    """Ranks along parts of meshes that have names."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id=mesh))) if (
                "mesh" in mesh
            ):
                yield f"{name}.get_local_rank()"


def _gives_rank(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and _called(value) in {"get_rank", "get_local_rank", "get_group_rank"}


def _group_arguments(program: Program, scope: ast.AST) -> Iterator[str]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and _called(node) in COLLECTIVES:
            for keyword in node.keywords:
                if keyword.arg == "group":
                    yield program.source(keyword.value)
            if _called(node) in {"get_rank", "get_world_size"} and node.args:
                yield program.source(node.args[0])


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _spelled(name: str, text: str, axis: str) -> Iterator[str]:
    if "mesh" in name:
        yield f'{text}.get_group("{axis}")'
        yield f"{text}.get_group()"
    elif "group" in name or name == "pg":
        yield text


def _group_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, axis: str) -> Iterator[str]:
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield from _spelled(argument.arg, argument.arg, axis)


def _attributes(scope: ast.AST, owner: str, axis: str) -> Iterator[str]:
    for node in ast.walk(scope):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == owner:
                yield from _spelled(attribute, f"{owner}.{attribute}", axis)


def _declared_groups(program: Program, klass: ast.ClassDef) -> Iterator[str]:
    """Attributes that are set from a parameter declared as a process group, whatever they are called."""
    declared = {
        argument.arg
        for node in ast.walk(klass)
        if isinstance(node, ast.arguments)
        for argument in (*node.posonlyargs, *node.args, *node.kwonlyargs)
        if argument.annotation is not None and "ProcessGroup" in program.source(argument.annotation)
    }
    for node in ast.walk(klass):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)], value=ast.Name(id=name)
            ) if name in declared:
                yield f"self.{attribute}"


def _module_names(program: Program, axis: str) -> Iterator[str]:
    for statement in program.tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield from _spelled(name.lower(), name, axis)
            case ast.FunctionDef(name=name, args=arguments) if "group" in name and not arguments.args:
                yield f"{name}()"
            case ast.ImportFrom(names=names):
                for alias in names:
                    local = alias.asname or alias.name
                    if local.startswith("get_") and local.endswith("group"):
                        yield f"{local}()"


def _in_scope(text: str, function: ast.AST | None, visible: frozenset[str]) -> bool:
    """Whether the name that an expression starts with can be seen in a function: parameters of other functions cannot."""
    root = text.split(".")[0].split("(")[0]
    if root not in {"self", "ctx"}:
        return not root.isidentifier() or root in visible
    return isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        argument.arg == root for argument in function.args.args
    )


def _visible(program: Program, functions: list[Function]) -> frozenset[str]:
    """The names that functions around a place and the file bind; a star import may bind any, and then all that the file reads count."""
    found: set[str] = set()
    names = (node for scope in functions for node in ast.walk(scope))
    for node in (*names, *_of_module(program.tree)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.split(".")[0])
    if "*" in found:
        found |= {node.id for node in ast.walk(program.tree) if isinstance(node, ast.Name)}
    return frozenset(found)


def _of_module(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a file outside of functions and classes, these themselves included."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
