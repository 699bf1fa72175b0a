"""Unification: a kernel of an implementation as a window onto a kernel of the specification.

Maximal domains make most shards meet by themselves.  Where a shard is one index thick (one head, one expert a rank) or shared (fewer KV heads
than ranks) the missing digit leaves no trace in the shard, and only the specification's kernel says which label it belongs to: then an affine
embedding of the shard's digits into the labels is solved for, factor by factor.  A mask on positions that is 1 throughout a shard leaves no trace
either: the specification's kernel may have it as one more factor if it is 1 wherever the shard looks.  An equation that can be solved throughout a shard
(see ``equations``) is put back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

from graphguard.ir.fuel import look
from graphguard.relations.terms.equations import equations, unsolved
from graphguard.relations.terms.kernels import UNBOUNDED, Alike, Digits, Factor, Kernel, Ref, Universe
from graphguard.relations.terms.orientation import is_delta, is_step
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import joined

_TRIES: Final = 400  # assignments of factors to parts that are looked at for one kernel
_ABSENT: Final = 3  # masks that a shard may lack
_Solution = dict[int, tuple[int, tuple[tuple[int, int], ...]]]  # label -> constant and (digit, coefficient)


def skeleton(kind: str, attributes: tuple[Hashable, ...], factors: Iterable[tuple[Kernel, Hashable]]) -> Hashable:
    """What two kernels must share for one to be a window onto the other."""
    return (kind, attributes, tuple(sorted([(kernel.id, payload) for kernel, payload in factors])))


def offer(universe: Universe, kernel: Kernel, alike: Alike) -> None:
    """Let kernels of implementations be matched against this one of the specification, with all of its masks on positions or without some; ``alike`` are those with its skeleton."""
    alike.whole.append(kernel)
    masks = [place for place, factor in enumerate(kernel.factors) if factor[0].placed and _is_mask(factor)]
    if not masks and not kernel.reduced:
        return
    pairs = [(factor[0], factor[1]) for factor in kernel.factors]
    names = set()
    for count in range(1, min(len(masks), _ABSENT) + 1):
        for absent in combinations(masks, count):
            left = [pair for place, pair in enumerate(pairs) if place not in absent]
            names.add(skeleton(kernel.kind, kernel.attributes, left))
    for name in names:
        universe.alike(name).whole.append(kernel)
    if kernel.reduced:
        ties = equations(kernel)[:_ABSENT]
        for count in range(1, len(ties) + 1):
            left = [pair for place, pair in enumerate(pairs) if place not in ties[:count]]
            universe.alike(skeleton(kernel.kind, kernel.attributes, left)).solved.append(kernel)


def _is_mask(factor: Factor) -> bool:
    return is_step(factor[0]) and factor[1] == 1


def matched(
    alike: Alike,
    parts: list[Part],
    sizes: list[int],
    dims: list[list[int]],
    reduced: set[int],
    core: dict[int, Hashable],
) -> Ref | None:
    """A window onto one of the specification's kernels that equals the kernel of these parts, or None."""
    for kernel in alike.whole:
        search = _Search(kernel, parts, sizes, reduced)
        solution = search.run()
        if solution is None:
            continue
        found = _reference(kernel, _with_new_dims(kernel, solution, sizes, core), sizes, dims, reduced, core)
        if found is not None:
            return found
    for kernel in alike.solved:
        for tied, extents, summed in unsolved(kernel, parts, sizes, reduced):
            solution = _Search(kernel, tied, extents, summed).run()
            found = None if solution is None else _reference(kernel, solution, extents, dims, summed, core)
            if found is not None:
                return found
    return None


def _with_new_dims(kernel: Kernel, labels: _Solution, sizes: list[int], core: dict[int, Hashable]) -> _Solution:
    """The dims that a closed function makes by itself: no factor moves along them, only their names say which is which."""
    new = {label: name for label, name in kernel.core.items() if label not in labels}
    if not new:
        return labels
    digits = {name: digit for digit, name in core.items()}
    found = dict(labels)
    for label, name in new.items():
        digit = digits.get(name)
        if digit is not None:
            found[label] = (0, ((digit, 1),) if sizes[digit] > 1 else ())
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """An axis where labels overlap: labels times strides from one offset must be digits times strides from another; ``even``: or minus that."""

    wanted: list[tuple[int, int]]
    given: list[tuple[int, int]]
    start: int
    offset: int
    even: bool

    def turned(self) -> _Row:
        """The same axis read backwards."""
        return _Row(self.wanted, [(-step, digit) for step, digit in self.given], self.start, -self.offset, False)

    def unknown(self, labels: _Solution) -> list[tuple[int, int]]:
        """The labels that are not solved for yet."""
        return [(stride, label) for stride, label in self.wanted if label not in labels]

    def rest(self, labels: _Solution) -> tuple[int, dict[int, int]]:
        """What the labels that are not solved for must add up to: a constant, and coefficients of digits."""
        distance = self.offset - self.start
        total: dict[int, int] = {}
        for step, digit in self.given:
            total[digit] = total.get(digit, 0) + step
        for stride, label in self.wanted:
            if label in labels:
                constant, share = labels[label]
                distance -= stride * constant
                for digit, coefficient in share:
                    total[digit] = total.get(digit, 0) - stride * coefficient
        return distance, {digit: step for digit, step in total.items() if step}


def _completed(labels: _Solution, pending: list[_Row]) -> _Solution | None:
    """The labels with those that only occur along axes where several overlap, if every such axis agrees."""
    if not pending:
        return labels
    row = min(pending, key=lambda row: len(row.unknown(labels)))
    unknown = row.unknown(labels)
    others = [other for other in pending if other is not row]
    for reading in (row, row.turned()) if row.even else (row,):
        distance, total = reading.rest(labels)
        more = labels
        if len(unknown) > 1:
            return None
        if unknown:
            stride, label = unknown[0]
            taken = {digit for _, share in labels.values() for digit, _ in share}
            if distance % stride or any(step % stride or digit in taken for digit, step in total.items()):
                continue
            share = tuple(sorted((digit, step // stride) for digit, step in total.items()))
            more = {**labels, label: (distance // stride, share)}
        elif distance or total:
            continue
        found = _completed(more, others)
        if found is not None:
            return found
    return None


class _Search:
    """Backtracking over which factor of the kernel is which part."""

    def __init__(self, kernel: Kernel, parts: list[Part], sizes: list[int], reduced: set[int]) -> None:
        self.kernel = kernel
        self.parts = parts
        self.sizes = sizes
        self.reduced = reduced
        self.extents = (*kernel.shape, *kernel.reduced)
        self.tries = 0
        self.used = [False] * len(parts)
        self.wanted = _wanted(kernel)
        self.given: list[list[list[tuple[int, int]]]] = []
        for part in parts:
            axes: list[list[tuple[int, int]]] = [[] for _ in part.kernel.shape]
            for axis, digit, stride in part.expressions:
                if sizes[digit] > 1:
                    axes[axis].append((stride, digit))
            self.given.append(axes)
        self.pending: list[_Row] = []
        self.absent: list[Factor] = []

    def run(self) -> _Solution | None:
        found = self._assign(0, {})
        look(1 + self.tries)
        return found

    def _assign(self, index: int, labels: _Solution) -> _Solution | None:
        if index == len(self.kernel.factors):
            solution = _completed(labels, self.pending)
            return solution if solution is not None and all(self._holds(f, solution) for f in self.absent) else None
        factor = self.kernel.factors[index]
        for number, part in enumerate(self.parts):
            if (
                self.used[number]
                or part.kernel is not factor[0]
                or part.payload != factor[1]
                or part.window != factor[2]
            ):
                continue
            self.tries += 1
            if self.tries > _TRIES:
                return None
            more = dict(labels)
            waiting = len(self.pending)
            if not self._fit(index, number, more):
                del self.pending[waiting:]
                continue
            self.used[number] = True
            result = self._assign(index + 1, more)
            if result is not None:
                return result
            self.used[number] = False
            del self.pending[waiting:]
        if not _is_mask(factor) or len(self.absent) == len(self.kernel.factors) - len(self.parts):
            return None
        self.absent.append(factor)
        result = self._assign(index + 1, labels)
        self.absent.pop()
        return result

    def _holds(self, mask: Factor, labels: _Solution) -> bool:
        """Whether a mask on positions is 1 wherever the parts look."""
        lowest, steps = mask[3][0], dict[int, int]()
        for _, label, stride in mask[4]:
            if label not in labels:
                return False
            constant, share = labels[label]
            lowest += stride * constant
            for digit, coefficient in share:
                steps[digit] = steps.get(digit, 0) + stride * coefficient
        return lowest + sum(min(0, step * (self.sizes[digit] - 1)) for digit, step in steps.items()) > 0

    def _fit(self, index: int, number: int, labels: _Solution) -> bool:
        """Solve, axis by axis, for the labels at which the factor is the part."""
        factor, part = self.kernel.factors[index], self.parts[number]
        for axis, wanted in enumerate(self.wanted[index]):
            given = self.given[number][axis]
            even = is_delta(factor[0])
            if even or (len(wanted) > 1 and (factor[0].shape[axis] == UNBOUNDED or _overlap(wanted, self.extents))):
                self.pending.append(_Row(wanted, given, factor[3][axis], part.offsets[axis], even))
            elif not self._solve(wanted, given, part.offsets[axis] - factor[3][axis], labels):
                return False
        return True

    def _solve(
        self, wanted: list[tuple[int, int]], given: list[tuple[int, int]], distance: int, labels: _Solution
    ) -> bool:
        if not wanted:
            return not distance and not given
        if len(wanted) == 1:
            stride, label = wanted[0]
            if distance % stride or any(step % stride for step, _ in given):
                return False
            return _put(
                labels, label, distance // stride, tuple(sorted((digit, step // stride) for step, digit in given))
            )
        return self._solve_radix(sorted(wanted, reverse=True), given, distance, labels)

    def _solve_radix(
        self, wanted: list[tuple[int, int]], given: list[tuple[int, int]], distance: int, labels: _Solution
    ) -> bool:
        if wanted[-1][0] <= 0:
            return False
        constants = []
        rest = distance
        for stride, _ in wanted:
            constants.append(rest // stride)
            rest %= stride
        if rest:
            return False
        shares: list[list[tuple[int, int]]] = [[] for _ in wanted]
        for step, digit in given:
            for place, (stride, _) in enumerate(wanted):
                if step % stride == 0 and (place == 0 or 0 < step < wanted[place - 1][0]):
                    shares[place].append((digit, step // stride))
                    break
            else:
                return False
        for place, (stride, label) in enumerate(wanted):
            limit = self.extents[label]
            if place:
                if wanted[place - 1][0] % stride:
                    return False
                limit = min(limit, wanted[place - 1][0] // stride)
            low = constants[place] + sum(min(0, c * (self.sizes[d] - 1)) for d, c in shares[place])
            high = constants[place] + sum(max(0, c * (self.sizes[d] - 1)) for d, c in shares[place])
            if low < 0 or high >= limit:
                return False
            if not _put(labels, label, constants[place], tuple(sorted(shares[place]))):
                return False
        return True


def _overlap(wanted: list[tuple[int, int]], extents: tuple[int, ...]) -> bool:
    """Whether several labels along one axis are no digits of it, as the place of a window and the place in a window are not."""
    steps = sorted(wanted)
    return any(stride * extents[label] > above for (stride, label), (above, _) in pairwise(steps))


def _wanted(kernel: Kernel) -> list[list[list[tuple[int, int]]]]:
    """For every factor and axis, the labels that move along it with their strides."""
    known = kernel.axes
    if known is None:
        known = kernel.axes = []
        for factor in kernel.factors:
            axes: list[list[tuple[int, int]]] = [[] for _ in factor[0].shape]
            for axis, label, stride in factor[4]:
                axes[axis].append((stride, label))
            known.append(axes)
    return known


def _put(labels: _Solution, label: int, constant: int, share: tuple[tuple[int, int], ...]) -> bool:
    known = labels.setdefault(label, (constant, share))
    return known == (constant, share)


def _reference(
    kernel: Kernel,
    labels: _Solution,
    sizes: list[int],
    dims: list[list[int]],
    reduced: set[int],
    core: dict[int, Hashable],
) -> Ref | None:
    extents = (*kernel.shape, *kernel.reduced)
    free = len(kernel.shape)
    where: dict[int, tuple[int, int]] = {}
    for label, size in enumerate(extents):
        if label not in labels:
            return None
        constant, share = labels[label]
        low = constant + sum(min(0, c * (sizes[d] - 1)) for d, c in share)
        high = constant + sum(max(0, c * (sizes[d] - 1)) for d, c in share)
        if size != UNBOUNDED and (low < 0 or high >= size):
            return None
        for digit, coefficient in share:
            if digit in where or (digit in reduced) != (label >= free):
                return None
            where[digit] = (label, coefficient)
    if any(sizes[digit] > 1 and digit not in where for digit in reduced):
        return None
    window = _window(kernel, labels, sizes)
    if window is None or not _core_fits(kernel, labels, sizes, core):
        return None
    out: list[Digits] = []
    for digits in dims:
        mine = [(*where.get(digit, (-1, 0)), sizes[digit]) for digit in digits if digit not in reduced]
        out.append(joined(mine))
    return (kernel, tuple(labels[label][0] for label in range(free)), tuple(out), window)


def _window(kernel: Kernel, labels: _Solution, sizes: list[int]) -> tuple[tuple[int, int], ...] | None:
    """The windows of the reduced labels; each must be covered without gaps, and none may be a mere slice."""
    out = []
    for label in range(len(kernel.shape), len(kernel.shape) + len(kernel.reduced)):
        constant, share = labels[label]
        size = 1
        for digit, coefficient in sorted(share, key=lambda pair: abs(pair[1])):
            if abs(coefficient) != size or (kernel.kind == "place" and coefficient < 0):
                return None
            constant += min(0, coefficient * (sizes[digit] - 1))
            size *= sizes[digit]
        out.append((constant, constant + size))
    return tuple(out)


def _core_fits(kernel: Kernel, labels: _Solution, sizes: list[int], core: dict[int, Hashable]) -> bool:
    """A digit that a closed function sees whole must be the whole of the label of the same name."""
    if len(kernel.core) != len(core):
        return False
    extents = (*kernel.shape, *kernel.reduced)
    by_name = {name: digit for digit, name in core.items()}
    for label, name in kernel.core.items():
        digit = by_name.get(name)
        if digit is None or sizes[digit] != extents[label]:
            return False
        if extents[label] != 1 and labels[label] != (0, ((digit, 1),)):
            return False
    return True
