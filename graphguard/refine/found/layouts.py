"""How the ranks' tensors together rebuild a value, per mesh axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Placement
from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.piecewise import equal, scaled_value
from graphguard.relations.prove.narrow import equal_where_thin
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.points import differ_on_numbers, equal_at_points
from graphguard.relations.relation import Concat, Expression, Held, Same, Sum
from graphguard.relations.terms.kernels import Number, Ref
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import combine

Placements = dict[str, Placement]
REPLICATE = Placement("replicate")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Values put together by placements; ``copies`` must all be equal to ``value``."""

    value: NormalValue
    copies: tuple[NormalValue, ...]


class Layouts:
    """Finds and checks placements of groups of tensors, one a rank; what was found of the same values is not worked out again.

    It serves every capture on this mesh whose values are those of one universe: equal values are one object there.
    """

    def __init__(self, algebra: NormalForm, capture: Capture) -> None:
        self.algebra = algebra
        self.capture = capture
        self.places = [capture.coordinates(rank) for rank in range(max(1, len(capture.ranks)))]
        self.closed: dict[int, tuple[NormalValue, list[tuple[Number, Ref]] | None]] = {}
        self._joined: dict[object, NormalValue | None] = {}
        self._found: dict[object, tuple[Placements, Fraction] | None] = {}

    def rebuild(self, placements: Mapping[str, Placement], held: Mapping[int, NormalValue]) -> Rebuilt | None:
        """Join shards, add summands, and collect copies; None where shapes do not fit.

        The placements stand in the order in which the axes cut, so the last of them is undone first.
        """
        values: list[NormalValue] = []
        for value in self._rebuilt(placements, held):
            if value is None:
                return None
            values.append(value)
        return Rebuilt(values[0], tuple(values))

    def _rebuilt(
        self, placements: Mapping[str, Placement], held: Mapping[int, NormalValue]
    ) -> Iterator[NormalValue | None]:
        """What every group of ranks rebuilds, one after the other."""
        joined, groups = self._groups(placements, held)
        way = tuple((axis, placements[axis]) for axis in joined)
        for group in groups:
            members = tuple((*(self.places[rank][axis] for axis in joined), value) for rank, value in group.items())
            key = (way, members)
            if key not in self._joined:
                self._joined[key] = self._join(placements, joined, group)
            yield self._joined[key]

    def _groups(
        self, placements: Mapping[str, Placement], held: Mapping[int, NormalValue]
    ) -> tuple[list[str], list[dict[int, NormalValue]]]:
        """The axes along which placements join, and the groups of ranks that are joined along them."""
        copied = [axis for axis in self.capture.mesh if placements.get(axis, REPLICATE).kind == "replicate"]
        groups: dict[tuple[int, ...], dict[int, NormalValue]] = {}
        for rank, value in held.items():
            groups.setdefault(tuple(self.places[rank][axis] for axis in copied), {})[rank] = value
        return [axis for axis in placements if axis not in copied], list(groups.values())

    def along(self, axis: str, held: Mapping[int, NormalValue]) -> list[NormalValue]:
        """The first tensor and those at the other places of an axis, alike in every other coordinate."""
        here = self.places[min(held)]
        return [
            value
            for rank, value in held.items()
            if all(at == here[name] for name, at in self.places[rank].items() if name != axis)
        ]

    def _join(
        self, placements: Mapping[str, Placement], axes: list[str], held: Mapping[int, NormalValue]
    ) -> NormalValue | None:
        if not axes:
            return next(iter(held.values()))
        axis, *rest = axes
        parts: list[NormalValue] = []
        for place in range(self.capture.mesh[axis]):
            group = {rank: value for rank, value in held.items() if self.places[rank][axis] == place}
            if group:
                part = self._join(placements, rest, group)
                if part is None:
                    return None
                parts.append(part)
        placement = placements[axis]
        if placement.kind == "shard":
            first = parts[0].shape
            dim = placement.dim + len(first) if placement.dim < 0 else placement.dim
            if dim >= len(first) or any(
                len(p.shape) != len(first) or (*p.shape[:dim], *p.shape[dim + 1 :]) != (*first[:dim], *first[dim + 1 :])
                for p in parts
            ):
                return None
            return self.algebra.concat(parts, dim)
        if any(part.shape != parts[0].shape or part.kind == "bool" for part in parts):
            return None
        try:
            return combine(self.algebra, placement.reduce, parts)
        except Unsupported:
            return None

    def holds(self, target: NormalValue, placements: Mapping[str, Placement], held: Mapping[int, NormalValue]) -> bool:
        """Whether the placements rebuild the target, on every copy."""
        rebuilt = self.rebuild(placements, held)
        return rebuilt is not None and all(self.same(value, target) for value in dict.fromkeys(rebuilt.copies))

    def same(self, a: NormalValue, b: NormalValue) -> bool:
        """Equality of normal forms, shapes included; of their elements, where the universe expands."""
        universe = self.algebra.universe
        try:
            if a.shape == b.shape and equal(universe, a, b):
                return True
        except Unsupported:
            return False
        if universe.expand <= 1 or differ_on_numbers(universe, a, b):
            return False
        return equal_where_thin(universe, a, b) or equal_at_points(universe, a, b)

    def find(
        self, target: NormalValue, held: Mapping[int, NormalValue], scaled: bool = False
    ) -> tuple[Placements, Fraction] | None:
        """Placements that rebuild the target, or with ``scaled`` a multiple of it; and the multiple."""
        key = (target, scaled, tuple(held.items()))
        if key not in self._found:
            self._found[key] = self._find(target, held, scaled)
        return self._found[key]

    def _find(
        self, target: NormalValue, held: Mapping[int, NormalValue], scaled: bool
    ) -> tuple[Placements, Fraction] | None:
        for placements in self._candidates(target, held):
            joined, groups = self._groups(placements, held)
            if self._shape(placements, joined, groups[0]) != target.shape:
                continue
            copies = self._rebuilt(placements, held)
            first = next(copies)  # what it is not says so before its copies are made
            if first is None:
                continue
            factor = Fraction(1) if self.same(first, target) else self.ratio(first, target) if scaled else None
            if factor is not None and self._agree(first, copies):
                return placements, factor
        return None

    def _agree(self, first: NormalValue, others: Iterator[NormalValue | None]) -> bool:
        distinct = dict.fromkeys(others)
        return None not in distinct and all(
            copy is None or copy is first or self.same(copy, first) for copy in distinct
        )

    def _shape(
        self, placements: Mapping[str, Placement], axes: list[str], held: Mapping[int, NormalValue]
    ) -> tuple[int, ...] | None:
        """The shape of what ranks rebuild together, before it is made; None where theirs do not fit."""
        if not axes:
            return next(iter(held.values())).shape
        axis, *rest = axes
        groups: dict[int, dict[int, NormalValue]] = {}
        for rank, value in held.items():
            groups.setdefault(self.places[rank][axis], {})[rank] = value
        shapes = [self._shape(placements, rest, group) for group in groups.values()]
        first, placement = shapes[0], placements[axis]
        if first is None or (placement.kind != "shard" and any(shape != first for shape in shapes)):
            return None
        if placement.kind != "shard":
            return first
        dim = placement.dim + len(first) if placement.dim < 0 else placement.dim
        if dim >= len(first) or any(
            shape is None
            or len(shape) != len(first)
            or (*shape[:dim], *shape[dim + 1 :]) != (*first[:dim], *first[dim + 1 :])
            for shape in shapes
        ):
            return None
        return (*first[:dim], sum(shape[dim] for shape in shapes if shape is not None), *first[dim + 1 :])

    def ratio(self, found: NormalValue, target: NormalValue) -> Fraction | None:
        """The number that the found value is a multiple by, if there is one."""
        ratio = _leading_ratio(found, target)
        if ratio is None or ratio == 1 or target.kind != "float":
            return None
        universe = self.algebra.universe
        return Fraction(ratio) if self.same(found, scaled_value(universe, target, ratio, "float")) else None

    def _candidates(self, target: NormalValue, held: Mapping[int, NormalValue]) -> Iterator[Placements]:
        """Placements that the shapes allow; an axis over which all values are alike is a replica."""
        shapes = {value.shape for value in held.values()}
        if any(len(shape) != len(target.shape) for shape in shapes):
            return
        choices: list[list[Placement]] = []
        rank_shape = next(iter(shapes))
        for axis, size in self.capture.mesh.items():
            if size == 1 or self._alike(axis, held):
                choices.append([REPLICATE])
                continue
            shards = [
                Placement("shard", dim)
                for dim in range(len(target.shape))
                if any(shape[dim] != target.shape[dim] for shape in shapes) or target.shape[dim] == 0
            ]
            other = [Placement("partial")] if target.kind != "bool" else []
            choices.append([*shards, *other, REPLICATE] if rank_shape != target.shape else [*other, REPLICATE])
        for combination in itertools.islice(itertools.product(*choices), 256):
            yield dict(zip(self.capture.mesh, combination, strict=True))

    def _alike(self, axis: str, held: Mapping[int, NormalValue]) -> bool:
        groups: dict[tuple[int, ...], NormalValue] = {}
        for rank, value in held.items():
            key = tuple(at for name, at in self.places[rank].items() if name != axis)
            first = groups.setdefault(key, value)
            if first is not value and (first.shape != value.shape or first.key() != value.key()):
                return False
        return True

    def expression(self, placements: Mapping[str, Placement], names: Mapping[int, str]) -> Expression:
        """Placements of named tensors as a relation term."""
        return self._expression(placements, [axis for axis in self.capture.mesh if self.capture.mesh[axis] > 1], names)

    def _expression(self, placements: Mapping[str, Placement], axes: list[str], names: Mapping[int, str]) -> Expression:
        ordered = sorted(axes, key=lambda axis: placements.get(axis, REPLICATE).kind != "replicate")
        if not ordered or len(names) == 1:
            rank, name = next(iter(names.items()))
            return Held(name, rank)
        axis, *rest = ordered
        groups: dict[int, dict[int, str]] = {}
        for rank, name in names.items():
            groups.setdefault(self.places[rank][axis], {})[rank] = name
        parts = [self._expression(placements, rest, group) for _, group in sorted(groups.items())]
        placement = placements.get(axis, REPLICATE)
        if len(parts) == 1:
            return parts[0]
        if placement.kind == "shard":
            return Concat(tuple(parts), placement.dim)
        if placement.kind == "partial":
            return Sum(tuple(parts), placement.reduce)
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, Same) else (part,))]
        return Same(tuple(flat))


def _leading_ratio(found: NormalValue, target: NormalValue) -> Number | None:
    """Coefficient of the first term over that of the same term in the target."""
    for (_, mine), (_, other) in zip(found.pieces, target.pieces, strict=False):
        for coefficient, ref in mine:
            for wanted, candidate in other:
                if candidate[0] is ref[0]:
                    return Fraction(coefficient) / Fraction(wanted)
    return None
