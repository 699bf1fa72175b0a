"""The functions of a project that edits may touch, and how far each is from a finding: by calls, and by the classes that they belong to."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from graphguard.ir import Capture, Graph, Span
from graphguard.repair.nearby.flows import Flows
from graphguard.repair.text.program import Function, Program
from graphguard.repair.text.vocabulary import called_name
from graphguard.report.diagnostics import TextEdit

_CLAIMS: Final = frozenset({"Refinement", "Same", "verify", "check", "assert_refines"})
_WORLDS: Final = frozenset({"init_device_mesh", "init_process_group", "new_group", "DeviceMesh"})
FAR: Final = 9  # of a function that no call leads to
_MOST: Final = 400  # functions that are looked at, the nearest


@dataclass(frozen=True, slots=True)
class Mistake:
    """What may be wrong with a text at a place, said so that it is true where the edits mend, and those edits."""

    told: str
    title: str
    edits: tuple[TextEdit, ...]
    place: Span


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A function and its file; ``away`` counts the calls between it and what was found."""

    program: Program
    function: Function
    away: int = FAR

    @property
    def klass(self) -> ast.ClassDef | None:
        """The class around it."""
        return self.program.klass(self.function)

    @property
    def parameters(self) -> list[str]:
        """Its parameters, ``self`` and gathered ones apart."""
        arguments = self.function.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return [each.arg for each in named if each.arg not in {"self", "cls", "ctx"}]

    @property
    def is_method(self) -> bool:
        """Whether it has an object of its own."""
        return [each.arg for each in self.function.args.args[:1]] == ["self"]

    def nodes(self) -> Iterator[ast.AST]:
        """What stands in its body, in the order of the text."""
        waiting: list[ast.AST] = [*reversed(self.function.body)]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))

    def calls(self) -> Iterator[ast.Call]:
        """The calls in its body."""
        return (node for node in self.nodes() if isinstance(node, ast.Call))

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """The rows of statements in it."""
        for node in (self.function, *self.nodes()):
            for name in ("body", "orelse", "finalbody"):
                rows = getattr(node, name, None)
                if isinstance(rows, list) and rows:
                    yield rows

    def bound_before(self, at: ast.expr | ast.stmt) -> list[str]:
        """The names that parameters and statements above a place bind."""
        found = dict.fromkeys(self.parameters)
        for node in self.nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < at.lineno:
                found[node.id] = None
        return list(found)

    def kept(self) -> set[str]:
        """What its class keeps under ``self``, where it has that."""
        return kept_by(self.klass) if self.is_method else set()

    def computes(self, node: ast.expr | ast.stmt, scene: Scene) -> bool:
        """Whether an operator comes from the lines of a text."""
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return any((self.program.file, line) in scene.computing for line in lines)

    def instead(self, node: ast.expr, text: str, told: str, title: str = "") -> Mistake:
        """Another text in the place of an expression."""
        place = self.program.span(node)
        return Mistake(told, title or f"write {text}", (TextEdit(place, text),), place)

    def one_more(self, call: ast.Call, text: str, told: str) -> Mistake:
        """One more argument of a call."""
        at = self.program.span(call)
        given = [self.program.span(each) for each in (*call.args, *(word.value for word in call.keywords))]
        last = max(given, key=lambda span: (span.end_line, span.end_column), default=None)
        line, column = (at.end_line, at.end_column - 1) if last is None else (last.end_line, last.end_column)
        place = Span(at.file, line, column, line, column)
        return Mistake(told, text, (TextEdit(place, text if last is None else f", {text}"),), at)

    def before(self, statement: ast.stmt, text: str, told: str, title: str) -> Mistake:
        """A text before a statement."""
        at = self.program.span(statement)
        return Mistake(told, title, (TextEdit(Span(at.file, at.line, at.column, at.line, at.column), text),), at)

    def below(self, statement: ast.stmt, text: str, told: str) -> Mistake:
        """A statement below another one."""
        at = self.program.span(statement)
        end = Span(at.file, at.end_line, at.end_column, at.end_line, at.end_column)
        return Mistake(told, text, (TextEdit(end, f"\n{self.program.indent(statement)}{text}"),), at)


@dataclass(slots=True)
class Scene:
    """The scopes of a project, the nearest to a finding first, its definitions, all that its texts name, the lines that operators come from, the attributes by which something is chosen, the sizes of the mesh, what flows between its statements, and the functions that a check runs itself."""

    scopes: list[Scope]
    defined: dict[str, list[Scope]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    computing: frozenset[tuple[str, int]] = frozenset()
    deciding: frozenset[str] = frozenset()
    sizes: tuple[int, ...] = ()
    flows: Flows = field(default_factory=lambda: Flows(()))
    outermost: frozenset[Function] = frozenset()
    _alike: defaultdict[tuple[object, ...], list[Scope]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, programs: Sequence[Program], places: Sequence[Span], capture: Capture) -> Scene:
        """All functions but those that state a claim or build worlds; ``places`` are those of the finding, its own first."""
        found = [
            Scope(program, node)
            for program in programs
            for node in ast.walk(program.tree)
            if isinstance(node, Function) and _is_editable(program, node)
        ]
        defined: dict[str, list[Scope]] = defaultdict(list)
        for scope in found:
            klass = scope.klass if scope.function.name == "__init__" else None
            defined[klass.name if klass is not None else scope.function.name].append(scope)
        away = _distances(found, defined, places, capture)
        scopes = [Scope(each.program, each.function, away.get(each.function, FAR)) for each in found]
        nodes = (node for program in programs for node in ast.walk(program.tree))
        named = {getattr(node, "id", getattr(node, "attr", "")) for node in nodes}
        frames = [frame.span for graph in capture.graphs for frame in graph.frames]
        computing = frozenset((span.file, line) for span in frames for line in range(span.line, span.end_line + 1))
        asked = frozenset(name for program in programs for name in _asked(program))
        sizes = tuple(sorted({size for size in capture.mesh.values() if size > 1}))
        nearest = sorted(scopes, key=lambda each: each.away)[:_MOST]
        by_file = {program.file: program for program in programs}
        edited = {each.function for each in found}
        rows = (row for graph in capture.ranks for row in _running(graph, by_file))
        outermost = frozenset(next((each for each in reversed(row) if each in edited), row[-1]) for row in rows if row)
        return cls(nearest, dict(defined), named, computing, asked, sizes, Flows(capture.ranks), outermost)

    def callees(self, call: ast.Call) -> list[Scope]:
        """The functions of the project that a call may mean, by its name."""
        return self.defined.get(called_name(call), [])

    def siblings(self, scope: Scope) -> list[Scope]:
        """The functions beside one that do the same with other constants."""
        if not self._alike:
            for each in self.scopes:
                self._alike[each.program.file, each.klass, _but_for_constants(each.function)].append(each)
        beside = self._alike[scope.program.file, scope.klass, _but_for_constants(scope.function)]
        mine = [ast.dump(statement) for statement in scope.function.body]
        return [each for each in beside if [ast.dump(statement) for statement in each.function.body] != mine]


Kind = Callable[[Scope, Scene], Iterator[Mistake]]


def kept_by(klass: ast.ClassDef | None) -> set[str]:
    """The attributes that a class gives to ``self``, and its properties."""
    found: set[str] = set()
    for node in ast.walk(klass) if klass is not None else ():
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()):
                found.add(attr)
            case ast.FunctionDef(name=name, decorator_list=[ast.Name(id="property")]):
                found.add(name)
    return found


def _asked(program: Program) -> Iterator[str]:
    """The attributes by which a program chooses, in a branch or of a list."""
    for node in ast.walk(program.tree):
        tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
        for each in (part for test in tests if test is not None for part in ast.walk(test)):
            match each:
                case ast.Attribute(attr=name):
                    yield name
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                    yield name


def _but_for_constants(function: Function) -> str:
    """Parameters and statements of a function as text, constants and its docstring apart."""
    body = function.body
    documented = ast.get_docstring(function, clean=False) is not None
    rows = [ast.dump(function.args), *map(ast.dump, body[1:] if documented else body)]
    return re.sub(r"Constant\(value=[^()]*\)", "Constant", "\n".join(rows))


def asks_which(test: ast.expr) -> bool:
    """Whether what a branch asks is which rank it is on, or which stage."""
    names = (getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(test))
    return any("rank" in name or "stage" in name for name in names)


def shown(text: str, most: int = 44) -> str:
    """A text in one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _is_editable(program: Program, function: Function) -> bool:
    """Whether a function neither states a claim nor builds a world, nor stands in one that states a claim."""
    around = [function, *program.functions(function)]
    if any((_called(each) | _decorated(each)) & _CLAIMS for each in around):
        return False
    return not _called(function) & _WORLDS


def _called(function: Function) -> set[str]:
    return {called_name(node) for node in ast.walk(function) if isinstance(node, ast.Call)}


def _decorated(function: Function) -> set[str]:
    heads = (node.func if isinstance(node, ast.Call) else node for node in function.decorator_list)
    return {head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", "") for head in heads}


def _distances(
    scopes: Sequence[Scope], defined: dict[str, list[Scope]], places: Sequence[Span], capture: Capture
) -> dict[Function, int]:
    """How many calls, as names tell them or as they were recorded, or steps within a class, lie between each function and the places of a finding: its own first, then those it was called from."""
    near: dict[Function, set[Function]] = defaultdict(set)
    classes: dict[ast.ClassDef, list[Scope]] = defaultdict(list)
    for scope in scopes:
        if scope.klass is not None:
            classes[scope.klass].append(scope)
    for scope in scopes:
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in scope.nodes()}
        own = classes.get(scope.klass, ()) if scope.klass is not None else ()
        for other in (*(each for name in sorted(names & defined.keys()) for each in defined[name]), *own):
            near[scope.function].add(other.function)
            near[other.function].add(scope.function)
    programs = {scope.program.file: scope.program for scope in scopes}
    for caller, called in _recorded(capture, programs):
        near[caller].add(called)
        near[called].add(caller)
    around = [programs[place.file].enclosing_function(place) for place in places if place.file in programs]
    first = [each for each in around if each is not None]
    for claim in {*first} - {scope.function for scope in scopes}:  # a claim's own functions call others, too
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(claim)}
        near[claim] |= {scope.function for name in names & defined.keys() for scope in defined[name]}
    away: dict[Function, int] = {}
    for place, function in enumerate(first):
        if function not in away:
            away[function] = min(place, 1)
            _spread(away, function, near)
    return away


def _recorded(capture: Capture, programs: Mapping[str, Program]) -> Iterator[tuple[Function, Function]]:
    """The functions of the project that were seen to call each other, with nothing but other projects' functions between."""
    for graph in capture.ranks:
        for row in _running(graph, programs):
            yield from ((caller, called) for called, caller in pairwise(row) if called is not caller)


def _running(graph: Graph, programs: Mapping[str, Program]) -> list[list[Function]]:
    """The functions of the project that were running at some call, innermost first, each row once."""
    functions = [
        programs[frame.span.file].enclosing_function(frame.span) if frame.span.file in programs else None
        for frame in graph.frames
    ]
    rows = ([each for each in map(functions.__getitem__, stack) if each is not None] for stack in graph.stacks)
    return list({tuple(map(id, row)): row for row in rows}.values())


def _spread(away: dict[Function, int], start: Function, near: dict[Function, set[Function]]) -> None:
    """Note how far the functions are that names lead to from one, and from nowhere before."""
    waiting = [start]
    for function in waiting:
        for other in sorted(near[function] - away.keys(), key=lambda each: each.lineno):
            away[other] = away[function] + 1
            waiting.append(other)
