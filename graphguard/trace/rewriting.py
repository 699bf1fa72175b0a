"""Calls in the user's files that Python answers by itself, so that nothing could answer them otherwise while a program is recorded: they are compiled as calls of ours."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Final

NAME: Final = "__graphguard_called__"
"""Among Python's builtins, who answers: ``int(x)`` becomes ``NAME(int, x)``, and ``"%d" % x`` becomes ``NAME(None, "%d", x) + ""``."""

_CALLED: Final = ("len", "int", "float", "max", "min")
# No method of these names: ``x.max(-1)`` is PyTorch's to answer.
_MENTIONED: Final = re.compile(rb"""(?<!\.)\b(?:len|int|float|max|min)\s*\(|["']\s*%""")
# What most nodes are, and has no calls in it.
_LEAVES: Final = (
    ast.expr_context,
    ast.operator,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
    ast.Name,
    ast.Constant,
    ast.alias,
)


def rewritten(text: bytes, path: str) -> ast.Module | bytes:
    """A file's tree with such calls as calls of ours, every place in it as it was; its text where there are none, or where it does not parse."""
    if not hasattr(builtins, NAME) or not _MENTIONED.search(text):  # nobody answers where nothing is recorded
        return text
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError):  # compiling the text says so
        return text
    for node in _calls_in(tree):
        _answer(node)
    return tree


def _calls_in(tree: ast.Module) -> list[ast.Call | ast.BinOp]:
    """The calls and the operators of a file, in any order; by hand, which takes half the time of ``ast.walk``."""
    found: list[ast.Call | ast.BinOp] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Call, ast.BinOp)):
            found.append(node)
        for part in vars(node).values():
            if type(part) is list:
                waiting.extend([item for item in part if isinstance(item, ast.AST) and not isinstance(item, _LEAVES)])
            elif isinstance(part, ast.AST) and not isinstance(part, _LEAVES):
                waiting.append(part)
    return found


def _answer(node: ast.Call | ast.BinOp) -> None:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _CALLED and node.args and not node.keywords:
            node.args, node.func = [node.func, *node.args], _helper(node.func)
    elif isinstance(node.op, ast.Mod) and _is_text(node.left):
        none, nothing = ast.Constant(None), ast.Constant("")  # a sum, so that the node stays where and what it is
        shown = ast.Call(_helper(node.left), [none, node.left, node.right], [])
        for new in (none, nothing, shown):
            ast.copy_location(new, node)
        node.left, node.op, node.right = shown, ast.Add(), nothing


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _helper(at: ast.expr) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), at)
