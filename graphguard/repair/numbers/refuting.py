"""Which promises numbers refute of an edited program, and which of the specification's tensors its ranks cannot hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphguard.ir import Capture, Placement, Promise, Var
from graphguard.ir.capture import Like
from graphguard.refine.stages.flow import labelled
from graphguard.relations.algebra import Algebra, Unsupported
from graphguard.relations.numbers import Array, Number
from graphguard.repair.numbers.point import Changed, Point
from graphguard.rules import combine

_NOISE = 1e-9
_RELATIVE = 1e-7
_STARTS = 64  # places of a part that are looked at; where more are alike, it may be one

Held = Mapping[int, Number]


@dataclass(slots=True)
class Refuter:
    """A point, and what was worked out of the promises there."""

    point: Point
    laid_out: dict[tuple[str, str], list[dict[Var, Number]] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, capture: Capture, turn: int = 0) -> Refuter | None:
        """The point at which edits of a program are looked at, on the draw of a ``turn``; None where there is none."""
        point = Point.of(capture, turn)
        return None if point is None else cls(point)

    def after(self, edited: Capture) -> Refuter | None:
        """The same point of an edited program; None where not all of it has numbers there."""
        changed = self.point.changed(edited)
        if changed is None:
            return None
        self.point.all(changed)
        kept = self.laid_out if _same_preludes(self.point, edited) else {}
        return Refuter(self.point.after(changed), kept) if changed.fits else None

    def refuted(self, changed: Changed, names: Sequence[str], fewest: int = 1) -> set[str]:
        """The promises that numbers say an edited program breaks; once fewer than ``fewest`` are left, the others are not looked at.

        What some ranks hold may say it of all, so these are looked at first.
        """
        promises = {promise.name: promise for promise in changed.edited.promises}
        holders = {name: [r for r, graph in enumerate(changed.edited.ranks) if name in graph.outputs] for name in names}
        telling = {name: _telling(promises[name], changed.edited, ranks) for name, ranks in holders.items()}
        found: set[str] = set()
        for some in (telling, holders):
            left = {
                name: ranks
                for name, ranks in some.items()
                if name not in found and (some is telling or telling[name] != ranks)
            }
            for name in self.point.towards(changed, left):
                if self._refuted(promises[name], changed, left[name]):
                    found.add(name)
                if len(names) - len(found) < fewest:
                    return found if changed.fits else set(names)
        return found if changed.fits else set(names)

    def may_hold(self, changed: Changed, missing: Sequence[Var]) -> bool:
        """Whether the ranks of an edited program may hold one of the specification's tensors that they did not hold: one of their new tensors must be a part of it."""
        self.point.all(changed)
        if not changed.fits:
            return False
        if changed.unknown or any(var not in self.point.spec for var in missing):
            return True
        new = {id(value): value.array for held in changed.held for value in held.values()}
        spec = changed.edited.spec
        outputs = set(spec.outputs.values()) if spec is not None else set()
        for var in missing:
            target = self.point.spec[var].array
            if var in outputs and _within(_finite(target), _pool(new.values())).any():
                return True  # an output may be held in pieces
            if any(_is_part(array, target) for array in new.values()):
                return True
        return False

    def _refuted(self, promise: Promise, changed: Changed, ranks: Sequence[int]) -> bool:
        edited = changed.edited
        held: dict[int, Number] = {}
        for rank in ranks:
            value = changed.value(rank, edited.ranks[rank].outputs[promise.name])
            if value is None:
                return False
            held[rank] = value
        if not held:
            return False
        if isinstance(promise.wanted, Like):
            return self._unlike(promise.name, promise.wanted.leaf, edited, held)
        assert edited.spec is not None
        target = self.point.spec.get(edited.spec.outputs.get(promise.name, Var(-1)))
        if target is None:
            return False
        if isinstance(promise.wanted, dict):
            copies = rebuilt(edited, promise.wanted, held, self.point)
            return copies is not None and any(_apart(copy, target.array) for copy in copies)
        return not _may_be_made(edited, target.array, held)

    def refutes(self, promise: Promise, changed: Changed) -> bool:
        """Whether numbers say that a changed program breaks a promise."""
        ranks = [rank for rank, graph in enumerate(changed.edited.ranks) if promise.name in graph.outputs]
        return self._refuted(promise, changed, ranks)

    def parts(self, changed: Changed, names: Sequence[str]) -> bool:
        """Whether one of these outputs, which all ranks had alike, is another one on every rank of a changed program: a fix makes no relation weaker."""
        holders = {name: self._sharers(name) for name in names}
        holders = {name: ranks for name, ranks in holders.items() if ranks}
        graphs = changed.edited.ranks
        for name in self.point.towards(changed, holders):
            held = [changed.value(rank, graphs[rank].outputs[name]) for rank in holders[name]]
            if not _are_alike([value.array for value in held if value is not None]):
                return True
        return False

    def _sharers(self, name: str) -> list[int]:
        """The ranks that have an output, where all of them have the same; none where they do not."""
        graphs = self.point.capture.ranks
        ranks = [rank for rank, graph in enumerate(graphs) if name in graph.outputs]
        held = [self.point.ranks[rank].get(graphs[rank].outputs[name]) for rank in ranks]
        arrays = [value.array for value in held if value is not None]
        return ranks if len(arrays) == len(ranks) > 1 and _are_alike(arrays) else []

    def is_like(self, promise: Promise, changed: Changed, held: Held) -> bool:
        """Whether what ranks hold is known to be laid out as a leaf is, and right."""
        assert isinstance(promise.wanted, Like)
        before, _, after = promise.name.rpartition(promise.wanted.leaf)
        if (before, after) not in self.laid_out:
            self.laid_out[before, after] = self._laid_out(before, after)
        meant = self.laid_out[before, after]
        leaf = promise.wanted.leaf
        wanted = [
            None if meant is None else meant[rank].get(labelled(changed.edited.ranks[rank]).get(leaf, Var(-1)))
            for rank in held
        ]
        return None not in wanted and not self._unlike(promise.name, leaf, changed.edited, held)

    def _unlike(self, name: str, leaf: str, edited: Capture, held: Held) -> bool:
        before, _, after = name.rpartition(leaf)
        if not _same_preludes(self.point, edited):
            return False
        if (before, after) not in self.laid_out:
            self.laid_out[before, after] = self._laid_out(before, after)
        meant = self.laid_out[before, after]
        if meant is None:
            return False
        for rank, value in held.items():
            var = labelled(edited.ranks[rank]).get(leaf)
            target = meant[rank].get(var) if var is not None else None
            if target is not None and _apart(value.array, target.array):
                return True
        return False

    def _laid_out(self, before: str, after: str) -> list[dict[Var, Number]] | None:
        """The ranks' preludes with the specification's outputs in place of the leaves; None where one of these is not known."""
        capture, leaves = self.point.capture, dict(self.point.leaves)
        assert capture.spec is not None
        for leaf in capture.leaves:
            name = before + leaf.name + after
            if name in capture.spec.outputs:
                value = self.point.spec.get(capture.spec.outputs[name])
                if value is None:
                    return None
                leaves[leaf.name] = value
            elif leaves[leaf.name].kind == "float":
                leaves[leaf.name] = Number(np.zeros(leaves[leaf.name].shape))
        return self.point.preludes(leaves)


def _telling(promise: Promise, edited: Capture, holders: list[int]) -> list[int]:
    """The first of the ranks that hold a promised output, with those that hold the other parts of the same copy of it."""
    if isinstance(promise.wanted, Like):
        return holders[:1]
    if not isinstance(promise.wanted, dict) or not holders:
        return holders
    wanted = promise.wanted
    copied = [axis for axis in edited.mesh if axis not in wanted or wanted[axis].kind == "replicate"]
    here = edited.coordinates(holders[0])
    return [rank for rank in holders if all(edited.coordinates(rank)[axis] == here[axis] for axis in copied)]


def _same_preludes(point: Point, edited: Capture) -> bool:
    return all(
        id(node) in calls
        for calls, graph in zip(point.calls, edited.ranks, strict=True)
        for node in graph.nodes
        if node.phase == "prelude"
    )


def rebuilt(capture: Capture, wanted: Mapping[str, Placement], held: Held, point: Point) -> list[Array] | None:
    """What placements make of the ranks' tensors, one for each copy; None where nothing can be said."""
    places = {rank: capture.coordinates(rank) for rank in held}
    joined = [axis for axis, place in wanted.items() if place.kind != "replicate"]
    copied = [axis for axis in capture.mesh if axis not in joined]
    groups: dict[tuple[int, ...], dict[int, Number]] = {}
    for rank, value in held.items():
        groups.setdefault(tuple(places[rank][axis] for axis in copied), {})[rank] = value

    algebra = point.run.algebra
    try:
        return [_joint(joined, group, places, wanted, algebra).array for group in groups.values()]
    except (Unsupported, ValueError, AssertionError):
        return None


def _joint(
    axes: Sequence[str],
    group: Held,
    places: Mapping[int, Mapping[str, int]],
    wanted: Mapping[str, Placement],
    algebra: Algebra[Number],
) -> Number:
    """What placements along axes make of the tensors of a group of ranks, which are at these places."""
    if not axes:
        return next(iter(group.values()))
    by_place: dict[int, dict[int, Number]] = {}
    for rank, value in group.items():
        by_place.setdefault(places[rank][axes[0]], {})[rank] = value
    parts = [_joint(axes[1:], by_place[place], places, wanted, algebra) for place in sorted(by_place)]
    place = wanted[axes[0]]
    if place.kind == "shard":
        return Number(np.concatenate([part.array for part in parts], axis=place.dim))
    return combine(algebra, place.reduce, parts)


def _may_be_made(capture: Capture, target: Array, held: Held) -> bool:
    """Whether parts of the ranks' tensors, or of sums of them over axes, may make up a tensor: its elements must be among theirs."""
    pools = [value.array for value in held.values()]
    axes = [axis for axis, size in capture.mesh.items() if size > 1]
    for count in range(1, len(axes) + 1):
        for summed in itertools.combinations(axes, count):
            groups: dict[tuple[int, ...], list[Array]] = {}
            for rank, value in held.items():
                place = capture.coordinates(rank)
                groups.setdefault(tuple(place[axis] for axis in axes if axis not in summed), []).append(value.array)
            for group in groups.values():
                if len({each.shape for each in group}) > 1 or group[0].dtype == np.bool_:
                    return True
                pools.append(np.sum(group, axis=0))
    return bool(_within(_finite(target), _pool(pools)).all())


def _pool(arrays: object) -> Array:
    """The finite elements of arrays, in order."""
    rows = [_finite(array) for array in arrays]  # type: ignore[attr-defined]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0)


def _finite(array: Array) -> Array:
    flat = array.reshape(-1).astype(np.float64)
    return np.asarray(flat[np.isfinite(flat)])


def _within(wanted: Array, pool: Array) -> Array:
    """Which numbers are among others, which stand in order."""
    if not pool.size:
        return np.zeros(wanted.shape, dtype=bool)
    after = np.searchsorted(pool, wanted).clip(0, pool.size - 1)
    before = (after - 1).clip(0)
    gap = np.minimum(abs(pool[after] - wanted), abs(pool[before] - wanted))
    return np.asarray(gap <= _NOISE + _RELATIVE * abs(wanted))


def _is_part(array: Array, target: Array) -> bool:
    """Whether an array is a target or a block of it."""
    if array.ndim != target.ndim or not array.size or array.dtype.kind != target.dtype.kind:
        return False
    room = tuple(whole - part + 1 for whole, part in zip(target.shape, array.shape, strict=True))
    if min(room, default=1) < 1:
        return False
    corner = target[tuple(slice(0, size) for size in room)]
    starts = np.argwhere(_alike(corner, array[(0,) * array.ndim]))
    return len(starts) > _STARTS or any(
        bool(
            _alike(
                target[tuple(slice(at, at + size) for at, size in zip(start, array.shape, strict=True))], array
            ).all()
        )
        for start in starts
    )


def _alike(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(b) & (abs(a - b) <= _NOISE + _RELATIVE * abs(b))
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)))


def _apart(found: Array, target: Array) -> bool:
    """Whether numbers differ by more than the order of sums explains; where the target is none, nothing is said."""
    if found.shape != target.shape:
        return True
    if found.dtype.kind != "f" or target.dtype.kind != "f":
        return bool((found != target).any())
    numbers = np.isfinite(target)
    largest = abs(target[numbers]).max(initial=0.0)
    return not bool((abs(found[numbers] - target[numbers]) <= _NOISE + _RELATIVE * largest).all())


def _are_alike(arrays: Sequence[Array]) -> bool:
    return not any(_apart(array, arrays[0]) for array in arrays[1:])
