"""A source file as repairs see it: text, syntax tree, and the questions an edit must ask of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

from graphguard.ir import Span

Function = ast.FunctionDef | ast.AsyncFunctionDef
SHOWN_LENGTH = 40
_LINES: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_PARSED: Final = 128  # files that stay parsed: every question about a finding asks the same ones again
_PAIRS: Final = frozenset({"max", "min", "topk", "sort", "cummax", "cummin", "kthvalue", "median", "mode"})
MODULES = frozenset({"torch", "F", "dist", "nn", "funcol", "np"})
METHODS = frozenset(
    [
        "chunk",
        "split",
        "split_with_sizes",
        "tensor_split",
        "unbind",
        "view",
        "view_as",
        "reshape",
        "flatten",
        "unflatten",
        "transpose",
        "permute",
        "t",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "repeat",
        "contiguous",
        "clone",
        "detach",
        "to",
        "float",
        "half",
        "bfloat16",
        "double",
        "type",
        "type_as",
        "sum",
        "mean",
        "square",
        "sqrt",
        "rsqrt",
        "pow",
        "exp",
        "log",
        "abs",
        "neg",
        "narrow",
        "select",
        "index_select",
        "gather",
        "masked_fill",
        "softmax",
        "log_softmax",
        "relu",
        "sigmoid",
        "tanh",
        "silu",
        "matmul",
        "mm",
        "bmm",
        "add",
        "sub",
        "mul",
        "div",
        "norm",
        "clamp",
        "tril",
        "triu",
        "roll",
        "flip",
        "cumsum",
        "var",
        "std",
        "max",
        "min",
        "amax",
        "amin",
        "topk",
        "scatter",
        "scatter_add",
        "index_add",
        "index_fill",
        "masked_scatter",
        "cumprod",
        "sort",
        "argsort",
        "repeat_interleave",
    ]
)
"""Methods of tensors that modules and groups of functions have no attribute of the same name for."""


@dataclass(frozen=True, eq=False)
class Program:
    """One parsed file.  Lines and columns are those of :class:`~graphguard.ir.Span`: from 1, in characters."""

    file: str
    text: str
    tree: ast.Module
    lines: list[str]
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _assigned: dict[ast.AST, dict[str, list[ast.expr]]] = field(default_factory=dict)

    def assigned(self, scope: ast.AST) -> dict[str, list[ast.expr]]:
        """The values that statements within a scope assign to single names, by name."""
        if scope not in self._assigned:
            found = self._assigned[scope] = {}
            for statement in ast.walk(scope):
                if isinstance(statement, ast.Assign) and (name := assigned_name(statement, statement.value)):
                    found.setdefault(name, []).append(statement.value)
        return self._assigned[scope]

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The range of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._column(node.lineno, node.col_offset)
        return Span(self.file, node.lineno, start, node.end_lineno, self._column(node.end_lineno, node.end_col_offset))

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        place = self.span(node)
        first, *more = self.lines[place.line - 1 : place.end_line]
        if not more:
            return first[place.column - 1 : place.end_column - 1]
        return "\n".join((first[place.column - 1 :], *more[:-1], more[-1][: place.end_column - 1]))

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1]
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1

    @cached_property
    def _expressions(self) -> dict[Span, ast.expr]:
        """Every expression by its range; the outermost of several."""
        found: dict[Span, ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                found.setdefault(self.span(node), node)
        return found

    @cached_property
    def _functions(self) -> tuple[Function, ...]:
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, Function))

    def expression(self, span: Span) -> ast.expr | None:
        """The expression with exactly this range; the outermost of several."""
        return self._expressions.get(span)

    @cached_property
    def _augmented(self) -> dict[Span, ast.AugAssign]:
        return {self.span(node): node for node in ast.walk(self.tree) if isinstance(node, ast.AugAssign)}

    def augmented(self, span: Span) -> ast.AugAssign | None:
        """The assignment of the form ``x /= n`` with exactly this range."""
        return self._augmented.get(span)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around a node, or the node itself."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.stmt)), None)

    def stands_alone(self, node: ast.expr) -> bool:
        """Whether a call is a statement of its own, what is called on its result apart: it is no argument of another one."""
        inner: ast.AST = node
        for outer in self.ancestors(node):
            if isinstance(outer, ast.stmt):
                return isinstance(outer, ast.Expr)
            if isinstance(outer, ast.Call) and inner is not outer.func:
                return False
            inner = outer
        return False

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, Function)), None)

    def functions(self, node: ast.AST) -> list[Function]:
        """The functions around a node, innermost first: what their bodies and parameters name can be seen from it."""
        return [outer for outer in self.ancestors(node) if isinstance(outer, Function)]

    def klass(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.ClassDef)), None)

    def enclosing_function(self, span: Span) -> Function | None:
        """The innermost function whose range covers a span's start."""
        best: Function | None = None
        for node in self._functions:
            if not node.lineno <= span.line <= (node.end_lineno or node.lineno):
                continue
            if best is None or node.lineno >= best.lineno:
                best = node
        return best

    def indent(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def values_of(self, node: ast.expr) -> ast.expr:
        """Of a call that gives values with their places, as ``x.max(0)`` does, the expression that takes the values; any other expression is its own."""
        match self.parents.get(node):
            case ast.Attribute(attr="values") as outer:
                return outer
            case ast.Subscript(slice=ast.Constant(value=0)) as outer if _is_pair(node) and outer.value is node:
                return outer
        return node

    def name_at(self, span: Span) -> str:
        """What the author calls the value of an expression: the name it is assigned to, else its text, shortened; of ``x /= n`` it is x."""
        node, augmented = self.expression(span), self.augmented(span)
        if augmented is not None:
            return " ".join(self.source(augmented.target).split())
        if node is None:
            return ""
        node = self.values_of(node)
        target = assigned_name(self.statement(node), node)
        if target:
            return target
        text = " ".join(self.source(node).split())
        return text if len(text) <= SHOWN_LENGTH else self._shortened(node)

    def _shortened(self, node: ast.expr) -> str:
        """A long expression without what it is called on, and at last cut: ``F.linear(...)``, ``total / count(...)``."""
        text = " ".join(self.source(node).split())
        if isinstance(node, ast.Call):
            text = f"{' '.join(self.source(node.func).split())}(...)"
        return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."

    def fresh(self, wanted: str, function: ast.AST | None) -> str:
        """A name that nothing in a function uses."""
        used = {node.id for node in ast.walk(function or self.tree) if isinstance(node, ast.Name)}
        used |= {node.arg for node in ast.walk(function or self.tree) if isinstance(node, ast.arg)}
        name, number = wanted, 2
        while name in used:
            name, number = f"{wanted}_{number}", number + 1
        return name


@lru_cache(_PARSED)
def parse(file: str, text: str) -> Program | None:
    """The program of a file, or None where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Program(file, text, tree, [line.rstrip("\r\n") for line in lines_of(text)] or [""], parents)


def lines_of(text: str) -> list[str]:
    """The lines of a source text with their ends, as Python counts them: a form feed ends none."""
    return _LINES.findall(text)


def assigned_name(statement: ast.stmt | None, value: ast.expr) -> str:
    """The single name that a statement assigns an expression to, or an empty text."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=assigned) if assigned is value:
            return name
        case ast.AnnAssign(target=ast.Name(id=name), value=assigned) if assigned is value:
            return name
    return ""


def definitions(program: Program, name: ast.Name) -> list[ast.expr]:
    """The values that the functions around a name assign to it in statements of their own."""
    scopes = [outer for outer in program.ancestors(name) if isinstance(outer, Function)]
    return [value for scope in scopes for value in program.assigned(scope).get(name.id, ())]


def is_number(program: Program, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is a number as far as its text tells: a literal, a size, a rank, or made of such and of names of such."""
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name) if name not in seen:
            values = definitions(program, node)
            return name.isupper() or (bool(values) and all(is_number(program, each, seen | {name}) for each in values))
        case ast.BinOp(left=left, right=right):
            return is_number(program, left, seen) and is_number(program, right, seen)
        case ast.UnaryOp(operand=operand):
            return is_number(program, operand, seen)
        case ast.Call(func=ast.Attribute(attr="size" | "numel" | "get_world_size" | "get_rank" | "get_local_rank")):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
    return False


def numbers_behind(program: Program, node: ast.expr) -> list[ast.expr]:
    """The values of the names of numbers that an expression reads."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)]
    return [value for name in names for value in definitions(program, name) if is_number(program, value)]


def _no_tensor(node: ast.expr) -> bool:
    """Whether an argument is a literal or a constant's name."""
    return isinstance(node, ast.Constant | ast.UnaryOp | ast.Tuple) or (
        isinstance(node, ast.Name) and node.id.isupper()
    )


def is_module(node: ast.expr) -> bool:
    """Whether an expression is one of the modules whose functions work on tensors: ``F``, ``torch.nn.utils``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in MODULES


def _is_pair(node: ast.expr) -> bool:
    """Whether a call gives values and their places: ``x.max(0)``, ``torch.min(x, dim=1)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=receiver, attr=attr), args=args, keywords=keywords):
            return attr in _PAIRS and len(args) + len(keywords) > is_module(receiver)
    return False


def first_operand(call: ast.expr | None) -> ast.expr | None:
    """The tensor that a call, a matrix product or an index reads first; of a tensor's own method, the tensor; what is scaled by a number."""
    match call:
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if not is_module(receiver) and (
            method in METHODS or (method.endswith("_") and not method.endswith("__"))
        ):
            return receiver
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module)), args=args) if module in MODULES and args:
            return next((arg for arg in args if not _no_tensor(arg)), args[0])  # ``torch.einsum("ab,bc", x, y)``
        case ast.Call(func=ast.Attribute(value=receiver), args=[first, *_]) if _no_tensor(first):
            return receiver  # a method of the tensor: ``scores.topk(2)``
        case ast.Call(args=[first, *_]):
            return first
        case ast.BinOp(left=left, op=ast.MatMult()):
            return left
        case ast.BinOp(left=left, right=right) if _no_tensor(left) != _no_tensor(right):
            return right if _no_tensor(left) else left
        case ast.Subscript(value=value):
            return value
    return None


def further(program: Program, bound: ast.expr | None, count: int) -> str:
    """A bound, so many places further on: a number in it is another one then."""
    terms = [(1, bound)] if bound is not None else []
    while terms and isinstance(inner := terms[0][1], ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub):
        terms[:1] = [(1, inner.left), (1 if isinstance(inner.op, ast.Add) else -1, inner.right)]
    kept: list[tuple[int, str]] = []
    place: int | None = None
    for sign, term in terms:
        number = _whole(term)
        if number is not None:
            count += sign * number
            place = len(kept) if place is None else place
        else:
            kept.append((sign, program.source(term)))
    if count or not kept or kept[0][0] < 0:
        at = len(kept) if place is None else place
        at = 0 if not kept or kept[0][0] < 0 else max(at, 1) if count < 0 else at
        kept.insert(at, (1 if at == 0 or count > 0 else -1, str(count if at == 0 else abs(count))))
    return kept[0][1] + "".join(f" {'-' if sign < 0 else '+'} {text}" for sign, text in kept[1:])


def _whole(term: ast.expr) -> int | None:
    """The whole number that a term is; None where it is none."""
    match term:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None


def offset(program: Program, whole: ast.expr, part: ast.expr) -> int:
    """Where the text of a part begins in that of a whole."""
    start, inner = program.span(whole), program.span(part)
    lines = program.lines[start.line - 1 : inner.line]
    if start.line == inner.line:
        return inner.column - start.column
    return len("\n".join([lines[0][start.column - 1 :], *lines[1:-1], ""])) + inner.column - 1
