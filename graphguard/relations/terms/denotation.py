"""What a normal form denotes: its elements, given elements for its leaves.

This is the definition against which the engine is tested (every rule, on random programs), and it writes down values without unknowns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import UNBOUNDED, Factor, Kernel, Number, Ref, Window
from graphguard.relations.terms.values import NormalValue

Array = np.ndarray[Any, Any]
Closed = Callable[[str, tuple[Any, ...], Sequence[Array]], Array]

_FULL: Final = 1 << 20
_LARGEST: Final = (
    1 << 25
)  # elements of a factor or of a product before it is summed: more than these would take gigabytes
_WHOLE: Final = 1 << 30
_AXES: Final = 32  # dims of an array that NumPy broadcasts
_WORK: Final = 1 << 27  # products of two numbers in one sum: half a second
_WRITTEN: Final = 1 << 12  # elements of a product that are written down before they are summed
_FUNCTIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "exp": np.exp,
    "log": np.log,
    "gt0": lambda x: (x > 0) * 1.0,
    "ge0": lambda x: (x >= 0) * 1.0,
    "eq0": lambda x: (x == 0) * 1.0,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "abs": np.abs,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


class Denotation:
    """Elements of kernels and values under an assignment of arrays to leaves.

    ``closed`` gives the elements of functions that are known by name only; without it they raise ``Unsupported``.  Sums of products may have ``most`` summands:
    of so many, small integers still add up without rounding.  What is not finite is written down before it is summed, in up to ``largest`` elements.
    """

    most: float = _LARGEST
    largest: int = _LARGEST

    def __init__(
        self, leaves: Mapping[str, Array], closed: Closed | None = None, tables: Mapping[int, Array] | None = None
    ) -> None:
        self.leaves = leaves
        self.closed = closed
        self.tables = tables or {}
        self.memo: dict[tuple[int, Window], Array] = {}

    def value(self, value: NormalValue) -> Array:
        """All elements of a value."""
        return self._added(value, lambda term: term)

    def magnitude(self, value: NormalValue) -> Array:
        """For every element the sum of its terms without their signs: rounding moves the element by about one part in 10^16 of it."""
        return self._added(value, np.abs)

    def _added(self, value: NormalValue, act: Callable[[Array], Array]) -> Array:
        out = np.full(value.cells, np.nan)
        for box, terms in value.pieces:
            sizes = tuple(high - low for low, high in box)
            total = np.zeros(sizes)
            unit = _unit(coefficient for coefficient, _ in terms)
            for coefficient, ref in terms:
                total = total + act(float(coefficient * unit) * self.ref(ref, sizes))
            out[tuple(slice(low, high) for low, high in box)] = total / unit
        return out.reshape(value.shape)

    def ref(self, ref: Ref, sizes: tuple[int, ...]) -> Array:
        """All elements that a reference looks at."""
        kernel, offsets, dims, window = ref
        index = [np.array(offset, dtype=np.int64).reshape((1,) * len(sizes)) for offset in offsets]
        for dim, digits in enumerate(dims):
            place = 1
            shape = [-1 if other == dim else 1 for other in range(len(sizes))]
            for axis, stride, count in reversed(digits):
                if axis >= 0:
                    places = np.arange(sizes[dim])
                    if len(digits) > 1:
                        places = (places // place) % count
                    index[axis] = index[axis] + (places * stride).reshape(shape)
                place *= count
        return np.broadcast_to(self.at(kernel, window, index), sizes)

    def at(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        """A kernel's elements at given coordinates."""
        for axis, size in enumerate(kernel.shape):
            if size != UNBOUNDED and index[axis].size and (index[axis].min() < 0 or index[axis].max() >= size):
                raise AssertionError(f"{kernel} is looked at outside its domain")
        if kernel.kind == "one":
            return np.float64(1)  # type: ignore[return-value]
        if kernel.kind == "infinity":
            return np.float64(-np.inf)  # type: ignore[return-value]
        if kernel.kind == "number":
            return np.float64(kernel.name)  # type: ignore[return-value]
        if kernel.kind == "iota":
            return index[0].astype(np.float64)
        if kernel.kind in ("leaf", "literal"):
            table = self._table(kernel)
            return table[tuple(index)] if index else table
        volume = math.prod(kernel.shape)
        if volume <= _FULL:
            table = self._whole(kernel, window)
            return table[tuple(index)] if index else table
        return self._compute(kernel, window, index)

    def _table(self, kernel: Kernel) -> Array:
        if kernel.id in self.tables:
            return self.tables[kernel.id].astype(np.float64)
        if kernel.name not in self.leaves:
            raise Unsupported(f"no elements for {kernel.name}")
        return np.asarray(self.leaves[kernel.name], dtype=np.float64)

    def _whole(self, kernel: Kernel, window: Window) -> Array:
        key = (kernel.id, window)
        table = self.memo.get(key)
        if table is None:
            if math.prod(kernel.shape) > _LARGEST:
                raise Unsupported("a function of too many elements to write down")
            rank = len(kernel.shape)
            index = [
                np.arange(size).reshape([-1 if d == axis else 1 for d in range(rank)])
                for axis, size in enumerate(kernel.shape)
            ]
            table = self.memo[key] = np.array(np.broadcast_to(self._compute(kernel, window, index), kernel.shape))
        return table

    def _compute(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        if kernel.kind == "onehot":
            base, _, inner, _, _ = kernel.factors[0]
            # an integer, that sums of thirds may miss by the last digit
            return np.asarray((np.rint(self.at(base, inner, index[:-1])) == index[-1]) * 1.0)
        if kernel.kind == "function":
            base, factor, inner, _, _ = kernel.factors[0]
            argument = float(factor) * self.at(base, inner, index) if factor else np.float64(0)
            return self._function(kernel, [np.asarray(argument)])
        if kernel.kind == "opaque" and kernel.name == "argsort":
            return self._order(kernel, index)
        return self._combined(kernel, window, index)

    def _order(self, kernel: Kernel, index: list[Array]) -> Array:
        """Which place an element of a sorted line had, equal ones in the order they had; the line is the core dim A, its sorted like B."""
        marks = {label: mark for label, mark in kernel.core.items() if isinstance(mark, tuple)}
        line = next((label for label, mark in marks.items() if mark[0] == "B"), None)
        if line is None:  # of one element
            return np.zeros(np.broadcast_shapes(*(np.shape(i) for i in index)))
        bound, rank = len(kernel.reduced), max(np.ndim(i) for i in index)
        if rank + bound > _AXES:
            raise Unsupported("an order of too many dims to write down")
        labels: list[Array] = [np.asarray(i).reshape(np.shape(i) + (1,) * bound) for i in index]
        inner = sorted(range(bound), key=lambda place: marks[len(kernel.shape) + place][1])
        for place in range(bound):
            shape = [1] * rank + [-1 if other == place else 1 for other in inner]
            labels.append(np.arange(kernel.reduced[place]).reshape(shape))
        ((part, (_, coefficient), window, base, steps),) = kernel.factors
        values = float(coefficient) * self._part(part, window, base, steps, labels) if coefficient else np.zeros(())
        lead = np.broadcast_shapes(*(np.shape(i) for i in index))
        flat = np.broadcast_to(values, [*lead, *(kernel.reduced[place] for place in inner)]).reshape([*lead, -1])
        order = np.argsort(-flat if kernel.attributes[1] == ("True",) else flat, axis=-1, kind="stable")
        chosen = np.broadcast_to(index[line], lead)[..., None].astype(np.int64)
        return np.take_along_axis(order, chosen, -1)[..., 0].astype(np.float64)

    def _function(self, kernel: Kernel, arguments: list[Array]) -> Array:
        plain = _FUNCTIONS.get(kernel.name)
        if plain is not None and not kernel.attributes:
            return plain(arguments[0])
        if kernel.name == "floor_divide":
            return np.asarray(np.floor(arguments[0] / float(str(kernel.attributes[0]))))
        if self.closed is None:
            raise Unsupported(f"no elements for {kernel.name}")
        return self.closed(kernel.name, kernel.attributes, arguments)

    def _combined(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        rank = max((np.ndim(i) for i in index), default=0)
        bound = len(kernel.reduced)
        if rank + bound > _AXES:
            raise Unsupported("a sum over too many dims to write down")
        labels: list[Array] = [np.asarray(i).reshape(np.shape(i) + (1,) * bound) for i in index]
        for place, (low, high) in enumerate(self._clipped(kernel, window, labels)):
            shape = [1] * rank + [-1 if other == place else 1 for other in range(bound)]
            labels.append(np.arange(low, high).reshape(shape))
        parts = [
            (payload, self._part(part, inner, base, steps, labels))
            for part, payload, inner, base, steps in kernel.factors
        ]
        axes = tuple(range(rank, rank + bound))
        full = _spread([np.shape(label) for label in labels])
        volume = math.prod(max(size, 1) for size in full)  # an empty dim may come last in the product
        if kernel.kind == "product" and axes and _WRITTEN < volume <= self.most:
            finite = self._finite(kernel, parts)
            if finite is not None:
                return _contracted(finite, full, axes)
        if volume > self.largest:
            raise Unsupported("a sum of too many elements to write down")
        if kernel.kind == "product":
            return self._product(kernel.factors, parts, full, axes)
        if kernel.kind == "sum":
            unit = _unit(payload for payload, _ in parts)
            return sum((float(payload * unit) * part for payload, part in parts if payload), start=np.zeros(())) / unit
        if kernel.kind == "max":
            return np.asarray(np.broadcast_to(float(parts[0][0]) * parts[0][1], full).max(axis=axes))
        if kernel.kind == "place":
            line = np.broadcast_to(float(parts[0][0]) * parts[0][1], full)
            return np.asarray(line.argmax(axis=axes[0]) + window[0][0])
        if kernel.kind == "maximum":
            best = [float(payload) * part if payload else np.zeros(()) for payload, part in parts]
            out = best[0]
            for other in best[1:]:
                out = np.maximum(out, other)
            return out
        if kernel.kind == "apply" and self.closed is not None:
            ordered = sorted(parts, key=lambda row: row[0][0])
            return self.closed(
                str(kernel.attributes[0]),
                kernel.attributes[1:],
                [float(p[1]) * a if p[1] else np.zeros(()) for p, a in ordered],
            )
        raise Unsupported(f"no elements for {kernel.name or kernel.kind}")

    def _part(self, part: Kernel, window: Window, base: tuple[int, ...], steps: Any, labels: list[Array]) -> Array:
        index = [np.array(offset, dtype=np.int64) for offset in base]
        for axis, label, stride in steps:
            index[axis] = index[axis] + labels[label] * stride
        return np.asarray(self.at(part, window, index))

    def _finite(self, kernel: Kernel, parts: list[tuple[Any, Array]]) -> list[tuple[Any, Array]] | None:
        """Factors of a product that are finite, where what is not is masked: such factors and the masks are one, written down; None where that is not."""
        with np.errstate(divide="ignore"):
            endless = [not np.isfinite(_power(part, power)).all() for power, part in parts]
        if not any(endless):
            return parts
        masks = [factor.truth for factor, *_ in kernel.factors]
        chosen = [place for place in range(len(parts)) if endless[place] or masks[place]]
        full = _spread([np.shape(parts[place][1]) for place in chosen])
        if math.prod(full) > self.largest:
            return None
        one = self._product([kernel.factors[place] for place in chosen], [parts[place] for place in chosen], full, ())
        rest = [parts[place] for place in range(len(parts)) if place not in chosen]
        return [(1, one), *rest] if np.isfinite(one).all() else None

    def _product(
        self, factors: Sequence[Factor], parts: list[tuple[Any, Array]], full: tuple[int, ...], axes: tuple[int, ...]
    ) -> Array:
        out: Array = np.ones(())
        nothing = np.zeros((), dtype=bool)
        with np.errstate(invalid="ignore", divide="ignore"):  # minus infinity times a mask that is 0 is 0
            for (factor, *_), (power, part) in zip(factors, parts, strict=True):
                if factor.truth and power == 1:
                    nothing = nothing | (part == 0)
                out = out * _power(part, power)
        out = np.where(nothing, 0.0, out)
        return np.broadcast_to(out, full).sum(axis=axes) if axes else out

    def _clipped(self, kernel: Kernel, window: Window, labels: list[Array]) -> list[tuple[int, int]]:
        """Windows over all integers are cut to where the one-hot under them can be 1; ``labels`` are those of the kernel's axes."""
        out = []
        for place, (low, high) in enumerate(window):
            if high - low > _FULL:
                label = len(kernel.shape) + place
                for factor in kernel.factors:
                    column = len(factor[0].shape) - 1
                    if factor[0].kind == "onehot" and any(axis == column and label == L for axis, L, _ in factor[4]):
                        values = self._indices(factor, labels)
                        low = max(low, int(values.min()) - factor[3][column])
                        high = min(high, int(values.max()) - factor[3][column] + 1)
                if high - low > _FULL:
                    raise Unsupported("a sum over all integers")
            out.append((low, max(low, high)))
        return out

    def _indices(self, factor: Factor, labels: list[Array]) -> Array:
        """What a one-hot factor compares its column with: where the labels look, or everywhere."""
        part, _, _, base, steps = factor
        index, _, inner, _, _ = part.factors[0]
        steps = tuple(step for step in steps if step[0] != len(part.shape) - 1)
        if all(label < len(labels) for _, label, _ in steps):
            return self._part(index, inner, base[:-1], steps, labels)
        if index.kind in ("leaf", "literal"):
            return self._table(index)
        if math.prod(index.shape) > _FULL:
            raise Unsupported("a sum over all integers")
        return self._whole(index, inner)


def _power(part: Array, power: Any) -> Array:
    """A power; what is divided by is worked out first, as it may be too large for floats where one over it is merely 0."""
    if power == 1:
        return part
    return np.asarray(np.power(part, float(power)) if power > 0 else 1 / np.power(part, -float(power)))


def _unit(numbers: Iterable[Number]) -> int:
    """What makes numbers whole, so that a sum of so many truths is exact; 1 where it is large."""
    unit = math.lcm(*(number.denominator for number in numbers))
    return unit if unit <= _WHOLE else 1


def _contracted(parts: list[tuple[Any, Array]], full: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """A sum over axes of a product of powers, factor by factor, without writing the product down."""
    operands: list[Any] = []
    seen: set[int] = set()
    for power, part in parts:
        array = np.asarray(_power(part, power), dtype=float)
        lead = len(full) - array.ndim
        dims = [lead + dim for dim, size in enumerate(array.shape) if size != 1]
        operands += [array.reshape([full[dim] for dim in dims]), dims]
        seen.update(dims)
    kept = [dim for dim in range(len(full)) if dim not in axes]
    out = [dim for dim in kept if dim in seen]
    path = np.einsum_path(*operands, out, optimize=("greedy", _LARGEST))[0]
    if _multiplied(path[1:], [set(dims) for dims in operands[1::2]], set(out), full) > _WORK:
        raise Unsupported("a sum of too many elements to write down")
    total = np.einsum(*operands, out, optimize=path)
    total = total * math.prod(full[dim] for dim in axes if dim not in seen)
    spread = np.reshape(total, [full[dim] if dim in seen else 1 for dim in kept])
    return np.broadcast_to(spread, [full[dim] for dim in kept])


def _multiplied(path: Iterable[tuple[int, ...]], operands: list[set[int]], out: set[int], full: tuple[int, ...]) -> int:
    """How many numbers are multiplied where operands, of these dims, are taken together as a path says."""
    work = 0
    for step in path:
        taken = set().union(*(operands[place] for place in step))
        work += math.prod(full[dim] for dim in taken)
        operands = [dims for place, dims in enumerate(operands) if place not in step]
        operands.append(taken & out.union(*operands))
    return work


def is_known(value: NormalValue) -> bool:
    """Whether a value depends on no unknown."""
    return all(_closed_form(ref[0], set()) for _, terms in value.pieces for _, ref in terms)


def known_part(value: NormalValue) -> NormalValue:
    """The terms of a value that depend on no unknown."""
    pieces = [(box, tuple(term for term in terms if _closed_form(term[1][0], set()))) for box, terms in value.pieces]
    return NormalValue(value.shape, value.kind, pieces, value.grid)


def known_elements(value: NormalValue) -> Array | None:
    """The elements of a value that depends on no unknown; None where a whole number is none, such as one divided by zero."""
    try:
        elements = Denotation({}).value(value)
    except Unsupported:
        return None
    if value.kind == "bool":
        return np.asarray(elements != 0)
    if value.kind != "int":
        return elements
    return np.rint(elements).astype(np.int64) if bool(np.isfinite(elements).all()) else None


def _spread(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that several are broadcast to, as ``np.broadcast_shapes`` gives it; that refuses one of more elements than an integer counts, which are never made."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


_EXACT: Final = frozenset(("gt0", "ge0", "eq0", "trunc", "floor", "ceil", "abs", "sign", "floor_divide"))
_FINE: Final = 1 << 16  # coefficients are multiples of one part in so many, or fractions


def exactly_known(value: NormalValue) -> bool:
    """Whether a value depends on no unknown and its elements are computed without rounding: sums, products and truths of small integers."""
    return all(
        _is_fine(coefficient) and _exact(ref[0], set()) for _, terms in value.pieces for coefficient, ref in terms
    )


def _exact(kernel: Kernel, seen: set[int]) -> bool:
    if kernel.kind in ("one", "iota") or kernel.id in seen:
        return True
    seen.add(kernel.id)
    if kernel.kind not in ("product", "sum", "function", "onehot") or (
        kernel.kind == "function" and kernel.name not in _EXACT
    ):
        return False
    whole = kernel.kind == "product"
    return all(
        _is_fine(payload) and (not whole or (payload > 0 and payload == int(payload))) and _exact(part, seen)
        for part, payload, *_ in kernel.factors
    )


def _is_fine(number: Any) -> bool:
    return bool(abs(number) < _FINE and _FINE % number.denominator == 0)


def _closed_form(kernel: Kernel, seen: set[int]) -> bool:
    if kernel.id in seen:
        return True
    seen.add(kernel.id)
    if kernel.kind in ("leaf", "literal", "apply", "opaque"):
        return False
    return all(_closed_form(factor[0], seen) for factor in kernel.factors)
