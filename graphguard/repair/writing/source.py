"""Graph edits as text edits, in the idiom of the file: what a developer would have typed.

Every function yields guesses; nothing is offered before the edited text was traced and proved again.  An edit inserts lines, or
replaces the smallest expression; it never reformats what it does not change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.repair.graph import edits as graph_edits
from graphguard.repair.text.program import Program, assigned_name, definitions, is_number
from graphguard.repair.text.vocabulary import (
    distributed_name,
    functional_name,
    group_expressions,
    import_line,
    imported_all_reduce,
    rank_expressions,
)
from graphguard.report.diagnostics import TextEdit

_READABLE = 9999  # of a factor that is told as a ratio


@dataclass(frozen=True, slots=True)
class Draft:
    """A titled set of text edits; ``place`` is the expression that they mend, where it is another one than was asked about."""

    title: str
    edits: tuple[TextEdit, ...]
    place: Span | None = None


def insert_reduction(
    program: Program, span: Span, edit: graph_edits.InsertReduction, capture: Capture, fresh: str = "partial"
) -> Iterator[Draft]:
    """Reduce the value of an expression in place as soon as it exists; one without a name gets one like ``fresh``."""
    value, augmented = program.expression(span), program.augmented(span)
    if augmented is not None and isinstance(augmented.target, ast.Name | ast.Attribute):
        name = program.source(augmented.target)
        for reduce in _forms(program, augmented, edit, capture):
            line, imports = reduce(name)
            yield Draft(
                f"all_reduce({name}) over '{edit.axis}'",
                (line_after(program, augmented, _below(line, program.indent(augmented))), *imports),
            )
    if value is None:
        return
    value = program.values_of(value)
    for reduce in _forms(program, value, edit, capture):
        yield from _with_statement_after(program, value, reduce, edit.axis, fresh)


def _forms(
    program: Program, at: ast.expr | ast.stmt, edit: graph_edits.InsertReduction, capture: Capture
) -> Iterator[Reduce]:
    """The ways to write a reduction: as it is, or only where there is a group, if the file asks for that elsewhere or the specification, which has none, runs the function as well."""
    for group in groups_for(program, at, edit.axis, capture):
        yield Reduce(program, group, edit.reduce)
        if group and (f"if {group} is not None:" in program.text or _is_specified(program, at, capture)):
            yield Reduce(program, group, edit.reduce, guarded=True)


def _is_specified(program: Program, at: ast.expr | ast.stmt, capture: Capture) -> bool:
    """Whether the specification ran the function that an expression stands in."""
    function = program.enclosing_function(program.span(at))
    if function is None or capture.spec is None:
        return False
    whole = program.span(function)
    return any(
        frame.span.file == whole.file and whole.line <= frame.span.line <= whole.end_line
        for frame in capture.spec.frames
    )


def scale(program: Program, span: Span, factor: Fraction, sizes: list[str]) -> Iterator[Draft]:
    """Multiply the value of an expression by a constant; ``sizes`` are names in sight for the constant or its reciprocal."""
    value = program.expression(span)
    if value is None:
        return
    text = program.source(value)
    whole = text if isinstance(value, ast.Call | ast.Name | ast.Attribute | ast.Subscript) else f"({text})"
    for size in sizes:
        sign, verb = ("/", "divide") if factor.numerator == 1 else ("*", "multiply")
        yield Draft(f"{verb} by {size}", (TextEdit(program.span(value), f"{whole} {sign} {size}"),))
    if factor.numerator == 1:
        title, new = f"divide by {factor.denominator}", f"{whole} / {factor.denominator}"
    else:
        shown = factor if max(abs(factor.numerator), factor.denominator) <= _READABLE else f"{float(factor):.6g}"
        title = f"multiply by {shown}"
        new = f"{whole} * {factor if factor.denominator == 1 else float(factor)}"
    yield Draft(title, (TextEdit(program.span(value), new),))


def change_reduce(program: Program, span: Span, reduce: str) -> Iterator[Draft]:
    """Give a collective another reduction; for a mean also the division that every backend has."""
    call = _with_arguments(program, span)
    if call is None:
        return
    other = _other_operation(program, call, reduce)
    divided = list(_divided(program, call)) if reduce == "avg" else []
    yield from ([other, *divided] if "ReduceOp.AVG" in program.text else [*divided, other])


def _with_arguments(program: Program, span: Span) -> ast.Call | None:
    """The call at a place; none without arguments, as ``loss.backward()``: that is not the collective itself, and takes neither group nor reduction."""
    call = program.expression(span)
    return call if isinstance(call, ast.Call) and (call.args or call.keywords) else None


def _other_operation(program: Program, call: ast.Call, reduce: str) -> Draft:
    dist = distributed_name(program) or "torch.distributed"
    wanted = f"{dist}.ReduceOp.{reduce.upper()}"
    for keyword in call.keywords:
        if keyword.arg == "op":
            return Draft(f"reduce with {reduce}", (TextEdit(program.span(keyword.value), wanted),))
    return Draft(f"reduce with {reduce}", (_last_argument(program, call, f"op={wanted}"),))


def _last_argument(program: Program, call: ast.Call, argument: str) -> TextEdit:
    """A further argument of a call that has some."""
    given = program.span([*call.args, *(keyword.value for keyword in call.keywords)][-1])
    at = Span(given.file, given.end_line, given.end_column, given.end_line, given.end_column)
    return TextEdit(at, f", {argument}")


def _divided(program: Program, call: ast.Call) -> Iterator[Draft]:
    """Divide by the size of the collective's own group, behind it."""
    statement = program.statement(call)
    dist = distributed_name(program)
    if dist is None or not call.args or not isinstance(statement, ast.Expr) or statement.value is not call:
        return
    if any(keyword.arg in {"op", "async_op"} for keyword in call.keywords):
        return
    group = next((program.source(keyword.value) for keyword in call.keywords if keyword.arg == "group"), "")
    line = f"{program.source(call.args[0])}.div_({dist}.get_world_size({group}))"
    yield Draft(f"{line} after the reduction", (line_after(program, statement, line),))


def change_group(program: Program, span: Span, axis: str, capture: Capture) -> Iterator[Draft]:
    """Give a collective another group."""
    call = _with_arguments(program, span)
    if call is None:
        return
    named = (keyword.value for keyword in call.keywords if keyword.arg == "group")
    present = next(named, None) or next((each for each in call.args[1:] if _is_group(program, each)), None)
    for group in groups_for(program, call, axis, capture):
        if not group or (present is not None and group == program.source(present)):
            continue
        title = f"use the group of axis '{axis}'"
        if present is not None:
            yield Draft(title, (TextEdit(program.span(present), group),))
        else:
            yield Draft(title, (_last_argument(program, call, f"group={group}"),))


def _is_group(program: Program, argument: ast.expr) -> bool:
    """Whether an argument denotes a process group, as far as its text tells; None is the default group."""
    return "group" in program.source(argument) or (isinstance(argument, ast.Constant) and argument.value is None)


def divide_after(program: Program, span: Span, factor: Fraction) -> Iterator[Draft]:
    """Scale the tensor that an in-place collective has just reduced."""
    call = program.expression(span)
    statement = program.statement(call) if call is not None else None
    if not isinstance(call, ast.Call) or not call.args or statement is None or not program.stands_alone(call):
        return
    target = program.source(call.args[0])
    line = f"{target}.div_({factor.denominator})" if factor.numerator == 1 else f"{target}.mul_({factor})"
    yield Draft(f"{line} after the reduction", (line_after(program, statement, line),))


def add_after_reduction(
    program: Program, addition: Span, reduction: Span, forms: Iterable[str] = ("{}",)
) -> Iterator[Draft]:
    """Move a bias behind the all-reduce: ``h = x @ w + b`` / ``all_reduce(h)`` becomes ``h = x @ w`` / ``all_reduce(h)`` / ``h = h + b``.

    ``forms`` say how the bias may have to be read there, such as ``Reduced.apply({})``.
    """
    total = program.expression(addition)
    reduce = program.expression(reduction)
    if total is None or not isinstance(reduce, ast.Call):
        return
    terms = [(kept, form.format(moved)) for form in forms for kept, moved in _without_term(program, total)]
    for kept, moved in terms:
        if total in ast.walk(reduce):
            start, place = program.source(reduce).find(program.source(total)), program.span(reduce)
            text = program.source(reduce)
            text = f"{text[:start]}{kept}{text[start + len(program.source(total)) :]} + {moved}"
            yield Draft(f"add {moved} after the reduction", (TextEdit(place, text),))
            continue
        behind = _added_behind(program, reduce, moved)
        if behind:
            yield Draft(f"add {moved} after the reduction", (TextEdit(program.span(total), kept), *behind))


def _without_term(program: Program, total: ast.expr) -> Iterator[tuple[str, str]]:
    """An expression without one of the terms that it adds, and that term."""
    match total:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield program.source(left), program.source(right)
            yield program.source(right), program.source(left)
        case ast.Call(func=function, args=[x, weight, bias]) if program.source(function).endswith("linear"):
            yield f"{program.source(function)}({program.source(x)}, {program.source(weight)})", program.source(bias)
        case ast.Call(func=function, args=[x], keywords=[]):
            module = program.source(function)
            linear = functional_name(program)
            yield f"{linear}.linear({program.source(x)}, {module}.weight)", f"{module}.bias"


def _added_behind(program: Program, reduce: ast.Call, term: str) -> tuple[TextEdit, ...]:
    """Add a term to the result of a reduction, whether it works in place or gives a value."""
    statement = program.statement(reduce)
    if isinstance(statement, ast.Expr) and statement.value is reduce and reduce.args:
        name = program.source(reduce.args[0])
        return (line_after(program, statement, f"{name} = {name} + {term}"),)
    if statement is not None and (name := assigned_name(statement, reduce)):
        return (line_after(program, statement, f"{name} = {name} + {term}"),)
    return (TextEdit(program.span(reduce), f"{program.source(reduce)} + {term}"),)


def change_concatenation(program: Program, span: Span, what: str, value: object) -> Iterator[Draft]:
    """Put gathered parts together along another dim, or in rank order."""
    call = program.expression(span)
    if not isinstance(call, ast.Call) or not call.args:
        return
    if what in {"order", "parts"}:
        yield from _in_order(program, call, "the parts in rank order" if what == "order" else "{}")
        return
    dims = [keyword.value for keyword in call.keywords if keyword.arg in {"dim", "axis"}] or call.args[1:2]
    if dims:
        yield Draft(f"join along dim {value}", (TextEdit(program.span(dims[0]), str(value)),))


def change_sender(program: Program, span: Span, rank: object, sizes: list[str]) -> Iterator[Draft]:
    """Let another rank broadcast; ``sizes`` are texts for the number of ranks, where it is the last one of them."""
    call = program.expression(span)
    if not isinstance(call, ast.Call):
        return
    named = next((word.value for word in call.keywords if word.arg in {"src", "group_src"}), None)
    given = named or (call.args[1] if len(call.args) > 1 else None)
    if given is not None:
        for size in sizes:
            yield Draft("send from the last rank", (TextEdit(program.span(given), f"{size} - 1"),))
        yield Draft(f"send from rank {rank}", (TextEdit(program.span(given), str(rank)),))


def _in_order(program: Program, call: ast.Call, what: str) -> Iterator[Draft]:
    """Take a reversal out of what a call reads, or of what the names in it stand for; ``what`` tells what stays."""
    names = [node for arg in call.args for node in ast.walk(arg) if isinstance(node, ast.Name)]
    for value in [*call.args, *(each for name in names for each in definitions(program, name))]:
        for node in ast.walk(value):
            match node:
                case ast.Subscript(value=inner, slice=ast.Slice(step=ast.UnaryOp(op=ast.USub()))):
                    pass
                case ast.Call(func=ast.Name(id="reversed"), args=[inner]):
                    pass
                case _:
                    continue
            place = program.span(node)
            text = program.source(inner)
            yield Draft(f"take {what.format(text)}", (TextEdit(place, text),), place)


def shift(program: Program, span: Span, axis: str, starts: Iterable[str]) -> Iterator[Draft]:
    """Let positions start where the rank's part of the sequence starts, which ``starts`` are texts for."""
    value = program.expression(span)
    if value is None:
        return
    outer = program.parents.get(value)
    for start in starts:
        text = f"{program.source(value)} + {start}"
        bare = isinstance(outer, ast.Attribute | ast.Subscript | ast.BinOp)
        title = f"start at this rank's offset along '{axis}'"
        yield Draft(title, (TextEdit(program.span(value), f"({text})" if bare else text),))


def reduce_to_all(program: Program, span: Span) -> Iterator[Draft]:
    """``dist.reduce(t, dst, ...)`` becomes ``dist.all_reduce(t, ...)``: every rank gets the sum."""
    call = program.expression(span)
    match call:
        case ast.Call(func=ast.Attribute(value=module, attr="reduce"), args=[tensor, *rest], keywords=keywords):
            kept = [program.source(tensor), *map(program.source, rest[1:])]
            kept += [
                f"{each.arg}={program.source(each.value)}" for each in keywords if each.arg not in ("dst", "group_dst")
            ]
            text = f"{program.source(module)}.all_reduce({', '.join(kept)})"
            yield Draft("all_reduce instead of reduce", (TextEdit(program.span(call), text),))


def move_slice(program: Program, span: Span, edit: graph_edits.MoveSlice, length: int, dim: int) -> Iterator[Draft]:
    """Let a slice start at the rank's own part."""
    value = program.expression(span)
    if value is None:
        return
    starts = set(edit.starts.values())
    if len(starts) == 1:  # the ranks that come here all need the same rows
        yield from _constant_slice(program, value, starts.pop(), length, dim)
    title = f"read this rank's part along '{edit.axis}'"
    ranks = rank_expressions(program, value, edit.axis)
    yield from (Draft(title, edits) for edits in _of_other_rank(program, value, ranks))
    for rank in ranks:
        if is_number(program, value):
            yield Draft(f"start at {rank} * {length}", (TextEdit(span, f"{rank} * {length}"),))
            continue
        match value:
            case ast.Subscript(slice=ast.Tuple(elts=elements)) if dim < len(elements):
                place = elements[dim]
            case ast.Subscript(slice=ast.expr() as only) if dim == 0:
                place = only
            case ast.Call(func=ast.Attribute(attr="narrow"), args=[*_, start, taken]):
                text = f"{rank} * {_length(program, None, taken, length)}"
                yield Draft(title, (TextEdit(program.span(start), text),))
                continue
            case _:
                return
        if isinstance(place, ast.Slice):
            rows = _length(program, place.lower, place.upper, length)
            text = f"{rank} * {rows} : ({rank} + 1) * {rows}"
            yield Draft(title, (TextEdit(program.span(place), text),))
        else:
            yield Draft(title, (TextEdit(program.span(place), rank),))


def _length(program: Program, start: ast.expr | None, end: ast.expr | None, length: int) -> str:
    """How many rows are read, as the text says it: a number fits one mesh."""
    whole = start is None or (isinstance(start, ast.Constant) and start.value == 0)
    named = whole and isinstance(end, ast.Name | ast.Attribute | ast.Call | ast.BinOp)
    text = program.source(end) if named and end is not None else str(length)
    return f"({text})" if isinstance(end, ast.BinOp) and named else text


def _of_other_rank(program: Program, value: ast.expr, ranks: list[str]) -> Iterator[tuple[TextEdit, ...]]:
    """What is read written with another one of these places of the rank, as ``tp_rank * size`` with ``dp_rank``."""
    match value:
        case ast.Subscript(slice=index):
            pass
        case ast.Call(func=ast.Attribute(attr="narrow"), args=[*_, index, _]):
            pass
        case _:
            return
    found = list(_outermost(program, index, ranks))
    for rank in ranks if found else ():
        if any(program.source(node) != rank for node in found):
            yield tuple(TextEdit(program.span(node), rank) for node in found)


def _outermost(program: Program, node: ast.AST, texts: list[str]) -> Iterator[ast.expr]:
    """The expressions within one that have such a text, none within another."""
    if isinstance(node, ast.expr) and program.source(node) in texts:
        yield node
        return
    for inner in ast.iter_child_nodes(node):
        yield from _outermost(program, inner, texts)


def _constant_slice(program: Program, value: ast.expr, start: int, length: int, dim: int) -> Iterator[Draft]:
    match value:
        case ast.Subscript(slice=ast.Tuple(elts=elements)) if dim < len(elements):
            place = elements[dim]
        case ast.Subscript(slice=ast.expr() as only) if dim == 0:
            place = only
        case _:
            return
    text = f"{start}:{start + length}" if isinstance(place, ast.Slice) else str(start)
    yield Draft(f"read rows {text}", (TextEdit(program.span(place), text),))


def other_part(program: Program, span: Span, axis: str) -> Iterator[Draft]:
    """Let a rank read its own part of what was split: ``x.chunk(n)[0]`` becomes ``x.chunk(n)[rank]``."""
    value = program.expression(span)
    outer = program.parents.get(value) if value is not None else None
    if not isinstance(outer, ast.Subscript) or isinstance(outer.slice, ast.Slice | ast.Tuple):
        return
    for rank in rank_expressions(program, outer, axis):
        place = program.span(outer)
        title = f"read this rank's part along '{axis}'"
        yield Draft(title, (TextEdit(program.span(outer.slice), rank),), place)


def rank_in_group(program: Program, axis: str) -> Iterator[Draft]:
    """Ask for the rank in a group wherever it is asked for in the whole world; each call by itself."""
    for node in ast.walk(program.tree):
        asks = isinstance(node, ast.Call) and not node.args and not node.keywords
        if not isinstance(node, ast.Call) or not asks or program.source(node.func).rpartition(".")[2] != "get_rank":
            continue
        for group in group_expressions(program, node, axis):
            new = f"{program.source(node.func)}({group})"
            yield Draft(f"{new}, the rank along '{axis}'", (TextEdit(program.span(node), new),), program.span(node))


def groups_for(program: Program, at: ast.AST, axis: str, capture: Capture) -> list[str]:
    """Group expressions to try; an empty one means the default group, right only where the axis is the whole mesh."""
    found = group_expressions(program, at, axis)
    if capture.mesh[axis] == capture.world_size:
        found.append("")
    return found


@dataclass(frozen=True, slots=True)
class Reduce:
    """An in-place all-reduce over a group, as the file would write it."""

    program: Program
    group: str
    reduce: str = "sum"
    guarded: bool = False

    def __call__(self, tensor: str) -> tuple[str, tuple[TextEdit, ...]]:
        """The call on a tensor, if there is a group where that is asked, and the import it may need."""
        text, imports = self._call(tensor)
        return f"if {self.group} is not None:\n    {text}" if self.guarded else text, imports

    def _call(self, tensor: str) -> tuple[str, tuple[TextEdit, ...]]:
        imported = imported_all_reduce(self.program)
        dist = distributed_name(self.program)
        arguments = f"{tensor}, group={self.group}" if self.group else tensor
        if self.reduce != "sum":
            arguments = f"{tensor}, op={dist or 'dist'}.ReduceOp.{self.reduce.upper()}{arguments.removeprefix(tensor)}"
        if imported is not None and dist is None:
            return f"{imported}({arguments})", ()
        if dist is not None:
            return f"{dist}.all_reduce({arguments})", ()
        line, text = import_line(self.program)
        place = Span(self.program.file, line + 1, 1, line + 1, 1)
        return f"dist.all_reduce({arguments})", (TextEdit(place, text),)


def _with_statement_after(program: Program, value: ast.expr, call: Reduce, axis: str, fresh: str) -> Iterator[Draft]:
    """Name the value where it has no name, and put a call on it behind the statement that computes it."""
    statement = program.statement(value)
    if statement is None or not _simple(statement):
        return
    title = f"all_reduce({{}}) over '{axis}'"
    name = assigned_name(statement, value) or _changed_name(program, statement, value)
    if name:
        line, imports = call(name)
        below = _below(line, program.indent(statement))
        yield Draft(title.format(name), (line_after(program, statement, below), *imports))
        return
    start, indent = program.span(statement), program.indent(statement)
    at = Span(start.file, start.line, 1, start.line, 1)
    if isinstance(value, ast.Name) and isinstance(statement, ast.Return):
        line, imports = call(value.id)
        yield Draft(title.format(value.id), (TextEdit(at, f"{indent}{_below(line, indent)}\n"), *imports))
        return
    name = program.fresh(fresh, program.function(value))
    line, imports = call(name)
    above = f"{indent}{name} = {program.source(value)}\n{indent}{_below(line, indent)}\n"
    yield Draft(title.format(name), (TextEdit(at, above), TextEdit(program.span(value), name), *imports))


def _changed_name(program: Program, statement: ast.stmt, value: ast.expr) -> str:
    """What a statement that is one call changes in place: ``p.grad`` of ``p.grad.div_(n)``; empty for any other."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as changed, attr=method)):
            in_place = method.endswith("_") and not method.endswith("__")
            return (
                program.source(changed)
                if in_place and isinstance(statement, ast.Expr) and statement.value is value
                else ""
            )
    return ""


def _simple(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr)


def line_after(program: Program, statement: ast.stmt, line: str) -> TextEdit:
    """A line of text behind a statement, indented like it."""
    last = statement.end_lineno or statement.lineno
    column = len(program.lines[last - 1]) + 1  # behind a comment that ends the line
    indent = program.indent(statement)
    return TextEdit(Span(program.file, last, column, last, column), f"\n{indent}{line}")


def _below(lines: str, indent: str) -> str:
    """Lines of which those below the first are indented as well."""
    return lines.replace("\n", f"\n{indent}")
