"""Parsing of Python, once per text, and for an edit within long files only of the statements around it."""

from __future__ import annotations

import ast
import functools
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from graphguard_server.texts.positions import split_lines

LONG: Final = 400  # lines from which on it pays to look for what is unchanged
KEPT_TREES: Final = 24
_LONG_KEPT: Final = 6

Outcome: TypeAlias = ast.Module | SyntaxError


@dataclass(frozen=True, slots=True)
class _Known:
    """A long text that was parsed lately."""

    lines: tuple[str, ...]
    tree: ast.Module


_lately: deque[_Known] = deque(maxlen=_LONG_KEPT)


@functools.lru_cache(maxsize=KEPT_TREES)
def outcome(text: str) -> Outcome:
    """The tree of a text, or why there is none.  Trees of similar texts share statements: they are not to be changed."""
    lines = split_lines(text)
    if len(lines) < LONG:
        return _parse(text)
    for known in reversed(_lately):
        tree = _patched(known, lines)
        if tree is not None:
            _lately.append(_Known(lines, tree))
            return tree
    found = _parse(text)
    if isinstance(found, ast.Module):
        _lately.append(_Known(lines, found))
    return found


def _parse(text: str) -> Outcome:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))


def _patched(known: _Known, lines: tuple[str, ...]) -> ast.Module | None:
    """The tree of ``lines``, which differ from a known text within a few statements of the module; None where that is not so.

    What lies between two statements of a module is parsed the same on its own as in its place, if it parses on its own at all: only a clause such as
    ``else`` or deeper indentation belongs to a statement before it, and neither can begin a text.
    """
    changed = _changed_lines(known.lines, lines)
    if changed is None:
        return None
    first, last = changed
    body = known.tree.body
    before = [node for node in body if (node.end_lineno or node.lineno) - 1 < first]
    after = [node for node in body if _first_line(node) - 1 > last]
    top = before[-1].end_lineno or 0 if before else 0
    bottom = _first_line(after[0]) - 1 if after else len(lines)
    between = body[len(before) : len(body) - len(after)]
    shared = any(_first_line(node) <= top or (node.end_lineno or 0) > bottom for node in between)
    continued = top > 0 and lines[top - 1].rstrip("\r\n").endswith("\\")
    if top > first or bottom <= last or shared or continued:
        return None  # statements that share a line, or a line that goes on
    part = _parse("".join(lines[top:bottom]))
    if not isinstance(part, ast.Module):
        return None
    ast.increment_lineno(part, top)
    return ast.Module([*before, *part.body, *after], type_ignores=[])


def _changed_lines(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[int, int] | None:
    """The first and the last of the lines (from 0) that differ; None where the numbers of lines do, or nothing does."""
    if len(before) != len(now):
        return None
    changed = [index for index, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    return (changed[0], changed[-1]) if changed else None


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
