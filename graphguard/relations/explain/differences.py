"""Where two values that should be one look: the same computation, of other elements.

One element of each is followed down into its kernels.  As long as both compute the same way, only what they read can differ: a row of a leaf, a position, a bound of a sum.
What is found explains a difference; it proves nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from graphguard.relations.functions.piecewise import difference
from graphguard.relations.prove.points import coordinates
from graphguard.relations.terms.kernels import UNBOUNDED, Kernel, Universe, Window
from graphguard.relations.terms.values import NormalValue

_READ: Final = frozenset(("leaf", "iota", "literal"))  # kernels that are read and not computed
_ELEMENTS: Final = 512  # that are looked at for one whose parts differ
_PARTS: Final = 2000  # kernels that are followed
_ENDLESS: Final = UNBOUNDED // 4  # a bound beyond it is none


_Numbers = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Place:
    """An element of a leaf, or a position where ``leaf`` is empty; None stands for every place along an axis.

    ``summands`` are those of a sum instead, half open; ``numbers`` those that a comparison admits, half open as well, None for an end that is none.
    """

    leaf: str = ""
    at: tuple[int | None, ...] = ()
    summands: tuple[int, int] | None = None
    numbers: _Numbers | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """What is read, and what should be."""

    found: Place
    needed: Place


@dataclass(frozen=True, slots=True)
class Difference:
    """An element of a value that differs, and all that it reads instead of something else."""

    index: tuple[int, ...]
    reads: tuple[Read, ...]


class _Unlike(Exception):  # noqa: N818 - no error: the computations differ
    """Two kernels that compute in different ways."""


def differing_reads(
    universe: Universe, found: NormalValue, meant: NormalValue, since: tuple[int, ...] = ()
) -> Difference | None:
    """What the first element that differs reads otherwise; None where the two do not compute alike, or nothing differs.

    Elements before ``since`` are known to be equal, whatever their forms.
    Raises what subtraction raises.
    """
    if found.shape != meant.shape or found.kind != meant.kind:
        return None
    unlike = (index for index in _differing(difference(universe, found, meant)) if index >= since)
    for index in itertools.islice(unlike, _ELEMENTS):
        mine, theirs = _element(found, index), _element(meant, index)
        if Counter(mine) != Counter(theirs):
            walk = _Walk()
            try:
                walk.sums(mine, theirs)
            except _Unlike:
                return None
            reads = tuple(read for read in dict.fromkeys(walk.reads) if read.found != read.needed)
            if reads:
                return Difference(index, reads)
    return None


def _differing(rest: NormalValue) -> Iterator[tuple[int, ...]]:
    """The elements of the pieces that are not nothing, in order within each."""
    for box, terms in sorted(rest.pieces, key=lambda piece: piece[0]):
        for place in itertools.product(*(range(low, high) for low, high in box)) if terms else ():
            cells = iter(place)
            yield tuple(_flat([next(cells) for _ in digits], digits) for digits in rest.grid)


@dataclass(frozen=True, slots=True)
class _Part:
    """A kernel at one place; ``spread`` are the axes along which all that a sum adds up is read."""

    payload: Hashable
    kernel: Kernel
    at: tuple[int, ...]
    window: Window
    spread: frozenset[int] = frozenset()


class _Walk:
    """Two computations, followed in step."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self._left = _PARTS

    def sums(self, mine: Sequence[_Part], theirs: Sequence[_Part]) -> None:
        """Parts whose order says nothing: those that both have count for nothing, the others are compared like with like."""
        common = Counter(mine) & Counter(theirs)
        pairs = [sorted((Counter(parts) - common).elements(), key=_sort) for parts in (mine, theirs)]
        if len(pairs[0]) != len(pairs[1]):
            raise _Unlike
        for a, b in zip(*pairs, strict=True):
            self.kernels(a, b)

    def kernels(self, mine: _Part, theirs: _Part) -> None:
        """One part beside the other."""
        self._left -= 1
        a, b = mine.kernel, theirs.kernel
        if self._left < 0 or _sort(mine) != _sort(theirs) or mine.payload != theirs.payload:
            raise _Unlike
        if a.kind in _READ:
            self.reads.append(Read(_place(mine), _place(theirs)))
            return
        if a.attributes != b.attributes or len(mine.window) != len(theirs.window) or not a.factors:
            raise _Unlike
        admitted = _admitted(mine), _admitted(theirs)
        if mine.window != theirs.window or admitted[0] != admitted[1]:
            pairs = zip(_ends(mine, admitted[0]), _ends(theirs, admitted[1]), strict=True)
            self.reads += [Read(found, needed) for found, needed in pairs]
            return
        if a.kind == "onehot" and mine.at[-1] != theirs.at[-1]:
            self.reads.append(Read(Place("", mine.at[-1:]), Place("", theirs.at[-1:])))
        self.sums(list(_parts(mine)), list(_parts(theirs)))


def _sort(part: _Part) -> tuple[str, str, int, str]:
    """What parts that compute alike have in common; a leaf may stand in for another."""
    kernel = part.kernel
    return kernel.kind, "" if kernel.kind in _READ else kernel.name, len(kernel.factors), kernel.type


def _place(part: _Part) -> Place:
    at = tuple(None if axis in part.spread else at for axis, at in enumerate(part.at))
    if part.kernel.kind == "iota":
        return Place("", at)
    return Place("a table" if part.kernel.kind == "literal" else part.kernel.name, at)


def _parts(part: _Part) -> Iterator[_Part]:
    """The factors of a kernel at its place; what it sums over starts at the window's first place."""
    free = len(part.kernel.shape)
    for kernel, payload, window, base, steps in part.kernel.factors:
        at, spread = list(base), set()
        for axis, label, stride in steps:
            if label < free:
                at[axis] += part.at[label] * stride
                if label in part.spread:
                    spread.add(axis)
            else:
                at[axis] += part.window[label - free][0] * stride
                spread.add(axis)
        yield _Part(payload, kernel, tuple(at), window, frozenset(spread))


def _admitted(part: _Part) -> dict[int, _Numbers]:
    """The numbers that a sum over the columns of a one-hot lets through, as ``i <= j`` does, by the place of that sum."""
    free = len(part.kernel.shape)
    found: dict[int, _Numbers] = {}
    for kernel, _, _, base, steps in part.kernel.factors:
        last = len(kernel.shape) - 1
        columns = [(label, stride) for axis, label, stride in steps if axis == last]
        summed = [(label - free, stride) for label, stride in columns if label >= free]
        if kernel.kind != "onehot" or len(summed) != 1 or abs(summed[0][1]) != 1:
            continue
        (place, sign), start = (
            summed[0],
            base[last] + sum(part.at[label] * way for label, way in columns if label < free),
        )
        low, high = sorted(start + at * sign for at in (part.window[place][0], part.window[place][1] - 1))
        found[place] = (None if low < -_ENDLESS else low), (None if high >= _ENDLESS else high + 1)
    return found


def _ends(part: _Part, admitted: dict[int, _Numbers]) -> list[Place]:
    """The bounds of the sums of a part."""
    windows = enumerate(part.window)
    return [Place(numbers=admitted[at]) if at in admitted else Place(summands=window) for at, window in windows]


def _element(value: NormalValue, index: tuple[int, ...]) -> list[_Part]:
    """The terms of one element."""
    place = [cell for at, digits in zip(index, value.grid, strict=True) for cell in _digits(at, digits)]
    for box, terms in value.pieces:
        if all(low <= cell < high for cell, (low, high) in zip(place, box, strict=True)):
            inner = tuple(cell - low for cell, (low, _) in zip(place, box, strict=True))
            return [_Part(coefficient, ref[0], coordinates(ref, inner), ref[3]) for coefficient, ref in terms]
    raise _Unlike


def _flat(cells: Sequence[int], digits: Sequence[int]) -> int:
    place = 0
    for cell, size in zip(cells, digits, strict=True):
        place = place * size + cell
    return place


def _digits(place: int, digits: Sequence[int]) -> list[int]:
    out = []
    for size in reversed(digits):
        place, cell = divmod(place, size)
        out.append(cell)
    return out[::-1]
