"""Arithmetic as rules write it: operands broadcast, kinds promoted, plain numbers allowed in place of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias

from graphguard.relations.algebra import Algebra, Kind, Scalar, Unsupported, V
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.scalars import exact, inverse

Number: TypeAlias = bool | int | float | Fraction
NUMBER: Final = (bool, int, float, Fraction)
_PLAIN: Final = frozenset(NUMBER)
_MINUS: Final = Fraction(-1)
_ORDER: Final[dict[Kind, int]] = {"bool": 0, "int": 1, "float": 2}


def is_number(x: Any) -> bool:
    """Whether an operand is a plain number, no value."""
    return x.__class__ in _PLAIN or _is_numeric(x.__class__)


@cache
def _is_numeric(kind: type) -> bool:
    return issubclass(kind, NUMBER)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of PyTorch's broadcasting."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((e for e in extents if e != 1), 1) for extents in zip(*padded, strict=True))


def expanded(a: Algebra[V], v: V, shape: tuple[int, ...]) -> V:
    """v broadcast to a shape; v itself where it has it."""
    return v if v.shape == shape else a.expand(v, shape)


def kind_of_number(x: Number) -> Kind:
    """The kind of a Python number; a fraction counts as float."""
    if isinstance(x, bool):
        return "bool"
    return "int" if isinstance(x, int) else "float"


def kind_of_operand(x: Any) -> Kind:
    """The kind of a value or of a Python number."""
    return kind_of_number(x) if is_number(x) else x.kind


def common_kind(*xs: Any) -> Kind:
    """The kind to which operands are promoted."""
    return max([kind_of_operand(x) for x in xs], key=_ORDER.__getitem__)


def aligned(a: Algebra[V], *xs: Any, kind: Kind | None = None) -> list[V]:
    """Values and numbers as values of one shape and one kind; at least one is a value."""
    if kind is None and _are_aligned(xs):
        return list(xs)
    shape = broadcast_shape(*[x.shape for x in xs if not is_number(x)])
    kind = kind or common_kind(*xs)
    return [full(a, shape, x, kind) if is_number(x) else expanded(a, convert(a, x, kind), shape) for x in xs]


def _are_aligned(xs: Sequence[Any]) -> bool:
    first = xs[0]
    if is_number(first):
        return False
    return all(not is_number(x) and x.kind == first.kind and x.shape == first.shape for x in xs[1:])


def full(a: Algebra[V], shape: tuple[int, ...], number: Number, kind: Kind | None = None) -> V:
    """One literal everywhere."""
    if kind == "int" and isinstance(number, float) and math.isfinite(number):
        number = int(number)
    if kind == "bool":
        number = bool(number)
    return a.full(shape, exact(number), kind or kind_of_number(number))


def as_float(a: Algebra[V], v: V) -> V:
    """v as a float."""
    return convert(a, v, "float")


def plus(a: Algebra[V], *xs: Any) -> V:
    """The sum of values and numbers."""
    kind = common_kind(*xs)
    values = [x for x in xs if not is_number(x)]
    terms = aligned(a, *values, kind="int" if kind == "bool" else kind)
    shift = sum([exact(x) for x in xs if is_number(x)]) if len(values) < len(xs) else 0
    if shift != 0:
        terms.append(a.full(terms[0].shape, shift, terms[0].kind))
    return terms[0] if len(terms) == 1 else a.add(terms)


def scaled(a: Algebra[V], v: V, factor: Scalar | int) -> V:
    """A literal times v."""
    if factor == 1:
        return v
    exactly = exact(factor)
    if v.kind == "int" and isinstance(exactly, Fraction) and exactly.denominator != 1:
        v = a.number(v, "float")
    return a.scale(v, exactly)


def minus(a: Algebra[V], x: Any, y: Any) -> V:
    """x - y."""
    return plus(a, x, -y if is_number(y) else negative(a, y))


def negative(a: Algebra[V], v: V) -> V:
    """-v."""
    return a.scale(v if v.kind != "bool" else a.number(v, "int"), _MINUS)


def times(a: Algebra[V], x: Any, y: Any) -> V:
    """The product of two operands, of which one may be a number."""
    if is_number(x):
        x, y = y, x
    if is_number(y):
        kind = common_kind(x, y)
        v: V = convert(a, x, "int" if kind == "bool" else kind)
        return scaled(a, v, exact(y))
    left, right = aligned(a, x, y)
    if left.kind == "bool":
        return a.logical_and(left, right)
    return a.multiply(left, right)


def product(a: Algebra[V], *xs: Any) -> V:
    """The product of several operands."""
    result = xs[0]
    for x in xs[1:]:
        result = times(a, result, x)
    return result  # type: ignore[no-any-return]


def reciprocal(a: Algebra[V], v: V) -> V:
    """1 / v."""
    return a.power(as_float(a, v), _MINUS)


def over(a: Algebra[V], x: Any, y: Any) -> V:
    """The true quotient x / y."""
    if is_number(y):
        numerator: V = as_float(a, x)
        return scaled(a, numerator, inverse(y))
    if is_number(x):
        denominator: V = reciprocal(a, y)
        return scaled(a, denominator, exact(x))
    return times(a, as_float(a, x), reciprocal(a, y))


def root(a: Algebra[V], v: V) -> V:
    """The square root."""
    return a.power(as_float(a, v), Fraction(1, 2))


def square(a: Algebra[V], v: V) -> V:
    """v * v."""
    return times(a, v, v)


def larger(a: Algebra[V], x: Any, y: Any) -> V:
    """The elementwise maximum."""
    left, right = aligned(a, x, y)
    if left.kind == "bool":
        return a.logical_or(left, right)
    return a.maximum(left, right)


def smaller(a: Algebra[V], x: Any, y: Any) -> V:
    """The elementwise minimum: -max(-x, -y)."""
    left, right = aligned(a, x, y)
    if left.kind == "bool":
        return a.logical_and(left, right)
    return negative(a, a.maximum(negative(a, left), negative(a, right)))


def compared(a: Algebra[V], relation: str, x: Any, y: Any) -> V:
    """One of eq, ne, lt, le, gt, ge, elementwise."""
    left, right = aligned(a, x, y)
    if left.kind == "bool":
        left, right = a.number(left, "int"), a.number(right, "int")
    match relation:
        case "eq" | "lt" | "le":
            return a.compare(relation, left, right)
        case "ne":
            return a.logical_not(a.compare("eq", left, right))
        case "gt":
            return a.compare("lt", right, left)
        case "ge":
            return a.compare("le", right, left)
    raise ValueError(relation)


def chosen(a: Algebra[V], condition: V, x: Any, y: Any) -> V:
    """x where the condition holds, else y."""
    kind = common_kind(x, y)
    shapes = [v.shape for v in (condition, x, y) if not is_number(v)]
    shape = broadcast_shape(*shapes)
    left, right = (full(a, shape, v, kind) if is_number(v) else expanded(a, convert(a, v, kind), shape) for v in (x, y))
    return a.where(expanded(a, convert(a, condition, "bool"), shape), left, right)


def function(a: Algebra[V], name: str, v: V, *attributes: object) -> V:
    """A named elementwise function of the reals."""
    return a.apply(name, attributes, [as_float(a, v)], "float")


def dims_of(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Dims counted from 0, sorted; None and the empty list mean all of them."""
    if dims is None:
        return list(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return sorted(dim_of(dim, rank) for dim in listed) if listed else list(range(rank))


def dim_of(dim: int, rank: int) -> int:
    """A dim counted from 0; raises ``Unsupported`` out of range."""
    count = rank or 1
    if not -count <= dim < count:
        raise Unsupported(f"dim {dim} of a tensor with {rank} dims")
    return dim % count


def kept(shape: tuple[int, ...], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape after a reduction over dims."""
    if keepdim:
        return tuple(1 if i in dims else extent for i, extent in enumerate(shape))
    return tuple(extent for i, extent in enumerate(shape) if i not in dims)


LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """Fresh letters for the dims of an Einstein summation."""

    def __init__(self) -> None:
        self._used = 0

    def take(self, count: int) -> str:
        """The next ``count`` letters."""
        if self._used + count > len(LETTERS):
            raise Unsupported("more than 26 dims in one contraction")
        self._used += count
        return LETTERS[self._used - count : self._used]
