"""Unification: a kernel of an implementation as a window onto a kernel of the specification.

Maximal domains make most shards meet by themselves.  Where a shard is one index thick (one head, one expert a rank) or shared (fewer KV heads
than ranks) the missing digit leaves no trace in the shard, and only the specification's kernel says which label it belongs to: then an affine
embedding of the shard's digits into the labels is solved for, factor by factor.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from graphguard.relations.kernels import UNBOUNDED, Digits, Kernel, Ref, Universe
from graphguard.relations.windows import joined

if TYPE_CHECKING:
    from graphguard.relations.building import Part

_TRIES: Final = 400  # assignments of factors to parts that are looked at for one kernel
_Solution = dict[int, tuple[int, tuple[tuple[int, int], ...]]]  # label -> constant and (digit, coefficient)


def matched(
    universe: Universe,
    kind: str,
    attributes: tuple[Hashable, ...],
    parts: list[Part],
    sizes: list[int],
    dims: list[list[int]],
    reduced: set[int],
    core: dict[int, Hashable],
) -> Ref | None:
    """A window onto one of the specification's kernels that equals the kernel of these parts, or None."""
    name = (kind, attributes, tuple(sorted((part.kernel.id, part.payload) for part in parts)))
    for kernel in universe.skeletons.get(name, ()):
        search = _Search(kernel, parts, sizes, reduced)
        solution = search.run()
        if solution is None:
            continue
        found = _reference(kernel, solution, sizes, dims, reduced, core)
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
        self.pending: list[tuple[list[tuple[int, int]], list[tuple[int, int]], int]] = []

    def run(self) -> _Solution | None:
        return self._assign(0, {})

    def _assign(self, index: int, labels: _Solution) -> _Solution | None:
        if index == len(self.kernel.factors):
            return labels if all(self._agrees(row, labels) for row in self.pending) else None
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
        return None

    def _fit(self, index: int, number: int, labels: _Solution) -> bool:
        """Solve, axis by axis, for the labels at which the factor is the part."""
        factor, part = self.kernel.factors[index], self.parts[number]
        for axis, wanted in enumerate(self.wanted[index]):
            distance = part.offsets[axis] - factor[3][axis]
            given = self.given[number][axis]
            if len(wanted) > 1 and factor[0].shape[axis] == UNBOUNDED:
                self.pending.append((wanted, given, distance))
            elif not self._solve(wanted, given, distance, labels):
                return False
        return True

    @staticmethod
    def _agrees(row: tuple[list[tuple[int, int]], list[tuple[int, int]], int], labels: _Solution) -> bool:
        """Whether several labels along one unbounded axis, solved for elsewhere, add up to what the part has there."""
        wanted, given, distance = row
        total: dict[int, int] = {}
        for stride, label in wanted:
            if label not in labels:
                return False
            constant, share = labels[label]
            distance -= stride * constant
            for digit, coefficient in share:
                total[digit] = total.get(digit, 0) + stride * coefficient
        for step, digit in given:
            total[digit] = total.get(digit, 0) - step
        return distance == 0 and not any(total.values())

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
    if window is None or not _core_fits(kernel, labels, sizes, window, core):
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
        for digit, coefficient in sorted(share, key=lambda pair: pair[1]):
            if coefficient != size:
                return None
            size *= sizes[digit]
        out.append((constant, constant + size))
    return tuple(out)


def _core_fits(kernel: Kernel, labels: _Solution, sizes: list[int], window: Any, core: dict[int, Hashable]) -> bool:
    """A digit that a closed function sees whole must be the whole of the label of the same name."""
    if len(kernel.core) != len(core):
        return False
    extents = (*kernel.shape, *kernel.reduced)
    by_name = {name: digit for digit, name in core.items()}
    for label, name in kernel.core.items():
        digit = by_name.get(name)
        if digit is None or sizes[digit] != extents[label]:
            return False
        if label >= len(kernel.shape):
            if window[label - len(kernel.shape)] != (0, extents[label]):
                return False
        elif labels[label] != (0, ((digit, 1),)) and extents[label] != 1:
            return False
    return True
