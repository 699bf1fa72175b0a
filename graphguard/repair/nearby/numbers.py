"""Numbers and answers of Python that a finding rests on, worked out otherwise: which of them is to blame.

The graphs hold only what came of a number: rows that are read, a factor, a layer that is left out.  Where it is worked out, another value in its place shows whether that is the cause.
What the number should be, nothing says: it is no fix.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from graphguard.ir import Span
from graphguard.repair.nearby.arguments import bound, optional
from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.repair.text.program import Function, Program
from graphguard.repair.text.vocabulary import called_name
from graphguard.report.diagnostics import TextEdit

_FAR: Final = 6  # definitions between a number and what is wrong
_NEAR: Final = 4  # calls between a function and what is wrong
_MANY: Final = 6  # definitions of one name, of which nothing tells which is meant
_FUNCTIONS: Final = frozenset(
    [
        "abs",
        "bool",
        "ceil",
        "dim",
        "divmod",
        "float",
        "floor",
        "get_local_rank",
        "get_rank",
        "get_world_size",
        "getattr",
        "int",
        "len",
        "log",
        "log2",
        "max",
        "min",
        "ndim",
        "numel",
        "pow",
        "round",
        "size",
        "sqrt",
        "sum",
    ]
)
_ANSWERS: Final = ("is_", "has_", "use_", "should_", "needs_")
# Names of numbers: what another name is called may be a tensor, or an object.
_NUMBERED: Final = re.compile(
    r"(?:^|_)(?:n|nums?|size|rank|counts?|len|length|starts?|ends?|first|last|offset|index|idx|shift|stride|scale|scaling|factor|steps?|iters|ratio|dim|number|total|world|degree|times|rate|lr|eps)(?:_|$)",
    re.IGNORECASE,
)


def numbers(scene: Scene, places: Sequence[Span], scaled: bool) -> Iterator[Mistake]:
    """Other values for the numbers that the places of a finding rest on, those first that the fewest definitions lie between; ``scaled``: nothing but factors.

    Of what a rank works out of its own number, what rank 0 has: where the parts of ranks begin, the graphs say.  This is tried of all that is near: libraries that shuffle or draw hide what rests on it.
    """
    slice_ = _Slice(scene)
    for place in places:
        slice_.start(place)
    found = list(slice_.found())
    own = [each for each in found if _is_own(each[1])] + list(_own(scene, slice_.seen))
    for program, value in itertools.chain(own, (each for each in found if not _is_own(each[1]))):
        text, place = program.source(value), program.span(value)
        others = _of_all(value) if _is_own(value) else _others(value, text, scene.sizes, scaled)
        for other, title, told in others:
            named = f"'{shown(text)}'"
            yield Mistake(f"{named} {told}", title.format(named), (TextEdit(place, other),), place)


def _others(value: ast.expr, text: str, sizes: Sequence[int], scaled: bool) -> Iterator[tuple[str, str, str]]:
    """Texts for other values, what they are, and what is wrong with the value where one mends."""
    if _is_answer(value):
        yield f"(not ({text}))", "the contrary of {}", "is answered one way where the other one is needed"
        return
    for size in sizes:
        yield f"(({text}) * {size})", f"{size} times {{}}", f"comes out as 1/{size} of what is needed"
        less = f"comes out {size} times as large as is needed"
        yield f"type({text})(({text}) / {size})", f"1/{size} of {{}}", less
    if scaled:
        return
    yield f"(({text}) + 1)", "one more than {}", "comes out one too small"
    yield f"(({text}) - 1)", "one less than {}", "comes out one too large"
    for number in (1, 0) if isinstance(value, ast.Name | ast.Attribute | ast.Constant) else ():
        if getattr(value, "value", None) != number:
            yield f"{number}", f"{number} instead of {{}}", f"stands where {number} is needed"


def _of_all(value: ast.expr) -> Iterator[tuple[str, str, str]]:
    """What the first rank works out, for all ranks."""
    other = ast.unparse(_First().visit(copy.deepcopy(value)))
    yield f"({other})", "{} of rank 0 on all ranks", "is each rank's own, where all ranks need the same"


def _own(scene: Scene, known: Collection[ast.AST]) -> Iterator[tuple[Program, ast.expr]]:
    """What functions near a finding work out of the number of a rank."""
    for scope in scene.scopes:
        for node in scope.nodes() if scope.away <= _NEAR else ():
            if isinstance(node, ast.Assign) and node.value not in known and _is_own(node.value):
                yield scope.program, node.value


def _is_own(value: ast.expr) -> bool:
    """Whether a value is worked out of the number of a rank, and not that number itself."""
    return isinstance(value, ast.BinOp) and any(map(_is_rank, ast.walk(value)))


def _is_rank(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith("rank")
    return False


class _First(ast.NodeTransformer):
    """Puts zero in the place of a rank's number, and of what is called to get it."""

    def visit(self, node: ast.AST) -> ast.AST:
        if _is_rank(node) or (isinstance(node, ast.Call) and _is_rank(node.func)):
            return ast.Constant(0)
        return self.generic_visit(node)


def _is_answer(value: ast.expr) -> bool:
    match value:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
            return True
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, ast.Constant(value=bool())]):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.startswith(_ANSWERS)
        case ast.Call():
            return called_name(value).startswith(_ANSWERS)
    return False


@dataclass(slots=True)
class _Slice:
    """The values that names lead to from places, by assignments, attributes, arguments, what functions give back, and what decides whether they run."""

    scene: Scene
    waiting: list[tuple[Program, ast.AST, int]] = field(default_factory=list)
    seen: set[ast.AST] = field(default_factory=set)

    def start(self, place: Span) -> None:
        """Go on from a place as well."""
        program = next((each.program for each in self.scene.scopes if each.program.file == place.file), None)
        value = program.expression(place) if program is not None else None
        statement = program.statement(value) if program is not None and value is not None else None
        if program is not None and statement is not None and not isinstance(statement, Function | ast.ClassDef):
            self._add(program, statement, 0)

    def found(self) -> Iterator[tuple[Program, ast.expr]]:
        """The numbers among them, as they are come to."""
        for program, node, away in self.waiting:
            if isinstance(node, ast.expr) and away and self._is_number(program, node):
                yield program, node
            if away < _FAR:
                for each, other in self._behind(program, node):
                    self._add(each, other, away + 1)

    def _add(self, program: Program, node: ast.AST, away: int) -> None:
        if node not in self.seen:
            self.seen.add(node)
            self.waiting.append((program, node, away))

    def _behind(self, program: Program, node: ast.AST) -> Iterator[tuple[Program, ast.AST]]:
        """The values that something reads, and the questions that decide whether it runs."""
        for each in (part for head in _heads(node) for part in ast.walk(head)):
            match each:
                case ast.Name(id=name, ctx=ast.Load()):
                    yield from self._named(program, each, name)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    yield from self._kept(name)
                case ast.Call():
                    yield from self._given_back(each)
        for outer in program.ancestors(node):
            if isinstance(outer, Function):
                break
            if isinstance(outer, ast.If | ast.IfExp | ast.While):
                yield program, outer.test
            elif isinstance(outer, ast.For):
                yield program, outer.iter

    def _named(self, program: Program, read: ast.Name, name: str) -> Iterator[tuple[Program, ast.AST]]:
        function = program.function(read)
        for outer in program.functions(read):
            values = program.assigned(outer).get(name, ())
            yield from ((program, value) for value in values[:_MANY] if value is not program.parents.get(read))
            if function is outer and values:
                return
        if function is not None:
            scope = next((each for each in self.scene.scopes if each.function is function), None)
            if scope is not None and name in scope.parameters:
                yield from self._arguments(scope, name)

    def _arguments(self, scope: Scope, name: str) -> Iterator[tuple[Program, ast.AST]]:
        """What callers give for a parameter, or its default."""
        klass = scope.klass
        called = klass.name if klass is not None and scope.function.name == "__init__" else scope.function.name
        calls = ((each.program, call) for each in self.scene.scopes for call in each.calls())
        given = [(program, bound(call, scope).get(name)) for program, call in calls if called_name(call) == called]
        found = [(program, value) for program, value in given if value is not None][:_MANY]
        default = optional(scope).get(name)
        yield from found or ([(scope.program, default)] if default is not None else [])

    def _kept(self, name: str) -> Iterator[tuple[Program, ast.AST]]:
        """What objects keep under a name, and what properties give."""
        rows = [
            (scope.program, node.value)
            for scope in self.scene.scopes
            for node in scope.nodes()
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets)
        ]
        yield from rows if len(rows) <= _MANY else ()
        for scope in self.scene.defined.get(name, ()):
            decorators = scope.function.decorator_list
            if any(isinstance(each, ast.Name) and each.id == "property" for each in decorators):
                yield from _returned(scope)

    def _given_back(self, call: ast.Call) -> Iterator[tuple[Program, ast.AST]]:
        for scope in self.scene.callees(call)[:_MANY]:
            if scope.function.name != "__init__":
                yield from _returned(scope)

    def _is_number(self, program: Program, value: ast.expr) -> bool:
        """Whether a value may be a number or an answer: no operator comes from its lines, and its text is made of names, numbers, and functions of these."""
        if value is getattr(program.parents.get(value), "test", None):
            return False  # the decisions that it makes are tried as such
        lines = range(value.lineno, (value.end_lineno or value.lineno) + 1)
        if any((program.file, line) in self.scene.computing for line in lines):
            return False
        return _is_answer(value) or _is_own(value) or _may_be_number(value)


def _heads(node: ast.AST) -> list[ast.AST]:
    """What a statement reads itself, the statements in it apart."""
    match node:
        case ast.If() | ast.While():
            return [node.test]
        case ast.For():
            return [node.iter]
        case ast.With():
            return [item.context_expr for item in node.items]
        case ast.Try():
            return []
    return [node]


def _returned(scope: Scope) -> Iterator[tuple[Program, ast.AST]]:
    """What a function gives back."""
    return ((scope.program, node.value) for node in scope.nodes() if isinstance(node, ast.Return) and node.value)


def _may_be_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float)
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name))
        ):
            return name == "shape" or _is_answer(value) or _NUMBERED.search(name) is not None
        case ast.BinOp(left=left, right=right):
            return any(_may_be_number(each) for each in (left, right) if not isinstance(each, ast.Constant))
        case ast.UnaryOp(operand=operand):
            return _may_be_number(operand)
        case ast.IfExp(body=body, orelse=orelse):
            return _may_be_number(body) or _may_be_number(orelse)
        case ast.Call():
            return called_name(value) in _FUNCTIONS or called_name(value).startswith(_ANSWERS)
    return False
