"""Index equalities inside products: one-hots and deltas under a sum are solved instead of kept.

``sum over v of onehot(e)[v] * t[v]`` is a look-up, ``sum over v in [a, b) of onehot(e)[v]`` is the mask ``a <= e < b``, and a
product of two one-hots of the same index says that their coordinates are equal.  Where a coordinate is a summed digit that equality is
solved for it, exactly, whatever the windows are; where it is not, the factors stay.
"""

from __future__ import annotations

from typing import Final

from graphguard.relations.rewrite.rule import Outcome, rule
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import UNBOUNDED, Expression
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.permutations import known_range, line_of, permuted

_BLOCKS: Final = 64  # blocks that are looked at one by one
_Affine = tuple[int, tuple[tuple[int, int], ...]]  # constant, (digit, coefficient)


@rule(
    "delta",
    "selections",
    "`sum over j of [i = j] f(j)` = `f(i)`",
    "`torch.eye(6) @ w` = `w`",
    "product",
)
def solve_equations(product: Product) -> Outcome:
    """Solve an equation of positions for a summed digit."""
    for part in _selecting(product):
        if part.kernel.kind != "onehot":
            outcome = _solve(product, part, (part.offsets[0], [(d, s) for _, d, s in part.expressions]))
            if outcome is not Outcome.SAME:
                return outcome
    return Outcome.SAME


@rule(
    "look-up",
    "selections",
    "`sum over v of onehot(e)[v] t[v]` = `t[e]`; `onehot(e)[u] onehot(e)[v]` = `onehot(e)[u] [u = v]`",
    "`F.one_hot(ids, 8).float() @ t` = `t[ids]`",
    "product",
)
def meet_one_hots(product: Product) -> Outcome:
    """Two one-hots of one index say that their columns are equal, and of a permutation that their rows are."""
    hots = [part for part in _selecting(product) if part.kernel.kind == "onehot"]
    for index, first in enumerate(hots):
        for second in hots[index + 1 :]:
            if first.kernel is not second.kernel:
                continue
            if _row(first) == _row(second):
                outcome = _equate(product, first, second, len(first.kernel.shape) - 1)
            else:
                outcome = _equate_rows(product, first, second)
            if outcome is not Outcome.SAME:
                return outcome
    return Outcome.SAME


@rule(
    "range",
    "selections",
    "`sum over v in [a, b) of onehot(e)[v]` = `[a <= e < b]`, which is 1 where e is known to lie there",
    "a vocabulary cut over ranks, masked and added = `t[ids]`",
    "product",
)
def sum_one_hots(product: Product) -> Outcome:
    """A one-hot that is summed over columns, or a permutation's over rows, is a mask on its index or 1."""
    for part in _selecting(product):
        if part.kernel.kind == "onehot":
            outcome = _mask(product, part)
            outcome = _whole_column(product, part) if outcome is Outcome.SAME else outcome
            if outcome is not Outcome.SAME:
                return outcome
    return Outcome.SAME


def _selecting(product: Product) -> list[Part]:
    return [part for part in product.parts if part.kernel.selects and part.payload == 1]


def _row(part: Part) -> tuple[object, ...]:
    """Which index a one-hot is of."""
    last = len(part.kernel.shape) - 1
    return (part.window, tuple(part.offsets[:-1]), tuple(sorted(step for step in part.expressions if step[0] != last)))


def _along(part: Part, axis: int) -> tuple[int, list[tuple[int, int]]]:
    """Where a part looks along an axis."""
    return part.offsets[axis], [(digit, stride) for at, digit, stride in part.expressions if at == axis]


def _but(part: Part, axis: int) -> tuple[object, ...]:
    """Where a part looks along all other axes."""
    others = (offset for at, offset in enumerate(part.offsets) if at != axis)
    return (part.window, tuple(others), tuple(sorted(step for step in part.expressions if step[0] != axis)))


def _equate_rows(product: Product, first: Part, second: Part) -> Outcome:
    """onehot(p)[i, v] * onehot(p)[j, v] is onehot(p)[i, v] where i = j, else 0, if p takes no value twice."""
    line = line_of(first.kernel.factors[0][0])
    if line is None or _but(first, line) != _but(second, line):
        return Outcome.SAME
    return _equate(product, first, second, line)


def _whole_column(product: Product, part: Part) -> Outcome:
    """The sum of onehot(p)[j, v] over all j is 1 for a permutation, at every v that it takes."""
    line = permuted(part.kernel.factors[0][0])
    if line is None:
        return Outcome.SAME
    extent = part.kernel.shape[line]
    _fuse(product, part, line)
    start, terms = _along(part, line)
    if len(terms) != 1 or abs(terms[0][1]) != 1 or terms[0][0] not in product.reduced:
        return Outcome.SAME
    digit, stride = terms[0]
    alone = sum(1 for other in product.parts for step in other.expressions if step[1] == digit) == 1
    if not alone or product.sizes[digit] != extent or start != (0 if stride > 0 else extent - 1):
        return Outcome.SAME
    column, steps = _along(part, len(part.kernel.shape) - 1)
    low = column + sum(min(0, step * (product.sizes[other] - 1)) for other, step in steps)
    high = column + sum(max(0, step * (product.sizes[other] - 1)) for other, step in steps)
    if low < 0 or high >= extent:
        return Outcome.SAME
    product.parts.remove(part)
    product.reduced.discard(digit)
    return Outcome.CHANGED


def _fuse(product: Product, part: Part, axis: int) -> None:
    """Summed digits that count along one axis of one part, side by side, are one digit."""
    steps = [(stride, digit) for digit, stride in _along(part, axis)[1]]
    if len(steps) < 2:
        return
    steps.sort()
    if steps[0][0] != 1:
        return
    moved = [digit for other in product.parts for _, digit, _ in other.expressions]
    size = 1
    for stride, digit in steps:
        if stride != size or digit not in product.reduced or moved.count(digit) != 1:
            return
        size *= product.sizes[digit]
    product.reduced -= {digit for _, digit in steps}
    product.reduced.add(len(product.sizes))
    kept = [step for step in part.expressions if step[0] != axis]
    part.expressions = [*kept, (axis, len(product.sizes), 1)]
    product.sizes.append(size)


def _equate(product: Product, first: Part, second: Part, axis: int) -> Outcome:
    """Two one-hots that look at the same but for one axis: the first where they look at the same place of it, else 0."""
    (a, left), (b, right) = _along(first, axis), _along(second, axis)
    total: dict[int, int] = {}
    for digit, stride in left:
        total[digit] = total.get(digit, 0) + stride
    for digit, stride in right:
        total[digit] = total.get(digit, 0) - stride
    difference = [(digit, stride) for digit, stride in total.items() if stride]
    if not difference:
        if a != b:
            return Outcome.ZERO
        product.parts.remove(second)
        return Outcome.CHANGED
    outcome = _solve(product, second, (a - b, difference))
    if outcome is Outcome.SAME:
        outcome = _solve(product, first, (a - b, difference))
    return outcome


def _solve(product: Product, redundant: Part, equation: tuple[int, list[tuple[int, int]]]) -> Outcome:
    """Solve ``constant + sum = 0`` for a summed digit and drop the factor that said so."""
    constant, terms = equation
    if not terms:
        if constant:
            return Outcome.ZERO
        product.parts.remove(redundant)
        return Outcome.CHANGED
    if not _may_vanish(product, constant, terms):
        return Outcome.ZERO
    if _split(product, redundant, constant, terms) or _separate(product, redundant, constant, terms):
        return Outcome.CHANGED
    later: tuple[int, _Affine] | None = None
    for digit, stride in terms:
        if digit not in product.reduced or abs(stride) != 1:
            continue
        rest = tuple((other, -step * stride) for other, step in terms if other != digit)
        solution = (-constant * stride, rest)
        low = solution[0] + sum(min(0, c * (product.sizes[d] - 1)) for d, c in rest)
        high = solution[0] + sum(max(0, c * (product.sizes[d] - 1)) for d, c in rest)
        if low >= product.sizes[digit] or high < 0:
            return Outcome.ZERO
        if low >= 0 and high < product.sizes[digit]:
            _substitute(product, redundant, digit, solution)
            return Outcome.CHANGED
        if len(rest) == 1 and abs(rest[0][1]) == 1 and rest[0][0] in product.reduced:
            later = (digit, solution)
        elif len(rest) > 1:
            outcome = _solve_blocks(product, redundant, digit, solution)
            if outcome is not Outcome.SAME:
                return outcome
    if later is None:
        return Outcome.SAME
    digit, (base, ((other, sign),)) = later
    size = product.sizes[digit]
    low, high = (-base, size - base) if sign > 0 else (base - size + 1, base + 1)
    low, high = max(low, 0), min(high, product.sizes[other])
    if low >= high:
        return Outcome.ZERO
    _narrow(product, other, low, high)
    _substitute(product, redundant, digit, (base + sign * low, ((other, sign),)))
    return Outcome.CHANGED


def _split(product: Product, redundant: Part, constant: int, terms: list[tuple[int, int]]) -> bool:
    """Solve for summed digits that together count what one digit of the result counts: it is divided into them."""
    kept = [(digit, stride) for digit, stride in terms if digit not in product.reduced]
    if len(terms) < 3 or constant or len(kept) != 1 or abs(kept[0][1]) != 1:
        return False
    whole, sign = kept[0]
    radix = sorted([(-stride * sign, digit) for digit, stride in terms if digit != whole])
    size = 1
    for stride, digit in radix:
        if stride != size:
            return False
        size *= product.sizes[digit]
    if size != product.sizes[whole]:
        return False
    product.parts.remove(redundant)
    inner = [digit for _, digit in reversed(radix)]
    product.reduced -= set(inner)
    product.dims = [[part for digit in row for part in (inner if digit == whole else [digit])] for row in product.dims]
    for part in product.parts:
        total: dict[tuple[int, int], int] = {}
        for axis, digit, stride in part.expressions:
            for step, other in radix if digit == whole else [(1, digit)]:
                total[axis, other] = total.get((axis, other), 0) + stride * step
        part.expressions = [(axis, digit, stride) for (axis, digit), stride in total.items() if stride]
    return True


def _separate(product: Product, redundant: Part, constant: int, terms: list[tuple[int, int]]) -> bool:
    """Solve in mixed radix: ``m a + b = 0`` with ``-m < b < m`` says that a and b are both 0."""
    for radix in sorted({abs(stride) for _, stride in terms} - {1}):
        outer = [(digit, stride // radix) for digit, stride in terms if stride % radix == 0]
        inner = [(digit, stride) for digit, stride in terms if stride % radix]
        low = sum(min(0, stride * (product.sizes[digit] - 1)) for digit, stride in inner)
        high = sum(max(0, stride * (product.sizes[digit] - 1)) for digit, stride in inner)
        if constant % radix or low <= -radix or high >= radix:
            continue
        if all(any(abs(s) == 1 and d in product.reduced for d, s in side) for side in (outer, inner)):
            product.parts.remove(redundant)
            product.parts += [_delta(product, constant // radix, outer), _delta(product, 0, inner)]
            return True
    return False


def _delta(product: Product, constant: int, terms: list[tuple[int, int]]) -> Part:
    """[constant + sum of stride * digit == 0]."""
    universe = product.universe
    kernel = universe.function("eq0", (), 1, universe.iota, ())
    kernel.truth, kernel.type = True, "bool"
    return Part(kernel, 1, (), [constant], [(0, digit, stride) for digit, stride in terms])


def _solve_blocks(product: Product, redundant: Part, digit: int, solution: _Affine) -> Outcome:
    """Solve where the window of a digit is made of whole blocks of what it must equal: an outer digit is narrowed to those blocks."""
    base, rest = solution
    size = product.sizes[digit]
    for outer, step in rest:
        count = product.sizes[outer]
        others = [(d, c) for d, c in rest if d != outer]
        low = base + sum(min(0, c * (product.sizes[d] - 1)) for d, c in others)
        high = base + sum(max(0, c * (product.sizes[d] - 1)) for d, c in others)
        if outer not in product.reduced or count > _BLOCKS or high - low >= abs(step):
            continue
        inside = [k for k in range(count) if low + step * k >= 0 and high + step * k < size]
        touching = [k for k in range(count) if high + step * k >= 0 and low + step * k < size]
        if inside != touching:
            continue
        if not inside:
            return Outcome.ZERO
        first = inside[0]
        _narrow(product, outer, first, inside[-1] + 1)
        _substitute(product, redundant, digit, (base + step * first, rest))
        return Outcome.CHANGED
    return Outcome.SAME


def _may_vanish(product: Product, constant: int, terms: list[tuple[int, int]]) -> bool:
    """Whether ``constant + sum of stride * digit`` may be 0."""
    low = constant + sum(min(0, stride * (product.sizes[digit] - 1)) for digit, stride in terms)
    high = constant + sum(max(0, stride * (product.sizes[digit] - 1)) for digit, stride in terms)
    return low <= 0 <= high


def _narrow(product: Product, digit: int, low: int, high: int) -> None:
    for part in product.parts:
        for axis, other, stride in part.expressions:
            if other == digit:
                part.offsets[axis] += stride * low
    product.sizes[digit] = high - low


def _substitute(product: Product, redundant: Part, digit: int, solution: _Affine) -> None:
    constant, terms = solution
    product.parts.remove(redundant)
    product.reduced.discard(digit)
    for part in product.parts:
        strides = [(axis, stride) for axis, other, stride in part.expressions if other == digit]
        if not strides:
            continue
        total: dict[tuple[int, int], int] = {}
        for axis, other, stride in part.expressions:
            if other != digit:
                total[axis, other] = total.get((axis, other), 0) + stride
        for axis, stride in strides:
            part.offsets[axis] += stride * constant
            for other, coefficient in terms:
                total[axis, other] = total.get((axis, other), 0) + stride * coefficient
        part.expressions = [(axis, other, stride) for (axis, other), stride in total.items() if stride]


def _mask(product: Product, part: Part) -> Outcome:
    """A window of a one-hot that nothing else looks at: clip it to the index's known range; the whole of it is 1."""
    _fuse(product, part, len(part.kernel.shape) - 1)
    start, terms = _along(part, len(part.kernel.shape) - 1)
    if len(terms) != 1 or abs(terms[0][1]) != 1 or terms[0][0] not in product.reduced:
        return Outcome.SAME
    digit, stride = terms[0]
    if sum(1 for other in product.parts for step in other.expressions if step[1] == digit) != 1:
        return Outcome.SAME
    size = product.sizes[digit]
    low = start if stride > 0 else start - size + 1
    high = low + size
    bounds = known_range(part.kernel.factors[0][0]) or (-UNBOUNDED // 2, UNBOUNDED // 2)
    if high <= bounds[0] or low >= bounds[1]:
        return Outcome.ZERO
    if low <= bounds[0] and high >= bounds[1]:
        product.parts.remove(part)
        product.reduced.discard(digit)
        return Outcome.CHANGED
    new_low, new_high = max(low, bounds[0]), min(high, bounds[1])
    if (new_low, new_high) == (low, high) and stride > 0:
        return Outcome.SAME
    last = len(part.kernel.shape) - 1
    steps: list[Expression] = [step for step in part.expressions if step[0] != last]
    part.offsets[last] = new_low
    part.expressions = [*steps, (last, digit, 1)]
    product.sizes[digit] = new_high - new_low
    return Outcome.CHANGED
