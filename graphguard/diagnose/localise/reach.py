"""Which elements of inputs and parameters have come to a rank by the time that it computes something: what is needed there and rests on others cannot be meant there.

Asked of numbers: some elements of a leaf get other values, and both programs run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphguard.diagnose.localise.layouts import Laid, Layouts
from graphguard.diagnose.localise.numbers import Numbers, same
from graphguard.diagnose.localise.sites import Site
from graphguard.ir import Leaf, Var
from graphguard.relations.numbers import Array, Number

_CALLS: Final = 20_000  # that are run again at most, for all questions
_DIMS: Final = 2
_POSITIONS: Final = 32  # of a dim of an input that are asked for one by one


@dataclass(frozen=True, slots=True)
class Lack:
    """Elements of a leaf that a rank has not, and needs."""

    rank: int
    leaf: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Elements of a leaf, some positions of a dim, that a rank had, and needs later: ``node`` is the call that takes the others alone."""

    rank: int
    leaf: str
    dim: int
    positions: tuple[int, ...]
    node: int


@dataclass(frozen=True, slots=True)
class _Moved:
    """The tensors of both programs that rest on some elements of a leaf, with their values where these are others."""

    leaf: str
    block: tuple[slice, ...]
    spec: dict[Var, Array]
    ranks: tuple[frozenset[Var], ...]


@dataclass(slots=True)
class Reach:
    """The answers for one capture."""

    numbers: Numbers
    layouts: Layouts
    _moved: list[_Moved] | None = None

    def lack(self, site: Site, laid: Laid) -> Lack | None:
        """What a rank would need for a value at a site, and nothing has brought there; None where it has all, or where that is not known.

        How a sum is parted among ranks is free, so nothing is said of summands.
        """
        for moved, rank, var in self._rested_on(site, laid):
            if not self._has(rank, var, moved):
                return Lack(rank, moved.leaf)
        return None

    def lost(self, site: Site, laid: Laid) -> Lost | None:
        """What a rank would need for a value at a site and was given, but took no part of: the first call that leaves it out; None where there is none."""
        for moved, rank, var in self._rested_on(site, laid):
            node = None if var in moved.ranks[rank] else self._left_out_by(rank, var, moved.ranks[rank])
            if node is not None:
                part = moved.block[-1]
                return Lost(rank, moved.leaf, len(moved.block) - 1, tuple(range(part.start, part.stop)), node)
        return None

    def _rested_on(self, site: Site, laid: Laid) -> Iterator[tuple[_Moved, int, Var]]:
        """The elements of leaves that what is needed at a site rests on, rank by rank, with what the rank has there."""
        run = self.numbers.runs[0]
        for moved in () if laid.partial else self._all():
            other = moved.spec.get(laid.var)
            if other is None or other.shape != run.spec[laid.var].shape:
                continue
            for rank, var in site.tensors.items():
                before, after = (self._cut(value, laid, rank) for value in (run.spec[laid.var], other))
                if not same(before, after):
                    yield moved, rank, var

    def _left_out_by(self, rank: int, var: Var, moved: frozenset[Var]) -> int | None:
        """The first of the calls behind a tensor that reads what has moved, and gives what has not."""
        graph = self.numbers.capture.ranks[rank]
        made = graph.producers()
        behind: set[int] = set()
        todo = [var]
        while todo:
            index = made.get(todo.pop())
            if index is not None and index not in behind:
                behind.add(index)
                todo += graph.nodes[index].reads
        read = {each for index in behind for each in graph.nodes[index].reads} | {var}
        for index in sorted(behind):
            node = graph.nodes[index]
            kept = [out for out in node.outs if out in read]
            if not moved.isdisjoint(node.reads) and kept and moved.isdisjoint(kept):
                return index
        return None

    def _cut(self, value: Array, laid: Laid, rank: int) -> Array:
        for cut in laid.cuts:
            value = value.take(self.layouts.positions(value.shape[cut.dim], cut, rank), axis=cut.dim)
        return value

    def _has(self, rank: int, var: Var, moved: _Moved) -> bool:
        """Whether a rank was given the elements, or anything that it computes up to a tensor, or reads for it, rests on them."""
        graph = self.numbers.capture.ranks[rank]
        if not moved.ranks[rank].isdisjoint(graph.labels):
            return True
        last = graph.producers().get(var, -1)
        return any(
            not moved.ranks[rank].isdisjoint((*node.reads, *node.outs))
            for node in graph.nodes[: last + 1]
            if node.phase != "prelude"
        )

    def _all(self) -> list[_Moved]:
        if self._moved is None:
            capture = self.numbers.capture
            blocks = [each for leaf in capture.leaves for each in _blocks(leaf, capture.world_size)]
            inputs = [each for each in capture.leaves if each.kind == "input"]
            each_alone = [each for leaf in inputs for each in _blocks(leaf, _POSITIONS)]
            if capture.calls * (len(blocks) + len(each_alone)) <= _CALLS:
                blocks += each_alone
            small = capture.calls * len(blocks) <= _CALLS
            self._moved = [self._other(leaf, block) for leaf, block in blocks] if small else []
        return self._moved

    def _other(self, leaf: str, block: tuple[slice, ...]) -> _Moved:
        run = self.numbers.runs[0]
        point = run.refuter.point
        value = point.leaves[leaf].array.copy()
        if value.dtype.kind == "f":
            value[block] += 1 + np.arange(value[block].size).reshape(value[block].shape) / value[block].size
        else:
            value[block] = np.where(value[block] == value.max(), value.min(), value.max())
        spec, ranks = point.elsewhere({leaf: Number(value)})
        return _Moved(
            leaf,
            block,
            {
                var: each.array
                for var, each in spec.items()
                if var in run.spec and not _equal(each.array, run.spec[var])
            },
            tuple(
                frozenset(var for var, each in held.items() if var in mine and not _equal(each.array, mine[var]))
                for held, mine in zip(ranks, run.ranks, strict=True)
            ),
        )


def _blocks(leaf: Leaf, count: int) -> Iterator[tuple[str, tuple[slice, ...]]]:
    """The elements of a leaf of numbers, along each of its first dims in so many parts."""
    shape = leaf.type.shape
    if leaf.value is not None or not leaf.type.dtype.startswith(("float", "bfloat", "int")):
        return
    for dim, size in enumerate(shape[:_DIMS]):
        if not isinstance(size, int) or size < 2:
            continue
        part = -(-size // count)
        for start in range(0, size, part):
            yield leaf.name, (*(slice(None),) * dim, slice(start, min(start + part, size)))


def _equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
