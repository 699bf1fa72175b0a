"""What a rule of a kind claims: two expressions that are equal, from what it was given and what it made.

A claim is read as arrays at points, ``(left, right)`` pairs of them; a kind that cannot be read says so by ``Unsupported``.  No rule is asked: the left side is worked
out from the operands by plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.audit.reader import Array, Points, Reader
from graphguard.relations.rewrite.rule import Outcome
from graphguard.relations.terms.kernels import Kernel, Ref, Terms
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.permutations import known_range

Pairs: TypeAlias = "Iterator[tuple[Array, Array]]"
_SUMMED: Final = 1 << 12  # elements of a sum at one point


@dataclass(frozen=True, slots=True)
class State:
    """A product as it was: its coefficient, factors over digits, extents of digits, digits of dims, and which digits are summed."""

    coefficient: Any
    parts: tuple[Part, ...]
    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]
    reduced: frozenset[int]
    deferred: tuple[Any, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return tuple(math.prod(self.sizes[digit] for digit in digits) for digits in self.dims)

    def kernels(self) -> Iterator[Kernel]:
        """Those of its factors."""
        yield from (part.kernel for part in self.parts)


def state_of(product: Any) -> State:
    """A product under construction, as it is now."""
    return State(
        product.coefficient,
        tuple(part.copy() for part in product.parts),
        tuple(product.sizes),
        tuple(map(tuple, product.dims)),
        frozenset(product.reduced),
        tuple(product.deferred),
    )


def value_of(reader: Reader, state: State, points: Points) -> Array:
    """A product at points, its summed digits written out."""
    if state.deferred:
        raise Unsupported("sums that wait to be opened")
    count = points[0].size if points else 1
    place: dict[int, Array] = {}
    for dim, digits in zip(points, state.dims, strict=True):
        inner = 1
        for digit in reversed(digits):
            place[digit] = np.reshape((dim // inner) % state.sizes[digit], (count, 1))
            inner *= state.sizes[digit]
    spans = _spans(reader, state, sorted(state.reduced))
    volume = math.prod(high - low for low, high in spans.values())
    if volume > _SUMMED:
        raise Unsupported("a sum of too many elements")
    flat, inner = np.arange(volume), 1
    for digit, (low, high) in spans.items():
        place[digit] = np.reshape(low + (flat // inner) % (high - low), (1, volume))
        inner *= high - low
    out: Any = np.ones((count, volume))
    nothing = np.zeros((count, volume), dtype=bool)
    for part in state.parts:
        index: list[Array] = [np.full((1, 1), offset, dtype=np.int64) for offset in part.offsets]
        for axis, digit, stride in part.expressions:
            index[axis] = index[axis] + stride * place.get(digit, np.zeros((1, 1), dtype=np.int64))
        value = np.asarray(reader.at(part.kernel, part.window, index))
        if part.kernel.truth and part.payload == 1:
            nothing = nothing | (value == 0)
        out = out * np.power(value, float(part.payload))
    total = np.where(nothing, 0.0, out).sum(axis=1) * float(state.coefficient)
    return np.reshape(total, points[0].shape if points else ())


def _spans(reader: Reader, state: State, reduced: list[int]) -> dict[int, tuple[int, int]]:
    """The summed digits' windows; one over all integers is cut to where the one-hot under it can be 1."""
    spans: dict[int, tuple[int, int]] = {}
    for digit in reduced:
        low, high = 0, state.sizes[digit]
        if high > _SUMMED:
            for part in state.parts:
                column = len(part.kernel.shape) - 1
                steps = [step for step in part.expressions if step[0] == column]
                if part.kernel.kind == "onehot" and len(steps) == 1 and steps[0][1] == digit and abs(steps[0][2]) == 1:
                    first, last = _reached(reader, part.kernel)
                    ends = sorted(((at - part.offsets[column]) * steps[0][2]) for at in (first, last))
                    low, high = max(low, ends[0] - 1), min(high, ends[1] + 1)
        spans[digit] = low, max(low, high)
    return spans


def _reached(reader: Reader, hot: Kernel) -> tuple[int, int]:
    """The least and the largest number that the index of a one-hot takes."""
    index, _, window, *_ = hot.factors[0]
    if (known := known_range(index)) is not None:
        return known
    if math.prod(index.shape) > _SUMMED:
        raise Unsupported("an index of too many elements")
    numbers = reader.at(index, window, list(np.indices(index.shape, dtype=np.int64)))
    return int(numbers.min(initial=0)), int(numbers.max(initial=0))


# -- claims by kind: what was given (positional), what was made


def _product(reader: Reader, given: Any, made: Any) -> Pairs:
    before, after = given
    points = reader.points(before.extents)
    zero = made is Outcome.ZERO
    yield value_of(reader, before, points), np.zeros(()) if zero else value_of(reader, after, points)


def _construction(reader: Reader, given: Any, made: Ref) -> Pairs:
    kind, state = given
    points = reader.points(state.extents)
    if kind == "product":
        left = value_of(reader, state, points)
    elif kind == "max":
        left = _largest_of(reader, state, points)
    elif kind in ("sum", "maximum"):
        rows = [
            float(part.payload) * value_of(reader, _alone(state, part), points) if part.payload else np.zeros(())
            for part in state.parts
        ]
        left = (
            sum(rows[1:], start=rows[0]) if kind == "sum" else np.asarray(np.maximum.reduce(np.broadcast_arrays(*rows)))
        )
    else:
        raise Unsupported(f"the construction of {kind}")
    yield left, reader.looked_at(made, points)


def _largest_of(reader: Reader, state: State, points: Points) -> Array:
    """The largest over the reduced digits."""
    (part,) = state.parts
    digits = sorted(state.reduced)
    opened = State(
        1, _alone(state, part).parts, state.sizes, (*state.dims, *((digit,) for digit in digits)), frozenset()
    )
    wide = _widened(points, opened.extents, tuple(range(len(state.dims), len(opened.dims))))
    line = float(part.payload) * value_of(reader, opened, tuple(map(np.ravel, wide))).reshape(wide[0].shape)
    return np.asarray(line.max(axis=1).reshape(points[0].shape if points else ()))


def _alone(state: State, part: Part) -> State:
    plain = Part(part.kernel, 1, part.window, part.offsets, part.expressions)
    return State(1, (plain,), state.sizes, state.dims, frozenset())


def _sum(reader: Reader, given: Any, made: Any) -> Pairs:
    _, items, extents = given
    points = reader.points(extents)
    yield reader.terms(tuple(items), points), reader.terms(tuple(made), points)


def _closed(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents = given
    yield from _sum(reader, (None, terms, extents), (made,))


def _of_product(reader: Reader, given: Any, made: Any) -> Pairs:
    _, coefficient, ref, extents = given
    if made is not None:
        yield from _sum(reader, (None, ((coefficient, ref),), extents), made)


def _as_product(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents = given
    if made is not None:
        yield from _sum(reader, (None, terms, extents), (made,))


def _common(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents = given
    powers, rest = made
    points = reader.points(extents)
    right: Any = reader.terms(rest, points)
    for ref, power in powers:
        right = right * np.power(reader.looked_at(ref, points), float(power))
    yield reader.terms(terms, points), np.asarray(right)


def _multiply(reader: Reader, given: Any, made: Any) -> Pairs:
    _, items, extents, *rest = given
    summed = rest[0] if rest else ()
    coefficient, ref = made

    def act(points: Points) -> Array:
        out: Any = np.ones(())
        nothing: Any = np.zeros((), dtype=bool)
        for item, power in items:
            value = reader.looked_at(item, points)
            nothing = nothing | ((value == 0) & bool(item[0].truth and power == 1))
            out = out * np.power(value, float(power))
        return np.where(nothing, 0.0, out)

    yield from _summed(reader, extents, summed, act, ((coefficient, ref),) if coefficient else ())


def _times(reader: Reader, given: Any, made: Any) -> Pairs:
    _, a, b, extents, *rest = given
    yield from _summed(
        reader,
        extents,
        rest[0] if rest else (),
        lambda points: np.asarray(reader.terms(a, points) * reader.terms(b, points)),
        made,
    )


def _summed(
    reader: Reader, extents: tuple[int, ...], summed: tuple[int, ...], act: Callable[[Points], Array], made: Terms
) -> Pairs:
    """A function of points of which some dims are summed against terms without these dims."""
    kept = tuple(size for dim, size in enumerate(extents) if dim not in summed)
    points = reader.points(kept)
    wide = _widened(points, extents, summed)
    total = act(tuple(map(np.ravel, wide))) if extents else act(())
    if summed:
        total = np.broadcast_to(total, (wide[0].size,)).reshape(wide[0].shape).sum(axis=1)
        total = total.reshape(points[0].shape if points else ())
    yield total, reader.terms(made, points)


def _widened(points: Points, extents: tuple[int, ...], summed: tuple[int, ...]) -> Points:
    """For every point all places along the summed dims: arrays of (points, places)."""
    sizes = [extents[dim] for dim in summed]
    volume = math.prod(sizes)
    if volume > _SUMMED:
        raise Unsupported("a sum of too many elements")
    count = points[0].size if points else 1
    inner = iter(np.unravel_index(np.arange(volume), tuple(sizes)) if sizes else ())
    outer = iter(points)
    out = []
    for dim in range(len(extents)):
        row = np.reshape(next(inner), (1, volume)) if dim in summed else np.reshape(next(outer), (count, 1))
        out.append(np.broadcast_to(row, (count, volume)))
    return tuple(out)


def _elementwise(act: Callable[..., Any]) -> Callable[[Reader, Any, Any], Pairs]:
    """The claim of a rule that was given the universe, terms and extents, and makes terms, or none."""

    def claim(reader: Reader, given: Any, made: Any) -> Pairs:
        if made is None:
            return
        _, *rows, extents = given
        points = reader.points(extents)
        yield np.asarray(act(*(reader.terms(tuple(row), points) for row in rows))), reader.terms(made, points)

    return claim


def _function(reader: Reader, given: Any, made: Any) -> Pairs:
    if made is not None:
        _, name, terms, extents = given
        points = reader.points(extents)
        yield reader.function(name, (), reader.terms(terms, points)), reader.terms(made, points)


def _named(reader: Reader, given: Any, made: Any) -> Pairs:
    _, name, attributes, terms, _, extents = given
    points = reader.points(extents)
    yield reader.function(name, tuple(attributes), reader.terms(terms, points)), reader.terms(made, points)


def _power(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, exponent, extents = given
    points = reader.points(extents)
    yield np.power(reader.terms(terms, points), float(exponent)), reader.terms(made, points)


def _larger(reader: Reader, given: Any, made: Any) -> Pairs:
    _, rows, extents = given
    if made is not None:
        points = reader.points(extents)
        left = np.maximum.reduce(np.broadcast_arrays(*(reader.terms(tuple(row), points) for row in rows)))
        yield np.asarray(left), reader.terms(made, points)


def _larger_of_terms(reader: Reader, given: Any, made: Any) -> Pairs:
    universe, items, extents = given
    yield from _larger(reader, (universe, [(item,) for item in items], extents), made)


def _largest_exponent(reader: Reader, given: Any, made: Any) -> Pairs:
    _, rows, extents = given
    if made is not None:
        points = reader.points(extents)
        left = np.maximum.reduce(np.broadcast_arrays(*(reader.terms(tuple(row), points) for row in rows)))
        yield np.asarray(left), np.exp(reader.terms(made, points))


def _largest(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents, summed = given
    points = reader.points(tuple(size for dim, size in enumerate(extents) if dim not in summed))
    wide = _widened(points, extents, tuple(summed))
    total = np.broadcast_to(reader.terms(terms, tuple(map(np.ravel, wide))), (wide[0].size,)).reshape(wide[0].shape)
    yield total.max(axis=1).reshape(points[0].shape if points else ()), reader.terms(made, points)


def _choice(reader: Reader, given: Any, made: Any) -> Pairs:
    _, condition, x, y, extents = given
    if made is not None:
        points = reader.points(extents)
        yes, a, b = (reader.terms(tuple(row), points) for row in (condition, x, y))
        yield np.where(np.isfinite(yes), np.where(yes > 0.5, a, b), np.nan), reader.terms(made, points)


def _comparison(reader: Reader, given: Any, made: Any) -> Pairs:
    _, relation, a, b, extents, *_ = given
    points = reader.points(extents)
    apart = reader.terms(b, points) - reader.terms(a, points)
    apart = np.where(np.abs(apart) < 1e-9, 0.0, apart)
    left = apart > 0 if relation == "lt" else apart >= 0 if relation == "le" else apart == 0
    yield _where_known(left, apart), reader.terms(made, points)


def _where_known(truth: Any, *operands: Array) -> Array:
    """A truth as a number; none where an operand is none, as what an operator gives outside its domain is not asked."""
    known = np.logical_and.reduce([np.isfinite(operand) for operand in operands])
    return np.where(known, np.asarray(truth) * 1.0, np.nan)


def _count(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents = given
    if made is not None:
        points = reader.points(extents)
        before, after = reader.terms(terms, points), reader.terms(made, points)
        yield _where_known(before > 1e-9, before), _where_known(after > 1e-9, after)


def _cases(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents, *_ = given
    if made is None:
        return
    points = reader.points(extents)
    guards: Any = np.zeros(())
    total: Any = np.zeros(())
    for guard, value in made:
        holds = reader.terms(guard, points)
        guards = guards + holds
        total = total + np.where(holds == 0, 0.0, holds * reader.terms(value, points))
    yield reader.terms(terms, points), np.asarray(total)
    yield np.ones(()), np.asarray(guards)


def _equality(reader: Reader, given: Any, made: Any) -> Pairs:
    _, base, column, extents, *rest = given
    if not (rest and rest[0]):
        points = reader.points(extents)
        same = np.rint(reader.looked_at(base, points)) == reader.looked_at(column, points)
        yield same * 1.0, reader.terms(tuple(made), points)
        return
    points = reader.points(extents[:-1])
    first, second = (
        (*points, np.full(points[0].shape if points else (), place)) for place in (0, min(1, extents[-1] - 1))
    )
    start, step = reader.looked_at(column, first), reader.looked_at(column, second) - reader.looked_at(column, first)
    apart = np.rint(reader.looked_at(base, first)) - start
    step = np.where(step == 0, 1, step)
    meets = (apart % step == 0) & (apart / step >= 0) & (apart / step < extents[-1])
    yield meets * 1.0, reader.terms(tuple(made), points)


def _division(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, divisor, extents = given
    if made is not None:
        points = reader.points(extents)
        whole = np.rint(reader.terms(terms, points))
        yield np.floor(whole / divisor), reader.terms(made[0], points)
        yield whole % divisor, reader.terms(made[1], points)


def _place(reader: Reader, given: Any, made: Any) -> Pairs:
    _, terms, extents, dim = given
    points = reader.points((*extents[:dim], *extents[dim + 1 :]))
    wide = _widened(points, extents, (dim,))
    line = np.broadcast_to(reader.terms(terms, tuple(map(np.ravel, wide))), (wide[0].size,)).reshape(wide[0].shape)
    first = (line >= line.max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
    place = _where_known(first, line.sum(axis=1))
    yield place.reshape(points[0].shape if points else ()), reader.terms(made, points)


CLAIMS: Final[dict[str, Callable[[Reader, Any, Any], Pairs]]] = {
    "product": _product,
    "construction": _construction,
    "sum": _sum,
    "closed": _closed,
    "product of terms": _of_product,
    "as product": _as_product,
    "common factors": _common,
    "multiply": _multiply,
    "times": _times,
    "function": _function,
    "named function": _named,
    "power": _power,
    "exponential": _elementwise(np.exp),
    "logarithm": _elementwise(np.log),
    "larger": _larger,
    "larger or none": _larger,
    "largest of terms": _larger_of_terms,
    "largest exponent": _largest_exponent,
    "largest": _largest,
    "larger integer": _elementwise(np.maximum),
    "choice": _choice,
    "comparison": _comparison,
    "count": _count,
    "cases": _cases,
    "cases or none": _cases,
    "equality": _equality,
    "division": _division,
    "place": _place,
}
#: Kinds of which the steps within are claims of their own: what they do is to call rules.
MADE_OF_OTHERS: Final = frozenset(("acted", "act by cases", "step comparison", "value"))


def roots(given: Any, made: Any) -> Iterator[Kernel]:
    """The kernels that a claim speaks of."""
    for each in (given, made):
        if isinstance(each, Kernel):
            yield each
        elif isinstance(each, State):
            yield from each.kernels()
        elif isinstance(each, tuple | list):
            for inner in each:
                yield from roots(inner, None)
