"""The text of a function, as long as it is the very text that runs."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import TypeAlias

from graphguard.trace.pure.lookups import Doubt
from graphguard.trace.source.rewriting import rewritten

_File: TypeAlias = tuple[ast.Module, list[CodeType]]


@cache
def source_of(code: CodeType) -> tuple[list[ast.stmt], ast.arguments]:
    """The statements of a function, which compile to the very code that runs."""
    tree = next((tree for tree in map(_tree, (_plain, _answered), (code,) * 2) if tree is not None), None)
    if tree is None:
        raise Doubt(f"the source of {code.co_qualname} is not what runs")
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and _first_line(node) == code.co_firstlineno
    ]
    if len(found) != 1 or code.co_flags & 0x2A0:  # a generator, a coroutine
        raise Doubt(f"the source of {code.co_qualname} is not found")
    return found[0].body, found[0].args


def _tree(read: Callable[[str], _File], code: CodeType) -> ast.Module | None:
    """A file's tree, if a function's code is among what it compiles to."""
    try:
        tree, compiled = read(code.co_filename)
    except (SyntaxError, ValueError) as error:
        raise Doubt(f"{code.co_filename} does not parse") from error
    return tree if any(one == code and one.co_qualname == code.co_qualname for one in compiled) else None


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


@cache
def _plain(file: str) -> _File:
    """A file as Python reads it."""
    text = "".join(linecache.getlines(file))
    return ast.parse(text), list(_codes(compile(text, file, "exec", dont_inherit=True)))


@cache
def _answered(file: str) -> _File:
    """A file as it is compiled where the program is to be recorded."""
    text = "".join(linecache.getlines(file))
    tree = rewritten(text.encode(), file)
    if isinstance(tree, bytes):
        return ast.parse(text), []
    return tree, list(_codes(compile(tree, file, "exec", dont_inherit=True)))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
