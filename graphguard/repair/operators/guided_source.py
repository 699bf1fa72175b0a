"""Repairs that the specification suggests, as text: what it says at the operator in question, in the names of the implementation."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, Graph, Span, Var
from graphguard.ops import aten, traits_of
from graphguard.repair.graph.edits import (
    Accumulate,
    Bypass,
    Call,
    ChangeCall,
    InsertCall,
    Mask,
    Reread,
    SetArgument,
    SwapTensors,
)
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.graph.slices import SPLITS
from graphguard.repair.scales.passes import added_to_earlier
from graphguard.repair.shards.masks import BOUNDS, change_bound, fill_masked
from graphguard.repair.shards.unlike import misreading
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import MODULES, Program, assigned_name, definitions, first_operand
from graphguard.repair.writing.source import Draft, line_after
from graphguard.report.diagnostics import TextEdit

Guided = InsertCall | ChangeCall | SwapTensors | SetArgument | Bypass | Accumulate | Mask | Reread
_CHOICES = 3  # assignments between a reader and the choice of what it reads
_SIMPLE = ast.Call | ast.Name | ast.Attribute | ast.Subscript


def guided_drafts(
    capture: Capture, edit: Guided, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """Text edits at one place for an edit that the specification suggested."""
    value = program.expression(span)
    if value is None:
        return
    yield from _by_the_ranks(capture, edit, rank, program, span, sources)
    match edit:
        case InsertCall(tensors, call):
            meant = _specified(call.expression, sources)
            operands = [arg for arg in call.args[rank] if isinstance(arg, Var)]
            others = [operand for operand in operands if operand != tensors[rank]]
            first = operands[:1] == [tensors[rank]]
            names = [name for other in others for name in names_of(capture, rank, other, program, sources)]
            texts = list(_applied(program, value, meant, names, bool(others), first)) if meant is not None else []
            if call.op == aten.add.Tensor and meant is not None and isinstance(meant[1], ast.Call):
                texts = [f"{bare(program, value)} + {name}" for name in names]  # its module adds in the same call
            statement, reduced = program.statement(value), first_operand(value)
            if isinstance(statement, ast.Expr) and isinstance(reduced, ast.Name):  # it works in place
                added = names if call.op == aten.add.Tensor else []
                yield from (_added_behind(program, statement, reduced.id, name) for name in added)
                texts = []
            texts += (
                _by_number(program, value, call)
                if statement is not None and not isinstance(statement, ast.Expr)
                else []
            )
            for text in dict.fromkeys(texts):
                yield Draft(f"write {text}", (TextEdit(program.span(value), text),))
        case ChangeCall(call=call):
            meant = _specified(call.expression, sources)
            for text in _like(program, value, meant) if meant is not None else ():
                yield Draft(f"write {text}", (_narrowed(program, value, text),))
        case Bypass(kept=kept):
            yield from _operands(program, value, kept)
        case SwapTensors(tensors, others):
            pair = (tensors[rank], others[rank])
            yield from _exchanged(program, value, exchanged_places(capture, rank, pair, sources))
        case SetArgument(values=tensors) | Reread(tensors=tensors):
            operand = tensors[rank]
            if isinstance(edit, SetArgument) and misreading(edit, capture):
                yield from _chosen(program, value)
            if isinstance(operand, Var):
                for name in names_of(capture, rank, operand, program, sources):
                    yield from _read_instead(program, value, name)


def _by_number(program: Program, value: ast.expr, call: Call) -> list[str]:
    """An expression times or by a number of the specification's call, which need not be written there; a root as the root that it is."""
    numbers = [arg for arg in next(iter(call.args.values()), ()) if isinstance(arg, int | float)]
    if call.op not in SCALING or len(numbers) != 1 or not numbers[0]:
        return []
    number, symbol = numbers[0], "/" if ".div" in call.op else "*"
    square = round(number * number)
    is_root = square > 1 and number == math.sqrt(square) and number != round(number)
    return [f"{bare(program, value)} {symbol} {f'{square}**0.5' if is_root else repr(number)}"]


def _by_the_ranks(
    capture: Capture, edit: Guided, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """Text edits for what the ranks' own programs suggest: their loops, bounds and masks."""
    match edit:
        case ChangeCall(call=call) if call.expression is None and call.op in BOUNDS:
            yield from change_bound(program, span, traits_of(call.op).symbol)
        case Accumulate():
            yield from added_to_earlier(program, span)
        case Mask(_, masks, shape):
            added = len(shape) - len(capture.ranks[rank].types[masks[rank]].shape)
            trailing = added if all(size == 1 for size in shape[len(shape) - added :]) else 0
            yield from fill_masked(program, span, names_of(capture, rank, masks[rank], program, sources), trailing)


def _specified(where: Span | None, sources: Sources) -> tuple[Program, ast.expr] | None:
    program = sources.program(where.file) if where is not None else None
    expression = program.expression(where) if program is not None and where is not None else None
    return None if program is None or expression is None else (program, expression)


def applied_to(program: Program, operand: ast.expr, where: Span, sources: Sources) -> Iterator[str]:
    """The specification's expression at a place, of one of the implementation's."""
    meant = _specified(where, sources)
    if meant is not None:
        yield from _applied(program, operand, meant, [], False, True)


def bare(program: Program, node: ast.expr) -> str:
    """The text of an expression, in brackets where another operator would take it apart."""
    text = program.source(node)
    return text if isinstance(node, _SIMPLE | ast.Constant) else f"({text})"


def between(program: Program, left: ast.expr, symbol: str, other: Program, right: ast.expr) -> str:
    """Two expressions with an operator between them, without the brackets that change nothing."""
    texts = [(bare(program, left), program.source(left)), (bare(other, right), other.source(right))]
    careful = f"{texts[0][0]} {symbol} {texts[1][0]}"
    if "\n" in careful:
        return careful
    plainer = (f"{texts[0][first]} {symbol} {texts[1][second]}" for first, second in ((1, 1), (0, 1), (1, 0)))
    return next((text for text in plainer if _is_same(text, careful)), careful)


def _is_same(text: str, careful: str) -> bool:
    """Whether two texts of an expression mean the same; neither is one where its operator is none of Python's."""
    try:
        return ast.dump(ast.parse(text, mode="eval")) == ast.dump(ast.parse(careful, mode="eval"))
    except SyntaxError:
        return False


def _applied(
    program: Program, value: ast.expr, meant: tuple[Program, ast.expr], names: list[str], binary: bool, first: bool
) -> Iterator[str]:
    """The specification's expression with the implementation's operand in place of its own."""
    spec, expression = meant
    text, own = program.source(value), bare(program, value)
    match expression:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self")) as function, args=[_, *more]):  # a module's module
            rest = [*(spec.source(arg) for arg in more), *_words(spec, expression)]
            yield f"{spec.source(function)}({', '.join((text, *rest))})"
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if not _is_module(receiver):
            rest = [*(spec.source(arg) for arg in expression.args), *_words(spec, expression)]
            yield f"{own}.{method}({', '.join(rest)})"
        case ast.Call(func=function, args=[_, *more]):
            rest = [*(spec.source(arg) for arg in more), *_words(spec, expression)]
            yield f"{spec.source(function)}({', '.join((text, *rest))})"
        case ast.BinOp(left=left, op=operator, right=right):
            symbol = _symbol(spec, left, right)
            sides = [*names, spec.source(right if first else left)]
            if not binary:
                yield between(program, value, symbol, spec, right)
                yield between(spec, left, symbol, program, value)
            for side in dict.fromkeys(sides if binary else ()):
                commutes = isinstance(operator, ast.Add | ast.Mult)
                yield f"{own} {symbol} {side}" if first or commutes else f"{side} {symbol} {own}"


def _words(program: Program, call: ast.Call) -> list[str]:
    """The keyword arguments of a call as text."""
    values = [program.source(word.value) for word in call.keywords]
    return [f"{word.arg}={text}" if word.arg else f"**{text}" for word, text in zip(call.keywords, values, strict=True)]


def _is_module(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id in MODULES) or (
        isinstance(node, ast.Attribute) and _is_module(node.value)
    )


def _symbol(program: Program, left: ast.expr, right: ast.expr) -> str:
    """The operator between two expressions, without the brackets around them."""
    end, start = program.span(left), program.span(right)
    if end.end_line != start.line:
        return " "
    return program.lines[end.end_line - 1][end.end_column - 1 : start.column - 1].strip(" ()")


def as_specified(program: Program, span: Span, where: Span | None, sources: Sources) -> Iterator[Draft]:
    """A call with the function and the settings of the specification's."""
    value, meant = program.expression(span), _specified(where, sources)
    if value is not None and meant is not None:
        for text in _like(program, value, meant):
            yield Draft(f"write {text}", (TextEdit(program.span(value), text),))


def _narrowed(program: Program, value: ast.expr, text: str) -> TextEdit:
    """Another text for an expression, as an edit of the words that differ: what else is mended within it stays apart."""
    old, place = program.source(value), program.span(value)
    if "\n" in old + text or place.line != place.end_line:
        return TextEdit(place, text)
    ours, its = (re.findall(r"[\w.]+|\s+|[^\w\s]", each) for each in (old, text))
    first = next((at for at, (one, other) in enumerate(zip(ours, its, strict=False)) if one != other), None)
    if first is None:
        return TextEdit(place, text)
    last = 0
    while last < min(len(ours), len(its)) - first and ours[-1 - last] == its[-1 - last]:
        last += 1
    start = len("".join(ours[:first]))
    end = len("".join(ours[: len(ours) - last]))
    at = replace(place, column=place.column + start, end_column=place.column + end)
    return TextEdit(at, "".join(its[first : len(its) - last]))


def _like(program: Program, value: ast.expr, meant: tuple[Program, ast.expr]) -> Iterator[str]:
    """An expression with the operator, the function or the constant of the specification's."""
    spec, expression = meant
    match value, expression:
        case ast.BinOp(left=left, right=right), ast.BinOp(left=other, right=another):
            symbol = _symbol(spec, other, another)
            yield between(program, left, symbol, program, right)
            yield between(program, left, symbol, spec, another)
            yield between(spec, other, symbol, program, right)
            yield between(program, right, symbol, program, left)
        case ast.Compare(left=left, comparators=[right]), ast.Compare(left=other, comparators=[another]):
            yield between(program, left, _symbol(spec, other, another), program, right)
        case ast.Call(func=ast.Attribute(value=receiver)), ast.Call(func=ast.Attribute(value=own, attr=method)) if (
            not _is_module(receiver) and not _is_module(own)
        ):
            rest = [*(spec.source(arg) for arg in expression.args), *_words(spec, expression)]
            yield f"{bare(program, receiver)}.{method}({', '.join(rest)})"
        case ast.Call(args=[operand, *more]), ast.Call(func=function, args=[_, *others]):
            words = _words(spec, expression)
            rest = [program.source(arg) for arg in more]
            yield f"{spec.source(function)}({', '.join((program.source(operand), *rest, *words))})"
            rest = [spec.source(arg) for arg in others]
            yield f"{spec.source(function)}({', '.join((program.source(operand), *rest, *words))})"


def _operands(program: Program, value: ast.expr, kept_first: int) -> Iterator[Draft]:
    """An operator taken out: one of its operands is left, likeliest the one of this number."""
    whole = program.source(value)
    match value:
        case ast.BinOp(left=left, right=right):
            kept = [right, left] if kept_first else [left, right]
        case ast.Call() if (operand := first_operand(value)) is not None:
            kept = [operand]
        case _:
            return
    for operand in kept:
        text = program.source(operand)
        around, inner = program.span(value), program.span(operand)
        before = replace(around, end_line=inner.line, end_column=inner.column)
        after = replace(around, line=inner.end_line, column=inner.end_column)
        edits = tuple(
            TextEdit(span, "") for span in (before, after) if _start(span) != (span.end_line, span.end_column)
        )
        yield Draft(f"{text} instead of {whole}", edits)


def _added_behind(program: Program, statement: ast.stmt, name: str, term: str) -> Draft:
    """Add a tensor to another one behind the statement that changes that one in place."""
    line = f"{name} = {name} + {term}"
    return Draft(line, (line_after(program, statement, line),))


def _start(span: Span) -> tuple[int, int]:
    return span.line, span.column


def names_of(capture: Capture, rank: int, var: Var, program: Program, sources: Sources) -> list[str]:
    """What the author calls a tensor in a file, as far as it has names."""
    graph = capture.ranks[rank]
    found = [graph.labels.get(var, ""), graph.inputs.get(var, "")]
    for span in _frames(capture, rank, var, sources):
        if span.file == program.file:
            node = program.expression(span)
            found.append(
                assigned_name(program.statement(node), _part(program, node, graph, var)) if node is not None else ""
            )
            found.extend(_unpacked(program, node))
    for name in [
        name for name in found if name
    ]:  # a parameter, by the names that its module and those around it know it by
        parts = name.split(".")
        paths = [["self", *parts[start:]] for start in range(len(parts))]
        found.extend(".".join(path) for path in paths if ".".join(path[:2]) in program.text)
    return [name for name in dict.fromkeys(found) if name]


def _part(program: Program, value: ast.expr, graph: Graph, var: Var) -> ast.expr:
    """The expression of a tensor that is made at a place: of a split, the part that is picked."""
    around = next(program.ancestors(value), None)
    split = graph.nodes[graph.producers()[var]].op in SPLITS
    return around if split and isinstance(around, ast.Subscript) and around.value is value else value


def _unpacked(program: Program, node: ast.expr | None) -> Iterator[str]:
    """The names of a tuple that a statement assigns an expression to, or makes of it one by one."""
    statement = program.statement(node) if node is not None else None
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and any(inner is node for inner in ast.walk(value)):
                    yield name.id
        case ast.Assign(targets=[ast.Tuple(elts=names)]):
            yield from (name.id for name in names if isinstance(name, ast.Name))


def _frames(capture: Capture, rank: int, var: Var, sources: Sources) -> list[Span]:
    graph = capture.ranks[rank]
    index = graph.producers().get(var)
    return [] if index is None else [frame.span for frame in sources.frames(graph, graph.nodes[index])]


def exchanged_places(capture: Capture, rank: int, pair: tuple[Var, Var], sources: Sources) -> list[tuple[Span, Span]]:
    """Where two tensors are made, in the same function."""
    first, second = (_frames(capture, rank, var, sources) for var in pair)
    found = []
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if one.file == other.file and one != other:
            found.append((one, other))
            break  # further in, the calls are no longer of one function
    return found


def _exchanged(program: Program, value: ast.expr, pairs: list[tuple[Span, Span]]) -> Iterator[Draft]:
    """Two expressions of one statement, or two names in one statement, in each other's place."""
    for one, other in pairs:
        first, second = program.expression(one), program.expression(other)
        if first is None or second is None:
            continue
        statement = program.statement(first)
        texts = program.source(first), program.source(second)
        if statement is program.statement(second):
            title = f"exchange {texts[0]} and {texts[1]}"
            yield Draft(title, (TextEdit(program.span(first), texts[1]), TextEdit(program.span(second), texts[0])), one)
        names = assigned_name(statement, first), assigned_name(program.statement(second), second)
        if all(names):
            yield from _names_exchanged(program, program.statement(value), *names)


def _names_exchanged(program: Program, statement: ast.stmt | None, first: str, second: str) -> Iterator[Draft]:
    loads = [
        node
        for node in ast.walk(statement or program.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in (first, second)
    ]
    if len({node.id for node in loads}) == 2:
        edits = tuple(TextEdit(program.span(node), second if node.id == first else first) for node in loads)
        yield Draft(f"exchange {first} and {second}", edits)


def _chosen(program: Program, value: ast.expr, depth: int = _CHOICES) -> Iterator[Draft]:
    """On every rank what only some choose, in an expression or in what its names stand for."""
    for node in ast.walk(value):
        match node:
            case ast.IfExp(body=body, orelse=other):
                for branch in (body, other):
                    text = program.source(branch)
                    yield Draft(f"read {text} on every rank", (TextEdit(program.span(node), text),), program.span(node))
            case ast.Name() if depth:
                for made in definitions(program, node):
                    yield from _chosen(program, made, depth - 1)


def _read_instead(program: Program, value: ast.expr, name: str) -> Iterator[Draft]:
    """Read a name in the place of another one in an expression, or of what is made of one by methods and indices."""
    read = list(_operands_in(value))
    for node in read:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != name:
            parent = program.parents.get(node)
            if (isinstance(parent, ast.Call) and parent.func is node) or node.id in MODULES:
                continue
            yield Draft(f"read {name} instead of {node.id}", (TextEdit(program.span(node), name),))
    for node in read:
        made = isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
        if made and node is not value and not _is_module(_root(node)):
            yield Draft(f"read {name} instead of {program.source(node)}", (TextEdit(program.span(node), name),))


def _operands_in(value: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression, but for what chooses between two."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.expr):
            yield node
        waiting += [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "test", None)]


def _root(node: ast.expr) -> ast.expr:
    """What methods and indices are called of."""
    while True:
        match node:
            case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return node
