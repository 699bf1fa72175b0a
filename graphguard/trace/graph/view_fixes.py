"""What a call that is given unsuitable memory is called on, as the program writes it, and how its line can be written so that it is given other memory; and how a call is waited for."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from typing import Final, TypeAlias

from graphguard.ir import Span
from graphguard.ir.capture import Mending

_FIRST: Final = frozenset(("all_reduce", "broadcast", "reduce", "send", "recv"))
# What PyTorch's functions are called, where not as the collective.
_CALLED: Final = {"send": ("send", "isend"), "recv": ("recv", "irecv"), "all_gather": ("all_gather", "_all_gather")}
_Written: TypeAlias = ast.Name | ast.Attribute | ast.Subscript | ast.Call


@dataclass(frozen=True, slots=True)
class _Place:
    """A span in its file: the lines, the statement that it is in, and the innermost call, if it is one."""

    file: str
    lines: list[str]
    statement: ast.stmt
    call: ast.Call | None

    def text(self, node: ast.AST) -> str:
        return ast.get_source_segment("".join(self.lines), node) or ""

    def span(self, node: ast.expr | ast.stmt) -> Span:
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(
            self.file, node.lineno, self._column(node.lineno, node.col_offset), end_line, self._column(end_line, end)
        )

    def _column(self, line: int, offset: int) -> int:
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def before(self, text: str) -> tuple[Span, str]:
        """A line before the statement."""
        at = self.span(self.statement)
        return Span(self.file, at.line, at.column, at.line, at.column), f"{text}\n{self._indent()}"

    def after(self, text: str) -> tuple[Span, str]:
        """A line after the statement."""
        at = self.span(self.statement)
        return Span(self.file, at.end_line, at.end_column, at.end_line, at.end_column), f"\n{self._indent()}{text}"

    def _indent(self) -> str:
        line = self.lines[self.statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]


def said(span: Span | None) -> str:
    """The code of a place in quotes, where it stands in one line; ``the call`` otherwise."""
    place = _place(span)
    if place is None:
        return "the call"
    node = place.statement if isinstance(place.statement, ast.Assign | ast.AugAssign) else place.call
    text = "" if node is None else place.text(node)
    return f"'{text}'" if text and "\n" not in text and len(text) <= 80 else "the call"


def operand(span: Span | None, kind: str, *, taken: bool) -> str | None:
    """The tensor that a collective is given, or fills, as it is written at the call."""
    place = _place(span)
    found = None if place is None else _operand(place, kind, taken=taken)
    return None if place is None or found is None else place.text(found)


def contiguous(span: Span | None, kind: str, *, taken: bool) -> tuple[Mending, ...]:
    """Ways to give a collective a tensor of its own: the simplest first, and those that put back what it brings."""
    place = _place(span)
    found = None if place is None else _operand(place, kind, taken=taken)
    if place is None or found is None:
        return ()
    text, at = place.text(found), place.span(found)
    if not taken and kind not in ("all_reduce", "broadcast", "reduce"):
        return (Mending(f"give {kind} {text}.contiguous()", ((at, f"{text}.contiguous()"),)),)
    if not isinstance(place.statement, ast.Expr):
        return ()  # a handle is waited for elsewhere
    ways = []
    if isinstance(found, ast.Name):
        ways.append(Mending(f"{text} = {text}.contiguous() before", (place.before(f"{text} = {text}.contiguous()"),)))
    own = "exchanged"
    edits = (place.before(f"{own} = {text}.contiguous()"), (at, own), place.after(f"{text}.copy_({own})"))
    ways.append(Mending(f"call {kind} on a contiguous copy of {text}, and copy it back", edits))
    return tuple(ways)


def copied(span: Span | None, kind: str) -> tuple[Mending, ...]:
    """A collective on a copy of what it is given."""
    place = _place(span)
    found = None if place is None else _operand(place, kind, taken=False)
    if place is None or found is None:
        return ()
    text = place.text(found)
    return (Mending(f"give {kind} {text}.clone()", ((place.span(found), f"{text}.clone()"),)),)


def cloned(span: Span | None) -> tuple[Mending, ...]:
    """The line of a call that reads what it writes, reading copies."""
    place = _place(span)
    if place is None:
        return ()
    if isinstance(place.statement, ast.Assign | ast.AugAssign):
        read = [place.statement.value]
    elif place.call is not None:
        read = [arg for arg in place.call.args if isinstance(arg, _Written)]
    else:
        return ()
    edits = tuple((place.span(node), f"{_bracketed(place, node)}.clone()") for node in read)
    names = " and ".join(dict.fromkeys(place.text(node) for node in read))
    return (Mending(f"read a copy of {names}", edits),) if edits else ()


def is_dropped(called: Span) -> bool:
    """Whether a statement is a call alone, so that nothing has what it returns."""
    place = _place(called)
    return place is not None and isinstance(place.statement, ast.Expr) and place.statement.value is place.call


def awaited(called: Span | None, kind: str, met: Span | None) -> tuple[Mending, ...]:
    """Ways to wait for an asynchronous call: where its result is ``met``, if its handle is in sight there, and where it is made."""
    place, reader = _place(called), _place(met)
    call = None if place is None else place.call
    if place is None or call is None:
        return ()
    statement = place.statement
    if isinstance(statement, ast.Expr) and statement.value is call:
        keyword = next((each for each in call.keywords if each.arg == "async_op"), None)
        before = max(
            (*call.args, *(each.value for each in call.keywords if each is not keyword)), key=_end, default=None
        )
        if keyword is not None and before is not None and _end(before) < _end(keyword.value):
            start, end = place.span(before), place.span(keyword.value)
            left_out = Span(place.file, start.end_line, start.end_column, end.end_line, end.end_column)
            return (Mending(f"call {kind} without async_op", ((left_out, ""),)),)
        at = place.span(call)
        return (
            Mending(
                f"wait for the {kind}",
                ((Span(at.file, at.end_line, at.end_column, at.end_line, at.end_column), ".wait()"),),
            ),
        )
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Name)
    ):
        return ()
    handle = statement.targets[0].id
    if statement.value is call:
        ways = [] if reader is None or not _is_behind(place, reader) else [reader.before(f"{handle}.wait()")]
        return tuple(
            Mending(f"call {handle}.wait() first", (edit,)) for edit in (*ways, place.after(f"{handle}.wait()"))
        )
    if isinstance(statement.value, ast.ListComp) and statement.value.elt is call:
        return (Mending(f"wait for {handle}", (place.after(f"for work in {handle}: work.wait()"),)),)
    return ()


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _is_behind(one: _Place, other: _Place) -> bool:
    """Whether a statement comes behind another in the function that has it, in the same block or in one that begins behind it."""
    if one.file != other.file:
        return False
    for block in _blocks(ast.parse("".join(one.lines))):
        at = next((i for i, each in enumerate(block) if _spans(each, one.statement)), None)
        if at is not None and _spans(block[at], one.statement, whole=True):
            return any(_spans(each, other.statement) and not _defines(each) for each in block[at + 1 :])
    return False


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    found = [
        getattr(node, name)
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if hasattr(node, name)
    ]
    return [block for block in found if isinstance(block, list)]


def _defines(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _spans(outer: ast.stmt, inner: ast.stmt, *, whole: bool = False) -> bool:
    """Whether a statement holds another; ``whole``: whether they stand at the same place."""
    start, end = (outer.lineno, outer.col_offset), (outer.end_lineno or outer.lineno, outer.end_col_offset or 0)
    first, last = (inner.lineno, inner.col_offset), (inner.end_lineno or inner.lineno, inner.end_col_offset or 0)
    return (start, end) == (first, last) if whole else start <= first and last <= end


def _bracketed(place: _Place, node: ast.expr) -> str:
    text = place.text(node)
    return text if isinstance(node, _Written) else f"({text})"


def _operand(place: _Place, kind: str, *, taken: bool) -> _Written | None:
    call = place.call
    if call is None or not _called(call).startswith(_CALLED.get(kind, (kind,))):
        return None
    at = 0 if kind in _FIRST or taken != (kind == "gather") else 1
    found = call.args[at] if at < len(call.args) else None
    return found if isinstance(found, _Written) else None


def _called(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _place(span: Span | None) -> _Place | None:
    lines = [] if span is None else linecache.getlines(span.file)
    if span is None or not 1 <= span.line <= len(lines):
        return None
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.Call) and _holds(node, span, lines)]
    statements = [node for node in around if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    calls = [node for node in around if isinstance(node, ast.Call) and node.lineno == span.line]
    if not statements:
        return None
    return _Place(span.file, lines, statements[-1], calls[-1] if calls else None)


def _holds(node: ast.stmt | ast.expr, span: Span, lines: list[str]) -> bool:
    offset = len(lines[span.line - 1][: span.column - 1].encode())
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (node.lineno, node.col_offset) <= (span.line, offset) < end
