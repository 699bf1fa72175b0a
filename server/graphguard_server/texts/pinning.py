"""Writes the output relation that was inferred into the check, so that from then on it is promised."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from graphguard.ir.spans import Span
from graphguard_server.texts.source import parsed, python_lines, statements

_CLAIMS = frozenset(("Refinement", "Same"))
_REPLICATED = re.compile(r"^(?P<name>.+)@0( = (?P=name)@\d+)*$")


@dataclass(frozen=True, slots=True)
class Pin:
    """Text to insert at a place, and how it is called."""

    span: Span
    text: str
    title: str


def pin(path: str, text: str, check: str, relations: Mapping[str, str]) -> Pin | None:
    """The insertion of `out_relations` for a proved check; None where one is declared, or where the relation has no short name."""
    outputs = {name: relation for name, relation in relations.items() if name == "out" or name.startswith("out[")}
    if not outputs or not all(_REPLICATED.match(relation) for relation in outputs.values()):
        return None
    call = _refinement(text, check)
    if call is None or any(keyword.arg in ("out_relations", None) for keyword in call.keywords):
        return None
    last = max((*call.args, *(keyword.value for keyword in call.keywords)), key=_end, default=None)
    if last is None:
        return None
    line, column = _end(last)
    characters = len(python_lines(text)[line - 1].encode()[:column].decode()) + 1
    place = Span(path, line, characters, line, characters)
    return Pin(place, ', out_relations="replicate"', 'Pin the output relation: out_relations="replicate"')


def _refinement(text: str, check: str) -> ast.Call | None:
    """The call of `Refinement` or `Same` in a check's body."""
    check = check.partition("[")[0]
    tree = parsed(text)
    if tree is None:
        return None
    function = next(
        (node for node in statements(tree) if isinstance(node, ast.FunctionDef) and node.name == check), None
    )
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    return next((call for call in calls if ast.unparse(call.func).rpartition(".")[2] in _CLAIMS), None)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
