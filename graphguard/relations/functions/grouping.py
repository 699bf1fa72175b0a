"""Groups of a sorted line: where elements that are counted begin and end once they are sorted.

``ends[g]`` counts the elements e of a line up to ``first + g``, and none is smaller than ``first``.  In the sorted line ``e[p[0]] <= e[p[1]] <= ...`` they come first, so place
t lies in ``ends[g - 1] <= t < ends[g]`` exactly if its element is ``first + g``: ``sum over v of onehot(p)[t, v] * onehot(e)[v, first + g]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import Digits, Expression, Factor, Kernel, Ref, Universe, Window
from graphguard.relations.terms.orientation import is_step
from graphguard.relations.terms.permutations import known_range
from graphguard.relations.terms.values import NormalValue, single


@dataclass(frozen=True, slots=True)
class _Count:
    """How many elements of a line there are up to ``first + g``; ``hot`` is the factor onehot(e), all of whose rows are counted."""

    hot: Factor
    first: int

    @property
    def line(self) -> Kernel:
        """The elements."""
        kernel: Kernel = self.hot[0].factors[0][0]
        return kernel


@rule(
    "groups",
    "permutations",
    "running counts of keys say which rows a group has",
    "`grouped_mm` over sorted tokens = a sum over experts",
    "value",
)
def groups(universe: Universe, ends: NormalValue, extent: int) -> NormalValue | None:
    """[ends[g - 1] <= t < ends[g]], shape (extent, groups), for running counts of a line that is sorted somewhere; None for any others."""
    if not universe.orders or len(ends.shape) != 1 or len(ends.pieces) != 1 or len(ends.pieces[0][1]) != 1:
        return None
    coefficient, ref = ends.pieces[0][1][0]
    count = _count_of(ref, ends.shape[0]) if coefficient == 1 else None
    if count is None or prod(count.line.shape) != extent:
        return None
    for order in universe.orders:
        strides = _strides(order, count)
        if strides is not None:
            return _members(universe, count, order, strides, (extent, ends.shape[0]))
    return None


def _count_of(ref: Ref, number: int) -> _Count | None:
    """A running count read at g = 0, 1, ..., number - 1, if it counts a whole line of which no element is below the first group's."""
    kernel, offsets, dims, window = ref
    hots = [factor for factor in kernel.factors if factor[0].kind == "onehot"]
    masks = [factor for factor in kernel.factors if is_step(factor[0])]
    plain = kernel.kind == "product" and all(factor[1] == 1 for factor in kernel.factors)
    if not plain or len(hots) != 1 or len(hots) + len(masks) != len(kernel.factors):
        return None
    free, column = len(kernel.shape), len(hots[0][0].shape) - 1
    known, across = known_range(hots[0][0].factors[0][0]), _moved_by(hots[0], column, free)
    if known is None or across is None or not _counts_all(kernel, hots[0], window):
        return None
    label, turn = across
    start, (low, high) = hots[0][3][column], window[label - free]
    low, high = (start + low, start + high) if turn > 0 else (start - high + 1, start - low + 1)
    if not masks and not kernel.shape and number == 1 and high == low + 1:
        first: int | None = low
    elif len(masks) == 1 and free == 1:
        first = _first(masks[0], (label, turn), start, (offsets[0], dims[0]), number)
    else:
        return None
    if first is None or not low <= first <= known[0] or high < min(first + number, known[1]):
        return None
    return _Count(hots[0], first)


def _first(mask: Factor, column: tuple[int, int], start: int, place: tuple[int, Digits], number: int) -> int | None:
    """The element up to which the first group counts, of a mask that holds where an element is at most that and g more."""
    label, turn = column
    steps = {other: stride for _, other, stride in mask[4]}
    (origin, digits), along = place, steps.get(0)
    if steps.keys() != {0, label} or len(mask[4]) != 2 or steps[label] * turn != -1 or along is None:
        return None
    if number != 1 and (len(digits) != 1 or digits[0][0] != 0 or digits[0][1] * along != 1 or abs(along) != 1):
        return None
    return start + mask[3][0] + along * origin - 1


def _counts_all(kernel: Kernel, hot: Factor, window: Window) -> bool:
    """Whether every axis of the elements is summed from end to end, each by a label of its own."""
    free = len(kernel.shape)
    labels = []
    for axis, size in enumerate(hot[0].shape[:-1]):
        moved = _moved_by(hot, axis, free)
        if moved is None or moved[1] != 1 or hot[3][axis] or window[moved[0] - free] != (0, size):
            return False
        labels.append(moved[0])
    touched = [label for factor in kernel.factors for _, label, _ in factor[4]]
    return all(touched.count(label) == 1 for label in labels) and len(kernel.reduced) == len(labels) + 1


def _moved_by(factor: Factor, axis: int, free: int) -> tuple[int, int] | None:
    """The one summed label that moves a factor along an axis step by step, and which way."""
    steps = [(label, stride) for at, label, stride in factor[4] if at == axis]
    return steps[0] if len(steps) == 1 and abs(steps[0][1]) == 1 and steps[0][0] >= free else None


def _strides(order: Kernel, count: _Count) -> list[int] | None:
    """How far apart neighbours along every axis of the elements lie in the line that was sorted, if the line is all of them, in rising order."""
    line, inside = count.line, count.hot[0].factors[0][2]
    if order.attributes[:2] != ("argsort", ("False",)) or len(order.factors) != 1 or len(order.shape) != 1:
        return None
    kernel, payload, window, offsets, steps = order.factors[0]
    if kernel is not line or payload != (0, 1) or window != inside or any(offsets):
        return None
    places = {label: mark for label, mark in order.core.items() if isinstance(mark, tuple) and mark[0] == "A"}
    by_axis = {axis: label for axis, label, stride in steps if stride == 1 and label in places}
    if len(by_axis) != len(line.shape) or len(steps) != len(line.shape) or len(places) != len(line.shape):
        return None
    sizes = [line.shape[axis] for axis, _ in sorted(by_axis.items(), key=lambda pair: places[pair[1]][1])]
    below = [*accumulate(reversed(sizes[1:]), lambda a, b: a * b, initial=1)][::-1]
    ranked = sorted(by_axis, key=lambda axis: places[by_axis[axis]][1])
    if prod(sizes) != order.shape[0] or any(places[by_axis[axis]][2] != line.shape[axis] for axis in ranked):
        return None
    return [below[ranked.index(axis)] for axis in range(len(line.shape))]


def _members(
    universe: Universe, count: _Count, order: Kernel, strides: list[int], shape: tuple[int, int]
) -> NormalValue:
    rows = range(2, 2 + len(strides))
    product = Product(universe, [*shape, *count.line.shape], [[0], [1]], set(rows))
    window: Window = tuple((0, size) for size in order.reduced)
    down: list[Expression] = [(1, digit, stride) for digit, stride in zip(rows, strides, strict=True)]
    product.push(universe.one_hot(order, window), 1, (), [0, 0], [(0, 0, 1), *down])
    own: list[Expression] = [(axis, digit, 1) for axis, digit in enumerate(rows)]
    product.push(count.hot[0], 1, (), [*(0 for _ in rows), count.first], [*own, (len(strides), 1, 1)])
    coefficient, ref = product.finish()
    return single(shape, "float", ((coefficient, ref),) if coefficient else ())
