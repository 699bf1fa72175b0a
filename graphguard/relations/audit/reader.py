"""Elements of expressions at points, by what they denote (``relations.terms.denotation``), for unknowns that are functions of their coordinates drawn once.

An expression that would take too long to write down is read as one more unknown: an equation that holds for all such is an equation.  One that does not hold then
says nothing, which :attr:`Reader.guessed` remembers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import UNBOUNDED, Kernel, Ref, Terms, Window
from graphguard.relations.terms.permutations import known_range

Array = np.ndarray[Any, Any]
Points = tuple[Array, ...]  # for every dim the index at each of the points

_POINTS: Final = 24
_ALL: Final = 64  # elements of a tensor that are all looked at
_LARGEST: Final = 1 << 20  # elements of all points of an expression
_MOST: Final = 1 << 22  # elements of all expressions of one step
_LOOK: Final = 256  # elements that are worked out in the time of looking at any
_DRAWING: Final = 4  # elements that are worked out in the time of drawing one
_AXES: Final = 4  # of a window that is joined with others
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_ENDS: Final = (-3, 10)  # of integers of which nothing is known
_DIGITS: Final = 12  # binary digits that a narrower float type has here


class Reader(Denotation):
    """Evaluates at points; ``signed`` unknowns are negative at half of their places, ``nudged`` ones are off by such a part of them.

    ``indices`` are computed integers that are assumed to lie in the tables that they are looked up in: unknowns for which they do not are not read.
    """

    def __init__(
        self,
        seed: int,
        tables: Mapping[int, Array],
        *,
        signed: bool,
        nudged: float = 0.0,
        indices: Collection[int] = (),
    ) -> None:
        super().__init__({}, self._closed, tables)
        self.indices = indices
        self.seed = seed
        self.signed = signed
        self.nudged = nudged
        self.guessed = False
        self.longest = 0
        self.whole: set[int] = set()  # kernels that are written down, whatever that takes
        self._guesses: dict[tuple[int, Window], Array] = {}  # tables in which a guess has part
        self.reached = 0.0  # the largest summand that was met
        self._costs: dict[int, float] = {}
        self._works: dict[int, float] = {}
        self._spent = 0.0

    def begin(self, whole: set[int], longest: int) -> None:
        """Read something else, in which these kernels are written down, and others of so many elements at one point."""
        self.longest = longest
        self._works = {}
        self.guessed, self.whole, self._guesses, self._spent, self.reached = False, whole, {}, 0.0, 0.0

    # -- what an expression is at points

    def points(self, extents: Sequence[int]) -> Points:
        """Indices at which tensors of these extents are compared: all, or the first, the last, and some between."""
        volume = math.prod(extents)
        if volume <= _ALL:
            flat = np.arange(volume)
        else:
            drawn = np.random.default_rng(self.seed).integers(0, volume, _POINTS - 2)
            flat = np.unique(np.concatenate([[0, volume - 1], drawn]))
        return tuple(np.unravel_index(flat, tuple(extents))) if extents else ()

    def terms(self, terms: Terms, points: Points) -> Array:
        """A linear combination at points."""
        total: Any = np.zeros(points[0].shape if points else ())
        for coefficient, ref in terms:
            part = float(coefficient) * self.looked_at(ref, points)
            self.reached = max(self.reached, float(np.abs(part[np.isfinite(part)]).max(initial=0.0)))
            total = total + part
        return np.asarray(total)

    def looked_at(self, ref: Ref, points: Points) -> Array:
        """A reference at points."""
        kernel, offsets, dims, window = ref
        index: list[Array] = [np.full(points[0].shape if points else (), offset, dtype=np.int64) for offset in offsets]
        for place, digits in zip(points, dims, strict=True):
            inner = 1
            for axis, stride, count in reversed(digits):
                if axis >= 0:
                    index[axis] = index[axis] + (place // inner) % count * stride
                inner *= count
        return np.asarray(np.broadcast_to(self.at(kernel, window, index), points[0].shape if points else ()))

    # -- kernels

    def at(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        """A kernel's elements at given coordinates."""
        found = self._at(kernel, window, index)
        if kernel.id in self.indices and kernel.range is not None and found.size:
            low, high = kernel.range
            if found.min() < low or found.max() >= high:
                raise Unsupported("an index outside the table that it is assumed to lie in")
        return found

    def _at(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        for axis, size in enumerate(kernel.shape):
            if size != UNBOUNDED and index[axis].size and (index[axis].min() < 0 or index[axis].max() >= size):
                raise AssertionError("an expression is looked at outside its domain")
        if kernel.kind in ("one", "infinity", "number", "iota"):
            return super().at(kernel, window, index)
        if kernel.kind == "leaf" or (kernel.kind == "literal" and kernel.id not in self.tables):
            return self._unknown(kernel, (), index)
        if kernel.kind == "literal":
            table = self._table(kernel)
            return table[tuple(index)] if index else table
        if kernel.kind == "opaque" and kernel.name != "argsort":
            return self._unknown(kernel, window, index)
        if self._is_guessed(kernel):
            self.guessed = True
            return self._unknown(kernel, window, index)
        volume = math.prod(kernel.shape)
        if volume <= max((np.size(each) for each in index), default=1):
            table = self._whole(kernel, window)
            return table[tuple(index)] if index else table
        count = math.prod(np.broadcast_shapes(*(np.shape(each) for each in index))) if index else 1
        self._spend(count * self._work(kernel))
        return self._compute(kernel, window, index)

    def _spend(self, elements: float) -> None:
        self._spent += elements + _LOOK
        if elements > _LARGEST or self._spent > _MOST:
            raise Unsupported("an expression of too many elements")

    def _whole(self, kernel: Kernel, window: Window) -> Array:
        key = (kernel.id, window)
        if key in self._guesses:
            self.guessed = True
            return self._guesses[key]
        if key not in self.memo:
            self._spend(math.prod(kernel.shape) * self._work(kernel))
        before, self.guessed = self.guessed, False
        table = super()._whole(kernel, window)
        if self.guessed:
            self._guesses[key] = self.memo.pop(key)
        self.guessed = self.guessed or before
        return table

    def _cost(self, kernel: Kernel) -> float:
        """About how many elements one element of a kernel is made of."""
        known = self._costs.get(kernel.id)
        if known is None:
            reduced = math.prod(size for size in kernel.reduced if size < UNBOUNDED // 4)
            inner = sum(1.0 if factor[0].kind == "leaf" else self._cost(factor[0]) for factor in kernel.factors)
            known = self._costs[kernel.id] = max(1.0, reduced * inner)
        return known

    def _is_guessed(self, kernel: Kernel) -> bool:
        return kernel.id not in self.whole and self._cost(kernel) > self.longest

    def _work(self, kernel: Kernel) -> float:
        """The cost of a kernel where others are guessed."""
        known = self._works.get(kernel.id)
        if known is None:
            reduced = math.prod(size for size in kernel.reduced if size < UNBOUNDED // 4)
            inner = sum(1.0 if self._is_guessed(factor[0]) else self._work(factor[0]) for factor in kernel.factors)
            known = self._works[kernel.id] = max(1.0, reduced * inner)
        return known

    def _unknown(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        """An unknown function of the coordinates; one of a window is a sum over it, so that windows can be joined."""
        corners = 1 if kernel.truth or kernel.type != "float" or len(window) > _AXES else 1 << len(window)
        self._spend(_DRAWING * corners * max((np.size(each) for each in index), default=1))
        if corners == 1:
            return self._drawn(kernel, window, index)
        total: Any = 0.0
        for corner in range(1 << len(window)):
            ends = [span[corner >> place & 1] for place, span in enumerate(window)]
            sign = -1 if (len(window) - bin(corner).count("1")) % 2 else 1
            total = total + sign * self._drawn(kernel, tuple((end, end) for end in ends), index)
        return np.asarray(total)

    def _drawn(self, kernel: Kernel, window: Window, index: list[Array]) -> Array:
        """One number for each place, the same whenever it is asked for."""
        state: Any = np.uint64((self.seed * 1_000_003 + kernel.id * 7919) & 0xFFFFFFFFFFFFFFFF)
        with np.errstate(over="ignore"):
            for row in (*index, *(np.int64(end) for span in window for end in span)):
                state = (state ^ np.asarray(row).astype(np.uint64)) * np.uint64(_MIX[0])
                state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX[1])
                state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX[2])
        share = (state >> np.uint64(11)).astype(np.float64) / float(1 << 53)
        if kernel.truth or kernel.type == "bool":
            return np.asarray((share < 0.5) * 1.0)
        if kernel.type == "int":
            low, high = known_range(kernel) or _ENDS
            low, high = max(low, high - 64), min(high, low + 64)
            return np.asarray(np.floor(low + share * max(high - low, 1)))
        number = 0.6 + 0.8 * ((share * 2) % 1 if self.signed else share)
        if self.nudged:
            number = number * (1 + self.nudged * np.cos(share * 1e9))
        return np.asarray(np.where(share < 0.5, -number, number) if self.signed else number)

    # -- functions

    def function(self, name: str, attributes: tuple[Any, ...], argument: Array) -> Array:
        """A function of one argument by its name."""
        return self._function(Kernel(-1, "function", name, (), (), (), attributes), [argument])

    def _closed(self, name: str, attributes: tuple[Any, ...], arguments: Sequence[Array]) -> Array:
        if name == "cast":
            return _rounded(np.asarray(arguments[0]))
        mixed: Any = sum(ord(letter) for letter in name + str(attributes)) % 17 / 17
        for place, argument in enumerate(arguments):
            mixed = mixed + (1.3 + 0.7 * place) * argument
        return np.asarray(1.5 + np.sin(mixed))


def _rounded(numbers: Array) -> Array:
    mantissa, exponent = np.frexp(numbers)
    return np.asarray(np.ldexp(np.rint(mantissa * (1 << _DIGITS)) / (1 << _DIGITS), exponent))
