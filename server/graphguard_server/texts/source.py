"""Python source as trees, parsed once per text."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from graphguard.ir.spans import Span
from graphguard_server.texts.parsing import outcome
from graphguard_server.texts.positions import split_lines

KEPT_STATEMENTS: Final = 8192
_PRAGMA: Final = "# graphguard:"

_digests: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()


def parsed(text: str) -> ast.Module | None:
    """The tree of a text; None where it does not parse."""
    found = outcome(text)
    return found if isinstance(found, ast.Module) else None


def syntax_error(text: str) -> SyntaxError | None:
    """Why a text does not parse; None where it does."""
    found = outcome(text)
    return found if isinstance(found, SyntaxError) else None


@functools.lru_cache(maxsize=256)
def meaning(text: str) -> str | None:
    """A digest of what a Python text means: comments and layout left out, our own pragmas kept; None where it does not parse.

    Statements of the module are digested one by one and remembered, so that a keystroke costs one of them.
    """
    tree = parsed(text)
    if tree is None:
        return None
    lines = python_lines(text)
    whole = hashlib.sha256()
    for statement in tree.body:
        whole.update(_digest(statement, segment(statement, lines)))
    for number, pragma in _pragmas(text):
        whole.update(f"{number} {pragma}".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()[:24]


@functools.lru_cache(maxsize=64)
def python_lines(text: str) -> tuple[str, ...]:
    r"""Lines as Python's parser counts them; ``\r\n`` and ``\r`` count as one end each, as in the protocol."""
    return split_lines(text)


def segment(statement: ast.stmt, lines: tuple[str, ...]) -> str:
    """The whole lines of a statement, its decorators included."""
    return "".join(lines[first_line(statement) - 1 : statement.end_lineno])


def first_line(statement: ast.stmt) -> int:
    """The first line of a statement or of its first decorator."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement of a tree, nested ones included; expressions are not looked into."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                waiting.extend(inner)
        if isinstance(node, ast.stmt):
            yield node


def last_line(text: str, span: Span) -> int:
    """The line (from 1) on which a simple statement around a span ends, where a comment after it belongs to it; else the span's own last."""
    tree = parsed(text)
    own = max(span.end_line, span.line)
    around = [
        node.end_lineno or own
        for node in (statements(tree) if tree is not None else ())
        if node.lineno <= span.line and own <= (node.end_lineno or own) and not hasattr(node, "body")
    ]
    return min(around, default=own)


def _digest(statement: ast.stmt, source: str) -> bytes:
    key = (source, statement.col_offset, statement.end_col_offset or 0)
    found = _digests.get(key)
    if found is None:
        found = hashlib.sha256(ast.dump(statement).encode("utf-8", "surrogatepass")).digest()
        _digests[key] = found
        if len(_digests) > KEPT_STATEMENTS:
            _digests.popitem(last=False)
    return found


def _pragmas(text: str) -> Iterator[tuple[int, str]]:
    """Our pragmas, numbered among the lines that hold code, so that comments elsewhere do not matter."""
    if _PRAGMA not in text:
        return
    number = 0
    for line in split_lines(text):
        stripped = line.strip()
        if _PRAGMA in line:
            yield number, line.partition(_PRAGMA)[2].strip()
        number += bool(stripped) and not stripped.startswith("#")
