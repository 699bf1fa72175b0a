"""The start of a rank's part, as text in the names of the place where numbers lack it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from graphguard.ir import Capture, Span
from graphguard.repair.graph.meanings import Offset
from graphguard.repair.operators.guided_source import names_of
from graphguard.repair.shards.triangles import diagonal_by, diagonal_further
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Function, Program, first_operand, further, is_number
from graphguard.repair.text.vocabulary import assignments, rank_expressions
from graphguard.repair.writing.source import Draft, line_after
from graphguard.report.diagnostics import TextEdit

_NAMES = 2  # names of ranks, and of lengths, that are tried
_LINEAR = ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant


def offset_drafts(
    capture: Capture, offset: Offset, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """Text edits at a place after which its numbers start where the rank's part does."""
    value = program.expression(span)
    if value is None:
        return
    if offset.kind == "pass":
        for start in _of_passes(program, value, offset):
            yield from _started(program, value, start)
        yield from _source_of_pass(program, value)
        return
    if offset.kind == "bound":
        yield from diagonal_by(program, value, offset.length)
        return
    if offset.kind == "block":
        for start in _of_blocks(program, value, offset):
            yield from diagonal_further(program, value, f"+ {start}", f"start at {start}")
            yield from _started(program, value, start)
        return
    for start in starts(program, value, offset):
        if offset.kind == "rows":
            own = (offset.tensors or {}).get(rank)
            names = [] if own is None else names_of(capture, rank, own, program, sources)
            yield from _less(program, value, names, start)
        elif offset.kind == "written":
            yield from _written(program, value, start)
        elif offset.kind == "found":
            yield from _places_further(program, value, start, offset.slot)
        else:
            yield from _started(program, value, start)


def starts(program: Program, at: ast.expr, offset: Offset) -> Iterator[str]:
    """What may denote the start of the rank's part at a place: a name for it, else a rank's name times a length's."""
    ranks = rank_expressions(program, at, offset.axis)[:_NAMES]
    searched = _searched(program, at) if offset.kind == "found" else []
    lengths = [*_lengths(program, at), *searched, str(offset.length)]
    products = [f"{rank} * {length}" for rank, length in itertools.product(ranks, lengths)]
    function = program.function(at)
    for name, made in assignments(ast.walk(function)) if function is not None else ():
        match made:
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if made.lineno < at.lineno:
                one, other = sorted((left, right), key=lambda factor: program.source(factor) not in ranks)
                if program.source(one) in ranks and (_is_size(other) or program.source(other) in lengths):
                    yield name
    yield from products


def _lengths(program: Program, at: ast.expr) -> list[str]:
    """Names for sizes of tensors in the function around a place, those that the place reads first."""
    read = {node.id for node in ast.walk(at) if isinstance(node, ast.Name)}
    found: dict[str, None] = {}
    for function in program.functions(at):
        for name, made in assignments(ast.walk(function)):
            if made.lineno <= at.lineno and _is_size(made):
                found[name] = None
    return sorted(found, key=lambda name: name not in read)[:_NAMES]


def _searched(program: Program, value: ast.expr) -> list[str]:
    """The length of the dim along which a call looks for places."""
    operand = first_operand(value)
    if not isinstance(value, ast.Call) or not isinstance(operand, ast.Name):
        return []
    given = [*value.args, *(keyword.value for keyword in value.keywords if keyword.arg == "dim")]
    dims = [program.source(each) for each in given if each is not operand and is_number(program, each)]
    return [f"{operand.id}.size({dim})" for dim in reversed(dims)]


def _is_size(value: ast.expr) -> bool:
    match value:
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[_]) | ast.Call(func=ast.Name(id="len")):
            return True
    return False


def _started(program: Program, value: ast.expr, start: str) -> Iterator[Draft]:
    """The start in place of the one that an expression is moved or compared by, or in what its names stand for; else added to it."""
    for node in _numbers(program, value):
        yield Draft(f"start at {start}", (TextEdit(program.span(node), start),), program.span(node))
    match value:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=right) if is_number(program, right):
            text = start if isinstance(value.op, ast.Add) or isinstance(right, _LINEAR) else f"({start})"
            yield Draft(f"start at {start}", (TextEdit(program.span(right), text),))
        case ast.Call() | ast.Name():
            yield Draft(f"start at {start}", (TextEdit(program.span(value), f"{program.source(value)} + {start}"),))


def _numbers(program: Program, value: ast.expr) -> Iterator[ast.expr]:
    """What names stand for that an expression reads, where that is a product of numbers."""
    for node in ast.walk(value):
        if not isinstance(node, ast.Name):
            continue
        for scope in program.functions(node):
            for made in program.assigned(scope).get(node.id, ()):
                product = isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult) and is_number(program, made)
                if product or (isinstance(made, ast.Constant) and made.value == 0):
                    yield made


def _less(program: Program, value: ast.expr, names: list[str], start: str) -> Iterator[Draft]:
    """A tensor of row numbers that an expression reads, less the start."""
    read = [node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in names]
    operand = first_operand(value)
    if not read and isinstance(operand, ast.Name):
        read = [operand]
    for node in read[:_NAMES]:
        outer = program.parents.get(node)
        bare = isinstance(outer, ast.Attribute | ast.Subscript | ast.BinOp | ast.Compare)
        text = f"({node.id} - {start})" if bare else f"{node.id} - {start}"
        yield Draft(f"take {start} off", (TextEdit(program.span(node), text),))


def written_further(program: Program, span: Span, dim: int, count: int) -> Iterator[Draft]:
    """Rows written so many places further on along a dim: the bounds of what is assigned to, or its index."""
    match program.expression(span):
        case ast.Subscript(slice=ast.Tuple(elts=elements)) if dim < len(elements):
            place = elements[dim]
        case ast.Subscript(slice=ast.expr() as place) if dim == 0:
            pass
        case _:
            return
    if isinstance(place, ast.Slice):
        if place.step is None:
            lower, upper = (further(program, bound, count) for bound in (place.lower, place.upper))
            gap = " " if " " in lower + upper else ""
            text = f"{lower}{gap}:{gap}{upper}" if place.upper is not None else f"{lower}:"
            yield Draft(f"write to {text}", (TextEdit(program.span(place), text),))
    elif isinstance(place, _LINEAR | ast.BinOp):
        text = further(program, place, count)
        yield Draft(f"write to {text}", (TextEdit(program.span(place), text),))


def _written(program: Program, value: ast.expr, start: str) -> Iterator[Draft]:
    """Rows written further on by the start: the index of what is assigned to, or of a call."""
    places = (
        [value.slice] if isinstance(value, ast.Subscript) else value.args[:2] if isinstance(value, ast.Call) else []
    )
    for place in places:
        if isinstance(place, ast.Name | ast.Call | ast.BinOp):
            yield Draft(f"start at {start}", (TextEdit(program.span(place), f"{program.source(place)} + {start}"),))


def _places_further(program: Program, value: ast.expr, start: str, slot: int) -> Iterator[Draft]:
    """The start added to places that a call gives: where they get their name among its results, or where they are taken from these."""
    outer = program.parents.get(value)
    match outer:
        case ast.Assign(targets=[ast.Tuple(elts=names)]) if slot < len(names) and isinstance(names[slot], ast.Name):
            name = program.source(names[slot])
            yield Draft(f"add {start}", (line_after(program, outer, f"{name} = {name} + {start}"),))
        case ast.Attribute(attr="indices") | ast.Subscript(slice=ast.Constant(value=1)):
            yield Draft(f"add {start}", (TextEdit(program.span(outer), f"({program.source(outer)} + {start})"),))
        case _ if not slot:
            yield Draft(f"add {start}", (TextEdit(program.span(value), f"({program.source(value)} + {start})"),))


def _of_passes(program: Program, value: ast.expr, offset: Offset) -> Iterator[str]:
    """What may denote the start of the part that has come in a pass: the name of the rank that it is from, times a length."""
    lengths = [*_lengths(program, value), str(offset.length)]
    for place in [*_places(program, value), *_counted(program, value, offset)]:
        yield from (f"{place} * {length}" for length in lengths)


def _of_blocks(program: Program, value: ast.expr, offset: Offset) -> Iterator[str]:
    """What may denote the start of a block: the count of the loop around it, times what positions are made of."""
    loop = _loop(program, value)
    match (loop.target, loop.iter) if loop is not None else ():
        case (ast.Name(id=count), ast.Call(func=ast.Name(id="range"), args=[_])):
            pass
        case (ast.Tuple(elts=[ast.Name(id=count), *_]), ast.Call(func=ast.Name(id="enumerate"), args=[_])):
            pass
        case _:
            return
    counts = [node.args[0] for node in ast.walk(value) if isinstance(node, ast.Call) and len(node.args) == 1]
    sizes = [node for node in ast.walk(value) if isinstance(node, ast.expr) and _is_size(node)]
    lengths = [program.source(node) for node in [*sizes, *(each for each in counts if isinstance(each, _LINEAR))]]
    yield from (f"{count} * {length}" for length in dict.fromkeys([*lengths, str(offset.length)]))


def _places(program: Program, at: ast.expr) -> list[str]:
    """Names that are assigned a remainder in the loop around a place."""
    loop = _loop(program, at)
    found = assignments(ast.walk(loop)) if loop is not None else ()
    return [
        name
        for name, made in found
        if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mod) and made.lineno < at.lineno
    ]


def _counted(program: Program, at: ast.expr, offset: Offset) -> list[str]:
    """The rank that the part of a pass is from, where parts go up by one rank in each."""
    loop = _loop(program, at)
    if loop is None or not isinstance(loop.target, ast.Name):
        return []
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[count]):
            ranks = rank_expressions(program, at, offset.axis)[:1]
            return [f"(({rank} - {loop.target.id}) % {program.source(count)})" for rank in ranks]
    return []


def _source_of_pass(program: Program, value: ast.expr) -> Iterator[Draft]:
    """Another way to count from which rank the part of a pass is."""
    loop = _loop(program, value)
    step = loop.target.id if loop is not None and isinstance(loop.target, ast.Name) else ""
    read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for name, made in assignments(ast.walk(loop)) if loop is not None and step else ():
        match made:
            case ast.BinOp(left=counted, op=ast.Mod(), right=count) if name in read:
                ranks = [
                    node.id for node in ast.walk(counted) if isinstance(node, ast.Name) and node.id not in (step, name)
                ]
                for rank in dict.fromkeys(ranks):
                    for sign in ("-", "+"):
                        text = f"({rank} {sign} {step}) % {program.source(count)}"
                        if text != program.source(made):
                            yield Draft(f"{name} = {text}", (TextEdit(program.span(made), text),), program.span(made))


def _loop(program: Program, at: ast.expr) -> ast.For | None:
    """The loop around a place, in its own function."""
    for outer in program.ancestors(at):
        if isinstance(outer, ast.For):
            return outer
        if isinstance(outer, Function):
            return None
    return None
