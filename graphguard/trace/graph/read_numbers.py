"""Numbers that a program reads from tensors and computes with, as tensors without dims."""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import Any, Final

from graphguard.ir.graph import DType, Sym, Var
from graphguard.ops import aten
from graphguard.trace.graph.builder import Builder

_NARROW: Final = ("bfloat16", "float16")
_ADDING: Final[dict[type[ast.operator], str]] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_COMPARING: Final[dict[type[ast.cmpop], str]] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_DIVIDING: Final = ("FloatTrueDiv", "IntTrueDiv")
_RAISING: Final = ("FloatPow", "PowByNatural")
TAKING_TENSORS: Final = {
    **{f"aten.{name}.Tensor": f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div")},
    **{
        f"aten.{name}.Scalar": f"aten.{name}.Tensor"
        for name in ("add", "sub", "mul", "div", "rsub", "lt", "le", "gt", "ge", "eq", "ne", "masked_fill")
    },
    **{f"aten.{name}.default": f"aten.{name}.Tensor" for name in ("clamp", "clamp_min", "clamp_max")},
    aten.pow.Tensor_Scalar: aten.pow.Tensor_Tensor,
    aten.lerp.Scalar: aten.lerp.Tensor,
}
"""Which operator takes a tensor where this one takes a number."""
SCALING: Final = {
    **{f"aten.{name}.{form}": ("alpha", 1) for name in ("add", "sub") for form in ("Tensor", "default")},
    **{f"aten.{name}.default": ("value", 1) for name in ("addcmul", "addcdiv")},
}
"""Which operator multiplies an operand by a number, by what name it is given, and which operand."""

_Number = Var | int | float


class _NotArithmeticError(Exception):
    """An expression over sizes, or of functions that have no operator here."""


def tensor_of(builder: Builder, number: Sym) -> Var | None:
    """The number as a tensor that the graph computes, None where it is not made of numbers that were read by sums, products, quotients and powers."""
    try:
        value = _value(builder, ast.parse(number.expr, mode="eval").body)
    except (_NotArithmeticError, SyntaxError):
        return None
    return value if isinstance(value, Var) else None


def read_number(builder: Builder, number: Sym) -> Var | None:
    """As :func:`tensor_of`, of a number that need not be computed with: a truth as well, that was read or is found by a comparison."""
    if number.expr in builder.symbols:
        return builder.reshaped(builder.symbols[number.expr], ())
    try:
        tree = ast.parse(number.expr, mode="eval").body
        value = _truth(builder, tree) or _value(builder, tree)
    except (_NotArithmeticError, SyntaxError):
        return None
    return value if isinstance(value, Var) else None


def _truth(builder: Builder, node: ast.expr) -> Var | None:
    match node:
        case ast.Call(func=ast.Name(id="Eq" | "Ne" as name), args=[left, right]):
            kind: str = name.lower()
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARING:
            kind = _COMPARING[type(op)]
        case _:
            return None
    value, other = _value(builder, left), _value(builder, right)
    if not isinstance(value, Var):
        raise _NotArithmeticError
    form = "Tensor" if isinstance(other, Var) else "Scalar"
    return builder.one(f"aten.{kind}.{form}", (value, other), (), "bool")


def is_whole(dtype: str) -> bool:
    """Whether a type is one of whole numbers."""
    return dtype == "bool" or dtype.startswith(("int", "uint"))


def _value(builder: Builder, node: ast.expr) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in builder.symbols:
            return _read(builder, builder.symbols[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(builder, _value(builder, operand))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            return _sum_or_product(builder, _ADDING[type(op)], _value(builder, left), _value(builder, right))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _quotient(builder, _value(builder, left), _value(builder, right))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(builder, _value(builder, left), _value(builder, right))
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _DIVIDING:
            return _quotient(builder, _value(builder, left), _value(builder, right))
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _RAISING:
            return _power(builder, _value(builder, left), _value(builder, right))
        case ast.Call(func=ast.Name(id="ToFloat"), args=[operand]):
            return _value(builder, operand)
        case ast.Call(func=ast.Name(id="OpaqueUnaryFn_sqrt"), args=[operand]):
            return _power(builder, _value(builder, operand), 0.5)
        case _:
            raise _NotArithmeticError


def _read(builder: Builder, var: Var) -> Var:
    """What was read: Python's numbers are never narrow."""
    value, dtype = builder.reshaped(var, ()), builder.types[var].dtype
    if dtype == "bool":
        raise _NotArithmeticError
    if dtype in _NARROW:
        return builder.one(aten._to_copy.default, (value,), (), "float32", dtype=DType("float32"))
    return value


def _negative(builder: Builder, value: _Number) -> _Number:
    if not isinstance(value, Var):
        return -value
    return builder.one(aten.neg.default, (value,), (), builder.types[value].dtype)


def _sum_or_product(builder: Builder, name: str, left: _Number, right: _Number) -> _Number:
    if not isinstance(left, Var) and not isinstance(right, Var):
        return {"add": left + right, "sub": left - right, "mul": left * right}[name]
    if not isinstance(left, Var):
        left, right = (_negative(builder, right), left) if name == "sub" else (right, left)
        name = "add" if name == "sub" else name
    return builder.one(f"aten.{name}.Tensor", (left, right), (), _joint(builder, left, right))


def _quotient(builder: Builder, left: _Number, right: _Number) -> _Number:
    if not isinstance(left, Var) and not isinstance(right, Var):
        return left / right if right else _undefined()
    if isinstance(left, Var):
        return builder.one(aten.div.Tensor, (left, right), (), _joint(builder, left, right, 0.5))
    dtype = _joint(builder, right, 0.5)
    inverse = builder.one(aten.reciprocal.default, (right,), (), dtype)
    return builder.one(aten.mul.Tensor, (inverse, left), (), dtype)


def _power(builder: Builder, base: _Number, exponent: _Number) -> _Number:
    if isinstance(exponent, Var):
        raise _NotArithmeticError
    if not isinstance(base, Var):
        return _undefined() if base <= 0 else float(base) ** float(Fraction(exponent))
    return builder.one(aten.pow.Tensor_Scalar, (base, exponent), (), _joint(builder, base, exponent))


def _undefined() -> Any:
    raise _NotArithmeticError


def _joint(builder: Builder, *numbers: _Number) -> str:
    """The type of what is computed: whole numbers stay whole."""
    types = {
        builder.types[each].dtype if isinstance(each, Var) else "float32" if isinstance(each, float) else "int64"
        for each in numbers
    }
    if "float64" in types:
        return "float64"
    return "float32" if any(each.startswith("float") for each in types) else "int64"
