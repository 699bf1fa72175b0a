"""Which tensors a position in a file is about."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from graphguard.ir.spans import Span
from graphguard_server.texts.source import parsed, python_lines, statements

Point: TypeAlias = tuple[int, int]
LONGEST_CODE: Final = 160


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a source range reads, as :class:`graphguard.checks.proving.places.Operand`."""

    name: str
    text: str
    layout: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A source range that made a tensor, and what it is in terms of the other program: the prover's answer to ``places``.

    Fields as in :class:`graphguard.checks.proving.places.Place`, which this process does not import, for it brings the whole prover along.
    """

    span: Span
    side: str
    operator: str
    shape: tuple[int, ...]
    text: str
    ranks: tuple[int, ...] = ()
    phase: str = "forward"
    counterpart: Span | None = None
    depth: int = 0
    operands: tuple[Operand, ...] = ()
    layout: str = ""


def places_at(places: Sequence[Place], path: str, text: str, point: Point) -> list[Place]:
    """The places that a point (line and column from 0) of the file's text speaks of; of one range only the last tensor of each kind.

    A name stands for what was last bound to it or changed it in place, an expression for its own value.
    """
    here = [place for place in places if place.span.file == path]
    for span in (*_of_name(text, point, here), *_covering(here, point)):
        found = [place for place in here if _bounds(place.span) == span]
        if found:
            return _last_of_each(found)
    return []


def attribute_at(text: str, point: Point) -> str:
    """The attribute under a point without `self`, such as `up.weight`; empty elsewhere."""
    scope = _scope_at(text, point)
    for name, (start, end) in scope.names if scope is not None else ():
        if start <= point <= end and name.startswith("self."):
            return name.removeprefix("self.")
    return ""


@functools.lru_cache(maxsize=16)
def bounds_of_assigned(text: str) -> dict[tuple[Point, Point], tuple[str, Point]]:
    """For every assigned expression of a text its bounds, with the name it is bound to and where that name ends."""
    tree = parsed(text)
    if tree is None:
        return {}
    lines = python_lines(text)
    bindings = (binding for node in statements(tree) for binding in _bindings(node, lines))
    return {binding.value: (binding.name, binding.named) for binding in bindings if binding.named is not None}


def code_at(text: str | None, span: Span) -> str:
    """What stands at a span, on one line, with the name that it is assigned to; empty where the text has no such line."""
    lines = [] if text is None else [line.rstrip("\r\n") for line in python_lines(text)[span.line - 1 : span.end_line]]
    if text is None or not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    code = " ".join(" ".join(lines).split())
    name = assigned_at(text, span)
    code = f"{name} = {code}" if name else code
    return code if len(code) <= LONGEST_CODE else code[: LONGEST_CODE - 1] + "…"


def assigned_at(text: str, span: Span) -> str:
    """The name that the expression at a span is assigned to, if any."""
    return bounds_of_assigned(text).get(_bounds(span), ("", None))[0]


def _bounds(span: Span) -> tuple[Point, Point]:
    return (span.line - 1, span.column - 1), (span.end_line - 1, span.end_column - 1)


def _last_of_each(places: Iterable[Place]) -> list[Place]:
    """Of every program, rank and phase the last tensor; ranks that end with the same one share it."""
    last: dict[tuple[str, str, int], Place] = {}
    for place in places:
        for rank in place.ranks or (-1,):
            last[(place.side, place.phase, rank)] = place
    ranks: dict[int, list[int]] = {}
    for (_, _, rank), place in last.items():
        ranks.setdefault(id(place), []).append(rank)
    shown = {
        id(place): replace(place, ranks=tuple(r for r in sorted(ranks[id(place)]) if r >= 0)) for place in last.values()
    }
    order = {"forward": 0, "step": 1, "backward": 2}
    return sorted(shown.values(), key=lambda place: (order.get(place.phase, 3), place.ranks))


def _covering(places: Iterable[Place], point: Point) -> Iterator[tuple[Point, Point]]:
    """Ranges around the point, the narrowest first."""
    spans = {_bounds(place.span) for place in places}
    around = [(start, end) for start, end in spans if start <= point <= end]
    yield from sorted(around, key=lambda each: (each[1][0] - each[0][0], each[1][1] - each[0][1]))


@dataclass(frozen=True, slots=True)
class _Binding:
    """A value given to a name: by assignment (``named`` is where the name ends) or by a call that changes it in place."""

    name: str
    value: tuple[Point, Point]
    named: Point | None
    targets: tuple[tuple[Point, Point], ...]


@dataclass(frozen=True, slots=True)
class _Scope:
    bindings: tuple[_Binding, ...]
    names: tuple[tuple[str, tuple[Point, Point]], ...]


def _of_name(text: str, point: Point, places: Sequence[Place]) -> Iterator[tuple[Point, Point]]:
    """Ranges of the values that the name at the point stands for, the nearest before it first."""
    scope = _scope_at(text, point)
    if scope is None:
        return
    name = next((name for name, (start, end) in scope.names if start <= point <= end), None)
    if name is None:
        return
    known = {_bounds(place.span) for place in places}
    for binding in scope.bindings:
        if any(start <= point <= end for start, end in binding.targets):
            yield from _within(binding.value, known)
            return
    before = [binding for binding in scope.bindings if binding.name == name and binding.value[1] <= point]
    for binding in sorted(before, key=lambda each: each.value[1], reverse=True):
        inside = list(_within(binding.value, known)) if binding.named is not None else [binding.value]
        if any(each in known for each in inside):
            yield from inside
            return


def _within(value: tuple[Point, Point], known: set[tuple[Point, Point]]) -> Iterator[tuple[Point, Point]]:
    """The value itself, else the widest known range inside it (brackets around a value have no range of their own)."""
    yield value
    inside = [each for each in known if value[0] <= each[0] and each[1] <= value[1]]
    yield from sorted(inside, key=lambda each: (each[0], (-each[1][0], -each[1][1])))[:1]


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> tuple[tuple[tuple[Point, Point], ast.AST], ...]:
    """The functions of a text with their bounds."""
    tree = parsed(text)
    if tree is None:
        return ()
    lines = python_lines(text)
    functions = [node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return tuple((_place(node, lines), node) for node in functions)


def _scope_at(text: str, point: Point) -> _Scope | None:
    """The names and bindings of the innermost function around a point; only that one is looked into."""
    around = [(bounds, node) for bounds, node in _functions(text) if bounds[0] <= point <= bounds[1]]
    if around:
        return _scope(max(around, key=lambda each: each[0][0])[1], python_lines(text))
    tree = parsed(text)
    return None if tree is None else _scope(tree, python_lines(text))


def _scope(node: ast.AST, lines: Sequence[str]) -> _Scope:
    bindings: list[_Binding] = []
    names: list[tuple[str, tuple[Point, Point]]] = []
    for inner in ast.walk(node):
        bindings.extend(_bindings(inner, lines))
        dotted = _dotted(inner)
        if dotted:
            names.append((dotted, _place(inner, lines)))
    narrowest = sorted(names, key=lambda each: (each[1][1][0] - each[1][0][0], each[1][1][1] - each[1][0][1]))
    return _Scope(tuple(bindings), tuple(narrowest))


def _bindings(node: ast.AST, lines: Sequence[str]) -> Iterator[_Binding]:
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.AugAssign):
        place = _place(node, lines)
        if name := _dotted(node.target):
            yield _Binding(name, place, None, (_place(node.target, lines),))
        return
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        for name in _touched(node.value):
            yield _Binding(name, _place(node.value, lines), None, ())
        return
    if value is None:
        return
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if name := _dotted(each):
                spot = _place(each, lines)
                yield _Binding(name, _place(value, lines), spot[1], (spot,))


def _touched(call: ast.Call) -> Iterator[str]:
    """Names that a call standing alone may change in place: its arguments and the object of its method."""
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    for each in (*receiver, *call.args):
        if name := _dotted(each):
            yield name


def _dotted(node: ast.AST) -> str:
    """``h`` or ``self.h`` as text; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _place(node: ast.AST, lines: Sequence[str]) -> tuple[Point, Point]:
    """Bounds in characters; ``ast`` counts columns in bytes of UTF-8."""
    line, end_line = getattr(node, "lineno", 1) - 1, (getattr(node, "end_lineno", None) or 1) - 1
    start = _characters(lines[line], getattr(node, "col_offset", 0))
    return (line, start), (end_line, _characters(lines[end_line], getattr(node, "end_col_offset", None) or 0))


def _characters(line: str, count: int) -> int:
    return count if line.isascii() else len(line.encode("utf-8")[:count].decode("utf-8", "ignore"))
