"""What stands for another thing of its kind: a group, rank or size, an operator, an order of dims, an order for its inverse, and what is done for one of two alone."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import Final

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, asks_which, kept_by, shown
from graphguard.repair.text.program import is_module
from graphguard.repair.text.vocabulary import called_name
from graphguard.report.diagnostics import TextEdit

_ORDERS: Final = frozenset({"permute", "movedim", "transpose"})
_PLACES: Final = ("group", "rank", "ranks", "size")
_GROUPS: Final = frozenset({"get_group", "new_group", "WORLD"})
_ASKED: Final = frozenset({"get_rank", "get_world_size", "size"})  # a number of one
_OTHER: Final[dict[type[ast.AST], str]] = {ast.Mod: "//", ast.FloorDiv: "%", ast.Add: "-", ast.Sub: "+"}
#: Bounds that count, or do not.
COMPARED: Final[dict[type[ast.AST], str]] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def places(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """Another group, rank or size that the same object keeps, or that is in sight by another name; not in what a branch asks of anything but a rank."""
    program = scope.program
    own = [node for node in ast.walk(program.tree) if isinstance(node, ast.ClassDef)]
    classes = [kept_by(node) for node in own]
    groups = [groups_of(node) for node in own]
    asked = _asked(scope)
    for node in scope.nodes():
        match node:
            case _ if node in asked:
                continue
            case ast.Attribute(attr=attr, ctx=ast.Load()) if attr.endswith(_PLACES):
                kept = sorted({other for each in classes if attr in each for other in each if _is_like(attr, other)})
                texts = [f"{program.source(node.value)}.{other}" for other in kept]
            case ast.Attribute(attr=attr, ctx=ast.Load()):
                others = sorted({other for each in groups if attr in each for other in each} - {attr})
                texts = [f"{program.source(node.value)}.{other}" for other in others]
            case ast.Name(id=name, ctx=ast.Load()) if name.endswith(_PLACES):
                given = program.assigned(scope.function)
                texts = [
                    other
                    for other in scope.bound_before(node)
                    if _is_like(name, other) and not any(map(_is_truth, given.get(other, ())))
                ]
            case _:
                continue
        for text in texts:
            yield scope.instead(node, text, f"'{program.source(node)}' stands where '{text}' is needed")


def groups_of(klass: ast.ClassDef) -> set[str]:
    """The attributes that a class makes process groups, whatever their names."""
    found: set[str] = set()
    for node in ast.walk(klass):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value):
                names = {getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(value)}
                if names & _GROUPS and not names & _ASKED:
                    found.add(attr)
    return found


def _is_truth(value: ast.expr) -> bool:
    """Whether an expression is an answer and no size, whatever it is called: ``divide_by_world_size = op == "mean"``."""
    match value:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
            return True
    return False


def _is_like(name: str, other: str) -> bool:
    return name != other and name.rpartition("_")[2] == other.rpartition("_")[2]


def operators(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """The remainder for the quotient of whole numbers and the other way round, a step forward for one back, a bound of a mask that counts.

    What a branch asks of anything but a rank is a decision: of the few numbers that it is asked of, many other questions have the same answers.
    """
    source = scope.program.source
    asked = _asked(scope)
    for node in scope.nodes():
        match node:
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), left=left) if node in asked or _is_text(left):
                continue
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), left=left, right=right):
                yield _otherwise(scope, node, f"{source(left)} {_OTHER[type(node.op)]} {source(right)}")
                if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
                    yield _otherwise(scope, left, f"{source(left.left)} {_OTHER[type(left.op)]} {source(left.right)}")
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARED:
                if scope.computes(node, scene):
                    yield _otherwise(scope, node, f"{source(left)} {COMPARED[type(op)]} {source(right)}")


def _asked(scope: Scope) -> set[ast.AST]:
    """What branches ask of anything but a rank."""
    branches = [node for node in scope.nodes() if isinstance(node, ast.If | ast.IfExp | ast.While)]
    return {each for node in branches if not asks_which(node.test) for each in ast.walk(node.test)}


def _otherwise(scope: Scope, node: ast.expr, text: str) -> Mistake:
    return scope.instead(node, text, f"'{scope.program.source(node)}' stands where '{text}' is needed")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def orders(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """Two dims of an order exchanged."""
    program = scope.program
    for node in scope.nodes():
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=dims) if name in _ORDERS:
                numbers = [each for each in dims if isinstance(each, ast.Constant)]
                for one, other in itertools.combinations(numbers, 2):
                    first, second = program.source(one), program.source(other)
                    edits = TextEdit(program.span(one), second), TextEdit(program.span(other), first)
                    texts = [
                        second if each is one else first if each is other else program.source(each) for each in dims
                    ]
                    text = f"{name}({', '.join(texts)})"
                    now = f"{name}({', '.join(map(program.source, dims))})"
                    yield Mistake(
                        f"'{now}' stands where '{text}' is needed", f"write {text}", edits, program.span(node)
                    )


def inverses(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """The inverse of an order of rows in place of the order."""
    for node in scope.nodes():
        match node:
            case ast.Subscript(value=value, slice=ast.Name(id=name) as index, ctx=ast.Load()) if not is_module(value):
                if not scope.computes(node, scene):
                    continue  # of a list
                yield scope.instead(index, f"torch.argsort({name})", f"'{name}' stands where its inverse is needed")


def marks(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """A mark that one attribute gets, for another one that is made in the same way; a mark that is asked for elsewhere, copied as another one is, or not set."""
    yield from _unmarked(scope, scene)
    program = scope.program
    made: dict[str, str] = {}
    for node in scope.nodes():
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=ast.Call() as call):
                made[attr] = ast.unparse(call)
    for node in scope.nodes():
        text = program.source(node) if isinstance(node, ast.Assign) else ""
        lines: list[str] = []
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Attribute() as owner)], value=ast.Constant()):
                held = [each.attr for each in ast.walk(owner) if isinstance(each, ast.Attribute) and each.attr in made]
                alike = [other for name in held[:1] for other in made if made[other] == made[name] and other != name]
                lines = [text.replace(f".{held[0]}.", f".{other}.", 1) for other in alike]
            case ast.Assign(
                targets=[ast.Attribute(attr=mark)], value=ast.Call(args=[_, ast.Constant(value=read), *_]) as call
            ):
                others = _marks_read(scene) if called_name(call) == "getattr" and read == mark else []
                lines = [text.replace(f".{mark}", f".{other}").replace(f'"{mark}"', f'"{other}"') for other in others]
        for line in lines:
            if line not in program.text and isinstance(node, ast.stmt):
                yield scope.below(node, line, f"there is '{shown(text)}', and no such line for another one")


def _unmarked(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """A mark that something else than the object itself gets, and that decides elsewhere what is chosen: without it."""
    for node in scope.nodes():
        match node:
            case ast.Assign(targets=[ast.Attribute(value=owner, attr=mark) as target], value=value):
                held = not (isinstance(owner, ast.Name) and owner.id in {"self", "ctx"})
                if held and mark in scene.deciding and not (isinstance(value, ast.Constant) and not value.value):
                    text = scope.program.source(target)
                    told = f"'{text}' is set, and must not be"
                    yield scope.instead(value, "False", told, f"{text} = False")


def _marks_read(scene: Scene) -> list[str]:
    """The marks that the project asks for with a default."""
    found: dict[str, None] = {}
    for scope in scene.scopes:
        for call in scope.calls():
            match call:
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(mark)), _]):
                    found[mark] = None
    return list(found)
