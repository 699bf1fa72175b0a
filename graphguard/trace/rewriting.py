"""Calls in the user's files that Python answers by itself, so that nothing could answer them otherwise while a program is recorded: they are compiled as calls of ours."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Final

NAME: Final = "__graphguard_called__"
"""Among Python's builtins, who answers: ``int(x)`` becomes ``NAME(int, x)``, and ``"%d" % x`` becomes ``"%d" % NAME(None, x)``."""

_CALLED: Final = ("int", "float", "max", "min")
_MENTIONED: Final = re.compile(rb"""\b(?:int|float|max|min)\s*\(|["']\s*%""")


def rewritten(text: bytes, path: str) -> ast.Module | bytes:
    """A file's tree with such calls as calls of ours, every place in it as it was; its text where there are none, or where it does not parse."""
    if not hasattr(builtins, NAME) or not _MENTIONED.search(text):  # nobody answers where nothing is recorded
        return text
    try:
        tree: ast.Module = _Calls().visit(ast.parse(text, path))
        return tree
    except (SyntaxError, ValueError):  # compiling the text says so
        return text


class _Calls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _CALLED and node.args and not node.keywords:
            node.args, node.func = [node.func, *node.args], _helper(node.func)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mod) and _is_text(node.left):
            shown = ast.Call(_helper(node.right), [ast.copy_location(ast.Constant(None), node.right), node.right], [])
            node.right = ast.copy_location(shown, node.right)
        return node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _helper(at: ast.expr) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), at)
