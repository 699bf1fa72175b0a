"""What a call that is given unsuitable memory is called on, as the program writes it, and how its line can be written so that it is given other memory."""

from __future__ import annotations

import ast
from typing import Final, TypeAlias

from graphguard.ir import Span
from graphguard.ir.capture import Mending
from graphguard.trace.graph.places import Place, place_of

_FIRST: Final = frozenset(("all_reduce", "broadcast", "reduce", "send", "recv"))
# What PyTorch's functions are called, where not as the collective.
_CALLED: Final = {"send": ("send", "isend"), "recv": ("recv", "irecv"), "all_gather": ("all_gather", "_all_gather")}
_Written: TypeAlias = ast.Name | ast.Attribute | ast.Subscript | ast.Call


def said(span: Span | None) -> str:
    """The code of a place in quotes, where it stands in one line; ``the call`` otherwise."""
    place = place_of(span)
    if place is None:
        return "the call"
    node = place.statement if isinstance(place.statement, ast.Assign | ast.AugAssign) else place.call
    text = "" if node is None else place.text(node)
    return f"'{text}'" if text and "\n" not in text and len(text) <= 80 else "the call"


def operand(span: Span | None, kind: str, *, taken: bool) -> str | None:
    """The tensor that a collective is given, or fills, as it is written at the call."""
    place = place_of(span)
    found = None if place is None else _operand(place, kind, taken=taken)
    return None if place is None or found is None else place.text(found)


def contiguous(span: Span | None, kind: str, *, taken: bool) -> tuple[Mending, ...]:
    """Ways to give a collective a tensor of its own: the simplest first, and those that put back what it brings."""
    place = place_of(span)
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
    place = place_of(span)
    found = None if place is None else _operand(place, kind, taken=False)
    if place is None or found is None:
        return ()
    text = place.text(found)
    return (Mending(f"give {kind} {text}.clone()", ((place.span(found), f"{text}.clone()"),)),)


def cloned(span: Span | None) -> tuple[Mending, ...]:
    """The line of a call that reads what it writes, reading copies."""
    place = place_of(span)
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


def _bracketed(place: Place, node: ast.expr) -> str:
    text = place.text(node)
    return text if isinstance(node, _Written) else f"({text})"


def _operand(place: Place, kind: str, *, taken: bool) -> _Written | None:
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
