"""Python's operators: what they are called, and what they make of values of which something is known; all but :func:`computed` raise ``Doubt`` where that is not certain."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from graphguard.trace.pure.followed import (
    BORN,
    Born,
    Known,
    Several,
    Value,
    all_plain,
    is_born,
    is_none,
    is_number,
    told,
)
from graphguard.trace.pure.lookups import Doubt, Lookups, is_primitive

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
NAMES: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert",
}  # fmt: skip
OF_NUMBERS = (int, float, bool, min, max, abs, math.sqrt, math.log, math.exp, math.floor, math.ceil, math.prod, round)


def computed(function: Callable[..., Any], *values: Any) -> Value:
    """A plain constant that is made of others."""
    try:
        return Known(function(*values))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Doubt("a constant that cannot be computed") from error


def binary(lookups: Lookups, op: ast.operator, left: Value, right: Value) -> Value:
    """What an operator between two values gives; a tensor's own operators are looked up."""
    if type(op) not in BINARY:
        raise Doubt("an operator")
    if is_number(left) and is_number(right):
        return computed(BINARY[type(op)], left.value, right.value)  # type: ignore[union-attr]
    if is_born(left) or is_born(right):
        all_plain((left, right))
        for place in ("", "r", "i"):
            lookups.own_method(f"__{place}{NAMES[type(op)]}__")
        return BORN
    raise Doubt("an operator on what is no number")


def unary(lookups: Lookups, op: ast.unaryop, operand: Value) -> Value:
    """What an operator in front of a value gives."""
    if isinstance(op, ast.Not):
        holds = truth(operand)
        return BORN if holds is None else Known(not holds)
    if is_number(operand):
        return computed(UNARY[type(op)], operand.value)  # type: ignore[union-attr]
    if is_born(operand):
        lookups.own_method(f"__{NAMES[type(op)]}__")
        return BORN
    raise Doubt("an operator on what is no number")


def compared(lookups: Lookups, op: ast.cmpop, left: Value, right: Value) -> Value:
    """What a comparison gives; of identities, only those with None are known."""
    if isinstance(op, (ast.Is, ast.IsNot)):
        if not is_none(left) and not is_none(right):
            raise Doubt("identities are compared")
        value = left if is_none(right) else right
        return BORN if is_born(value) else Known(is_none(value) == isinstance(op, ast.Is))
    if type(op) not in COMPARISONS:
        raise Doubt("a comparison")
    if all(isinstance(one, Known) and is_primitive(one.value) for one in (left, right)):
        return computed(COMPARISONS[type(op)], left.value, right.value)  # type: ignore[union-attr]
    if is_born(left) or is_born(right):
        all_plain((left, right))
        lookups.own_method(f"__{NAMES[type(op)]}__")
        return BORN
    raise Doubt("a comparison of objects")


def truth(value: Value) -> bool | None:
    """Whether a value is true; None where that is for the call to say."""
    match value:
        case Born():
            return None
        case Several(items):
            return bool(items)
        case Known(known) if known is None or is_number(value) or type(known) is str:
            return bool(known)
    raise Doubt(f"whether {told(value)} is true")
