"""What Python answers by itself in the user's files, so that nothing could answer it otherwise while a program is recorded: it is compiled as calls of ours.

Calls on numbers that are read, texts of them, the types of values, and whatever shows the order of a set.  The latter only in files that mention sets, or are :func:`asked for <ask_for_order>`.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any, Final

NAME: Final = "__graphguard_called__"
"""Among Python's builtins, who answers: ``int(x)`` becomes ``NAME(int, x)``, ``"%d" % x`` becomes ``NAME(None, "%d", x) + ""``, and ``x.__class__`` becomes
``NAME(CLASS, x).__class__``."""

CLASS: Final = "__class__"
"""Instead of a function: who is asked for its class, which is an object of that class to whoever asks."""

IN_ORDER: Final = "__graphguard_in_order__"
"""``for x in names`` becomes ``for x in IN_ORDER(names)``."""

TAKEN: Final = "__graphguard_taken__"
"""``names.pop()`` becomes ``TAKEN(names)``."""

_CALLED: Final = ("len", "int", "float", "max", "min", "hash", "id", "type", "isinstance", "str", "repr")
# No method of these names: ``x.max(-1)`` is PyTorch's to answer.
_MENTIONED: Final = re.compile(
    rb"""(?<!\.)\b(?:len|int|float|max|min|hash|id|type|isinstance|str|repr)\s*\(|["']\s*%|\.\s*__class__"""
)
# Calls, literals (braces without colons, which some texts that are filled in have as well) and operators that make sets.
_SETS: Final = re.compile(
    rb"\b(?:frozen)?set\b|(?:[=(\[,:|&^*-]|\b(?:in|return|if|else|or|and|yield))\s*\{[^{}:]*[,}]|(?:keys|items)\(\)\s*[-&|^]"
)
# Built-in functions that go through their arguments; those in the second row do not show the order, unless they are given a key.
_THROUGH: Final = frozenset(
    ("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "sum", "deque", "chain", "cycle", "islice")
)
_BY_KEY: Final = frozenset(("sorted", "max", "min"))
_THROUGH_METHODS: Final = frozenset(("join", "fromkeys", "extend", "from_iterable"))
# What is no set, as it stands there.
_IN_ORDER: Final = (
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.Constant,
    ast.ListComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.JoinedStr,
)
_GIVE_NO_SETS: Final = _THROUGH | _BY_KEY | {"range", "reversed", "len", "dir", "open"}
_GIVE_VIEWS: Final = (
    "items",
    "values",
    "keys",
    "split",
    "splitlines",
    "parameters",
    "named_parameters",
    "modules",
    "children",
    "readlines",
    "tolist",
    "unbind",
    "chunk",
)
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


_asked: set[str] = set()


def ask_for_order(path: str) -> None:
    """From now on a file is compiled as one that mentions sets: others do, that it may get them from."""
    _asked.add(path)


def mentions_sets(text: bytes) -> bool:
    """Whether a file may make a set."""
    return _SETS.search(text) is not None


def rewritten(text: bytes, path: str) -> ast.Module | bytes:
    """A file's tree with such calls as calls of ours, every place in it as it was; its text where there are none, or where it does not parse."""
    return answered(text, path) if hasattr(builtins, NAME) else text  # nobody answers where nothing is recorded


def answered(text: bytes, path: str) -> ast.Module | bytes:
    """As :func:`rewritten`, for a process in which somebody will answer."""
    shows_order = path in _asked or mentions_sets(text)
    if not shows_order and not _MENTIONED.search(text):
        return text
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError):  # compiling the text says so
        return text
    for node in _nodes_in(tree, _ORDERED if shows_order else _CALLS):
        if isinstance(node, _CALLS):
            _answer(node)
        if shows_order:
            _order(node)
    return tree


_CALLS: Final = (ast.Call, ast.BinOp, ast.Attribute)
_ORDERED: Final = (*_CALLS, ast.For, ast.comprehension, ast.Starred, ast.Assign, ast.AugAssign, ast.YieldFrom)


def _nodes_in(tree: ast.Module, kinds: tuple[type[ast.AST], ...]) -> list[Any]:
    """The nodes of these kinds, in any order; by hand, which takes half the time of ``ast.walk``."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, kinds):
            found.append(node)
        for part in vars(node).values():
            if type(part) is list:
                waiting.extend([item for item in part if isinstance(item, ast.AST) and not isinstance(item, _LEAVES)])
            elif isinstance(part, ast.AST) and not isinstance(part, _LEAVES):
                waiting.append(part)
    return found


def _order(node: Any) -> None:
    """Have whatever goes through a set ask for its order."""
    match node:
        case ast.For() | ast.comprehension():
            node.iter = _in_order(node.iter)
        case ast.Starred(ctx=ast.Load()) | ast.YieldFrom():
            node.value = _in_order(node.value)
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            if not isinstance(node.value, ast.Call) or _makes_set(node.value):
                node.value = _in_order(node.value)
        case ast.AugAssign(op=ast.Add()) if _makes_set(node.value):
            node.value = _in_order(node.value)
        case ast.Call(func=ast.Attribute(value=owner, attr="pop"), args=[], keywords=[]):
            node.func, node.args = _helper(node.func, TAKEN), [owner]
        case ast.Call() if _goes_through(node):
            node.args = [_in_order(each) for each in node.args]


def _goes_through(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in _THROUGH or (name in _BY_KEY and bool(call.keywords))
        case ast.Attribute(attr=name):
            return name in _THROUGH_METHODS or name in ("chain", "islice", "cycle")
    return False


def _makes_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
    return False


def _in_order(node: ast.expr) -> ast.expr:
    match node:
        case ast.Starred() | ast.Lambda():
            return node
        case ast.Call(func=ast.Name(id=name)) if name in _GIVE_NO_SETS or name in (IN_ORDER, NAME):
            return node
        case ast.Call(func=ast.Attribute(attr=name)) if name in _GIVE_VIEWS:
            return node
        case _ if isinstance(node, _IN_ORDER):
            return node
    return ast.copy_location(ast.Call(_helper(node, IN_ORDER), [node], []), node)


def _answer(node: ast.Call | ast.BinOp | ast.Attribute) -> None:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _CALLED and node.args and not node.keywords:
            node.args, node.func = [node.func, *node.args], _helper(node.func)
    elif isinstance(node, ast.Attribute):
        if node.attr == CLASS and isinstance(node.ctx, ast.Load):
            asked = ast.copy_location(ast.Constant(CLASS), node.value)
            node.value = ast.copy_location(ast.Call(_helper(node.value), [asked, node.value], []), node.value)
    elif isinstance(node.op, ast.Mod) and _is_text(node.left):
        none, nothing = ast.Constant(None), ast.Constant("")  # a sum, so that the node stays where and what it is
        shown = ast.Call(_helper(node.left), [none, node.left, node.right], [])
        for new in (none, nothing, shown):
            ast.copy_location(new, node)
        node.left, node.op, node.right = shown, ast.Add(), nothing


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _helper(at: ast.expr, name: str = NAME) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), at)
