"""The algebra of plain numbers: float64, int64 and bool arrays.

It says what a rule means at one point, and so tests every rule against PyTorch.  ``known`` elements are those that come from literals alone: a leaf stays
unknown to the rules although its numbers are here, so a rule takes the same way as in the normal form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Kind, Scalar, Unsupported

Array = NDArray[Any]
DTYPES: Final[dict[Kind, Any]] = {"bool": np.bool_, "int": np.int64, "float": np.float64}


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """An array, and whether it depends on literals only."""

    array: Array
    literal: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dims."""
        return self.array.shape

    @property
    def kind(self) -> Kind:
        """What the elements are."""
        return kind_of_array(self.array)


def kind_of_array(array: Array) -> Kind:
    """The kind of an array's elements."""
    if array.dtype == np.bool_:
        return "bool"
    return "int" if array.dtype.kind in "iu" else "float"


def _elementwise(name: str) -> Callable[[Array], Array]:
    scalar: Callable[[float], float] = getattr(math, name)
    vectorised = np.vectorize(scalar, otypes=[np.float64])
    return lambda x: vectorised(x) if x.size else x


def _of_integers(act: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """On the bits of whole numbers, whatever they are stored in."""
    return lambda x, y: act(x.astype(np.int64), y.astype(np.int64))


def _round_bfloat16(x: Array) -> Array:
    """Round to nearest even on the upper half of the float32 pattern."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def _wrapped(dtype: str, x: Array) -> Array:
    """The integers of a narrow type that differ from these by multiples of its size."""
    return x.astype(np.int64).astype(dtype).astype(np.int64)


CASTS: Final[dict[str, Callable[[Array], Array]]] = {
    "float32": lambda x: x.astype(np.float32).astype(np.float64),
    "float16": lambda x: x.astype(np.float16).astype(np.float64),
    "bfloat16": _round_bfloat16,
}

for _name in ("int8", "uint8", "int16", "uint16", "uint32", "int32"):
    CASTS[_name] = partial(_wrapped, _name)

#: The named elementwise functions that rules use.
FUNCTIONS: Final[dict[str, Callable[..., Array]]] = {
    "abs": np.abs,
    "sign": np.sign,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": _elementwise("erf"),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "floor": np.floor,
    "round": np.round,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "lgamma": _elementwise("lgamma"),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
    "pow": np.power,
    "bitwise_and": _of_integers(np.bitwise_and),
    "bitwise_or": _of_integers(np.bitwise_or),
    "bitwise_xor": _of_integers(np.bitwise_xor),
    "left_shift": _of_integers(np.left_shift),
    "right_shift": _of_integers(np.right_shift),
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
}


class Numbers:
    """An :class:`~graphguard.relations.algebra.Algebra` whose values are arrays.

    ``leaves`` gives the numbers of leaves by name; ``random`` those of draws; ``opaque`` the functions that stay closed
    elsewhere, as a map from their name to a function of the operand arrays and the attributes.
    """

    def __init__(
        self,
        leaves: Mapping[str, Array] | None = None,
        opaque: Mapping[str, Callable[..., Array]] | None = None,
        draws: Mapping[tuple[str, int], Array] | None = None,
    ) -> None:
        self._leaves = leaves or {}
        self._opaque = opaque or {}
        self._draws = draws or {}

    # -- where values come from
    def leaf(
        self, name: str, shape: tuple[int, ...], kind: Kind, low: int | None = None, high: int | None = None
    ) -> Number:
        array = self._leaves[name].astype(DTYPES[kind])
        if array.shape != shape:
            raise ValueError(f"leaf {name}: {array.shape} instead of {shape}")
        inside = (low is None or (array >= low).all()) and (high is None or (array < high).all())
        if not inside:
            raise ValueError(f"leaf {name}: out of range [{low}, {high})")
        return Number(array)

    def literal(self, elements: np.ndarray) -> Number:
        return Number(np.array(elements, dtype=DTYPES[kind_of_array(elements)]), literal=True)

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> Number:
        return Number(np.full(shape, _plain(value, kind), dtype=DTYPES[kind]), literal=True)

    def iota(self, extent: int) -> Number:
        return Number(np.arange(extent, dtype=np.int64), literal=True)

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> Number:
        if draw not in self._draws:
            raise Unsupported(f"no numbers for the draw {draw}")
        return Number(np.broadcast_to(self._draws[draw], shape).astype(DTYPES[kind]))

    def known(self, v: Number) -> np.ndarray | None:
        return v.array if v.literal else None

    def repeats(self, v: Number, dim: int) -> bool:
        return v.shape[dim] == 1

    def hold(self, v: Number, dtype: str) -> None:
        pass

    def holds(self, v: Number, dtype: str) -> bool:
        return False

    def once(self, key: tuple[object, ...], make: Callable[[], Number]) -> Number:
        return make()

    def noted(self, topic: str) -> list[Any]:
        return []

    def assume(self, text: str) -> None:
        pass

    def same(self, v: Number, w: Number) -> bool:
        return v is w

    # -- layout
    def reshape(self, v: Number, shape: tuple[int, ...]) -> Number:
        return _like(v.array.reshape(shape), v)

    def permute(self, v: Number, dims: Sequence[int]) -> Number:
        return _like(v.array.transpose(tuple(dims)), v)

    def slice(self, v: Number, dim: int, start: int, stop: int, step: int = 1) -> Number:
        assert 0 <= start <= stop <= v.shape[dim]
        assert step > 0
        return _like(v.array[(slice(None),) * dim + (slice(start, stop, step),)], v)

    def flip(self, v: Number, dim: int) -> Number:
        return _like(np.flip(v.array, dim), v)

    def concat(self, vs: Sequence[Number], dim: int) -> Number:
        _same_kind(*vs)
        return _like(np.concatenate([v.array for v in vs], axis=dim), *vs)

    def expand(self, v: Number, shape: tuple[int, ...]) -> Number:
        return _like(np.broadcast_to(v.array, shape), v)

    # -- arithmetic
    def add(self, vs: Sequence[Number]) -> Number:
        _elements(*vs)
        total = vs[0].array
        for v in vs[1:]:
            total = total + v.array
        return _like(total, *vs)

    def scale(self, v: Number, factor: Scalar) -> Number:
        _arithmetic(v)
        whole = isinstance(factor, Fraction) and factor.denominator == 1
        if v.kind == "int" and whole:
            return _like(v.array * int(factor), v)
        return _like(v.array * float(factor), v)

    def multiply(self, a: Number, b: Number) -> Number:
        _elements(a, b)
        return _like(a.array * b.array, a, b)

    def power(self, v: Number, exponent: Fraction) -> Number:
        _arithmetic(v)
        with np.errstate(all="ignore"):
            return _like(np.float64(1.0) * v.array.astype(np.float64) ** float(exponent), v)

    def exp(self, v: Number) -> Number:
        _float(v)
        return _like(np.exp(v.array), v)

    def log(self, v: Number) -> Number:
        _float(v)
        with np.errstate(all="ignore"):
            return _like(np.log(v.array), v)

    def sum(self, v: Number, dims: Sequence[int]) -> Number:
        _arithmetic(v)
        return _like(v.array.sum(axis=tuple(dims)), v)

    def contract(self, operands: Sequence[tuple[Number, str]], out: str) -> Number:
        values = [v for v, _ in operands]
        _arithmetic(*values)
        equation = ",".join(letters for _, letters in operands) + "->" + out
        return _like(np.einsum(equation, *(v.array for v in values), optimize=True), *values)

    def maximum(self, a: Number, b: Number) -> Number:
        _elements(a, b)
        return _like(np.maximum(a.array, b.array), a, b)

    def place_of_largest(self, v: Number, dim: int) -> Number:
        """Where the largest stands along a dim."""
        return _like(v.array.argmax(axis=dim), v)

    def max_over(self, v: Number, dims: Sequence[int]) -> Number:
        _arithmetic(v)
        return _like(v.array.max(axis=tuple(dims)), v)

    # -- integers
    def floor_divide(self, v: Number, divisor: int) -> Number:
        assert v.kind == "int"
        assert divisor > 0
        return _like(v.array // divisor, v)

    def remainder(self, v: Number, divisor: int) -> Number:
        assert v.kind == "int"
        assert divisor > 0
        return _like(v.array % divisor, v)

    def one_hot(self, index: Number, extent: int, checked: bool | Literal["known"] = False) -> Number:
        assert index.kind == "int"
        if checked:
            _check_range(index, extent)
        return _like((index.array[..., None] == np.arange(extent)).astype(np.float64), index)

    def lookup(self, table: Number, index: Number) -> Number:
        assert index.kind == "int"
        _check_range(index, table.shape[0])
        return _like(table.array[index.array], table, index)

    # -- truth
    def compare(self, relation: Literal["lt", "le", "eq"], a: Number, b: Number) -> Number:
        _elements(a, b)
        compare = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[relation]
        return _like(compare(a.array, b.array), a, b)

    def distinct(self, v: Number, dim: int) -> bool:
        return bool(np.diff(np.sort(v.array, axis=dim), axis=dim).all())

    def truths(self, v: Number) -> bool:
        return False

    def positive(self, v: Number) -> bool:
        return False

    def sorts_by(self, v: Number) -> int:
        return 0

    def may_count_back(self, v: Number) -> bool:
        return bool((v.array < 0).any())

    def most_counted(self, v: Number, digits: int) -> float | None:
        return None

    def groups(self, ends: Number, extent: int) -> Number | None:
        return None

    def truth(self, v: Number) -> Number:
        return _like(v.array != 0, v)

    def logical_not(self, v: Number) -> Number:
        _bool(v)
        return _like(~v.array, v)

    def logical_and(self, a: Number, b: Number) -> Number:
        _bool(a, b)
        return _like(a.array & b.array, a, b)

    def logical_or(self, a: Number, b: Number) -> Number:
        _bool(a, b)
        return _like(a.array | b.array, a, b)

    def number(self, v: Number, kind: Literal["int", "float"]) -> Number:
        return _like(v.array.astype(DTYPES[kind]), v)

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        _bool(condition)
        _same_kind(a, b)
        return _like(np.where(condition.array, a.array, b.array), condition, a, b)

    # -- what stays closed
    def apply(self, name: str, attributes: tuple[object, ...], vs: Sequence[Number], kind: Kind) -> Number:
        if name == "cast":
            (target,) = attributes
            if target not in CASTS:
                raise Unsupported(f"no numbers for a cast to {target}")
            return _like(CASTS[str(target)](vs[0].array), *vs)
        if name not in FUNCTIONS:
            raise Unsupported(f"no numbers for the function {name}")
        with np.errstate(all="ignore"):
            return _like(FUNCTIONS[name](*(v.array for v in vs), *attributes).astype(DTYPES[kind]), *vs)

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[Number, str]],
        out: str,
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> Number:
        if name not in self._opaque:
            raise Unsupported(f"no numbers for {name}")
        for v, letters in operands:
            assert len(letters) == len(v.shape), (name, letters, v.shape)
        result = np.asarray(self._opaque[name](*(v.array for v, _ in operands), *attributes))
        if result.shape != out_shape:
            raise ValueError(f"{name}: {result.shape} instead of {out_shape}")
        return Number(result.astype(DTYPES[kind]))


def _like(array: Array, *sources: Number) -> Number:
    return Number(np.asarray(array), all(source.literal for source in sources))


def _plain(value: Scalar, kind: Kind) -> bool | int | float:
    if kind == "float":
        return float(value)
    return bool(value) if kind == "bool" else int(value)


def _same_kind(*vs: Number) -> None:
    kinds = {v.kind for v in vs}
    assert len(kinds) == 1, f"kinds {kinds} in one operation"


def _arithmetic(*vs: Number) -> None:
    _same_kind(*vs)
    assert vs[0].kind != "bool", "arithmetic on truth values"


def _elements(*vs: Number) -> None:
    """The demands on operands of elementwise arithmetic."""
    _arithmetic(*vs)
    assert len({v.shape for v in vs}) == 1, [v.shape for v in vs]


def _float(v: Number) -> None:
    assert v.kind == "float", v.kind


def _bool(*vs: Number) -> None:
    assert all(v.kind == "bool" for v in vs), [v.kind for v in vs]


def _check_range(index: Number, extent: int) -> None:
    if index.array.size and not (index.array.min() >= 0 and index.array.max() < extent):
        raise Unsupported(f"an index outside 0..{extent - 1}")
