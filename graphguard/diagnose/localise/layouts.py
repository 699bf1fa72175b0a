"""Tensors of the specification laid out on the ranks: whole, in parts, as summands, as equal shares."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from graphguard.diagnose.localise.numbers import Run
from graphguard.ir import Capture, Node, Var
from graphguard.ops import aten
from graphguard.relations.numbers import Array

_OPTIONS: Final = 12  # ways to cut one dim
_PARTS: Final = 4  # ranges of positions that are shown
_STEPS: Final = 4  # operators between a tensor and what is made of it alone
_CHOICES: Final = 24  # ways to cut all dims
_PRODUCTS_WITH_TERM: Final = frozenset({aten.addmm.default, aten.baddbmm.default})


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions along one dim: a ``selection`` by its number (-1: whole), or one piece of several of it."""

    dim: int
    selection: int
    piece: int = 0
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Laid:
    """A tensor of the specification on the ranks: cut along some dims; over some axes a summand, an equal ``share`` of the sum, or a ``mean``'s part; over ``passes`` of a loop a summand.
    ``lacking``: no rank has some of its positions."""

    var: Var
    cuts: tuple[Cut, ...] = ()
    partial: tuple[str, ...] = ()
    share: bool = False
    mean: bool = False
    passes: int = 0
    lacking: bool = field(default=False, compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether every rank has all of it."""
        return not (self.cuts or self.partial or self.passes or self.mean)


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions along a dim of some size, by rank; ``axes`` are those along which they differ, ``plain`` says that they are shards in order, ``role`` names another rule."""

    axes: tuple[str, ...]
    plain: bool
    picks: Mapping[int, Array]
    role: str = ""
    order: bool = False
    """Whether all ranks were seen to have all positions in an order of their own, of which this is all or a shard: which may be the defect."""


@dataclass(slots=True)
class Layouts:
    """The ways in which tensors of the specification can stand on the ranks, and these tensors, equal ones once."""

    capture: Capture
    runs: Sequence[Run]
    known: dict[int, list[Selection]] = field(default_factory=dict)
    tensors: list[Var] = field(default_factory=list)
    same_as: dict[Var, Var] = field(default_factory=dict)
    makers: dict[Var, Node] = field(default_factory=dict)
    _keys: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph, run = self.capture.spec, self.runs[0]
        assert graph is not None
        seen: dict[object, Var] = {}
        self.makers = {out: node for node in graph.nodes for out in node.outs}
        every = (*graph.inputs, *graph.constants, *(out for node in graph.nodes for out in node.outs))
        for var in (*every, *self._products(graph.nodes)):
            value = run.spec.get(var)
            if value is None or any(var not in each.spec for each in self.runs):
                continue
            first = seen.setdefault((value.shape, value.dtype, value.tobytes()), var)
            self.same_as[var] = first
            if first == var:
                self.tensors.append(var)

    def _products(self, nodes: Iterable[Node]) -> list[Var]:
        """The products of the specification's products with a term, without it: ranks may add that later."""
        made: list[Var] = []
        for node in nodes:
            first, second = node.args[1:3] if len(node.args) == 3 else (None, None)
            if (
                node.op in _PRODUCTS_WITH_TERM
                and isinstance(first, Var)
                and isinstance(second, Var)
                and not node.kwargs
            ):
                var = Var(-2 - len(made))
                for run in self.runs:
                    if first in run.spec and second in run.spec:
                        run.spec[var] = run.spec[first] @ run.spec[second]
                self.makers[var] = node
                made.append(var)
        return made

    @property
    def axes(self) -> list[str]:
        """The axes with more than one rank."""
        return [axis for axis, size in self.capture.mesh.items() if size > 1]

    def sources(self, var: Var) -> list[Var]:
        """The tensors of which the specification makes one by a few operators that read nothing else."""
        found: list[Var] = []
        while len(found) < _STEPS:
            node = self.makers.get(var)
            reads = set(node.reads) if node is not None else set()
            if len(reads) != 1:
                break
            var = reads.pop()
            found.append(self.same_as.get(var, var))
        return found

    # -- selections

    def selections(self, size: int) -> list[Selection]:
        """The known ways to deal out positions of a dim: shards over one or two axes, and what was learned from the ranks."""
        if size not in self.known:
            self.known[size] = []
            for count in (1, 2):
                for order in itertools.permutations(self.axes, count):
                    self._add(size, Selection(order, True, {r: self._shard(size, order, r) for r in self._ranks}))
            for axis in self.axes:
                self._add_groups(size, axis)
        return self.known[size]

    @property
    def _ranks(self) -> range:
        return range(self.capture.world_size)

    def _add_groups(self, size: int, axis: str) -> None:
        """Fewer parts than ranks: neighbours along an axis have the same one, or ranks that far apart."""
        ranks = self.capture.mesh[axis]
        for parts in (count for count in range(2, ranks) if ranks % count == 0 and size % count == 0):
            for role in ("neighbours", "apart"):
                picks = {}
                for rank in self._ranks:
                    at = self.capture.coordinates(rank)[axis]
                    picks[rank] = chunk(
                        np.arange(size), parts, at * parts // ranks if role == "neighbours" else at % parts
                    )
                self._add(size, Selection((axis,), False, picks, f"{parts} parts, {role}"))

    def _shard(self, size: int, order: Iterable[str], rank: int) -> Array:
        index, place = np.arange(size), self.capture.coordinates(rank)
        for axis in order:
            index = chunk(index, self.capture.mesh[axis], place[axis])
        return index

    def learn(self, size: int, picks: Mapping[int, Array]) -> None:
        """Note how ranks were found to hold positions of a dim."""
        self.selections(size)
        axes = tuple(axis for axis in self.axes if self._varies(picks, axis))
        if axes:
            self._add(size, Selection(axes, False, picks))
        elif len(picks) == self.capture.world_size and all(len(index) == size for index in picks.values()):
            self._add_order(size, next(iter(picks.values())))

    def _add_order(self, size: int, order: Array) -> None:
        """All ranks have all positions in another order, as one gathers over one axis after the other: that order, and its shards."""
        role = f"in the order {ranges(order.tolist())}"
        self._add(size, Selection((), False, dict.fromkeys(self._ranks, order), role, order=True))
        for count in (1, 2):
            for axes in itertools.permutations(self.axes, count):
                picks = {rank: order[self._shard(len(order), axes, rank)] for rank in self._ranks}
                self._add(size, Selection(axes, False, picks, role, order=True))

    def _add(self, size: int, found: Selection) -> None:
        key = size, tuple(tuple(found.picks[rank].tolist()) for rank in sorted(found.picks)), tuple(sorted(found.picks))
        if key not in self._keys:
            self._keys.add(key)
            self.known[size].append(found)

    def _varies(self, picks: Mapping[int, Array], axis: str) -> bool:
        groups: dict[object, set[object]] = defaultdict(set)
        for rank, index in picks.items():
            place = self.capture.coordinates(rank)
            groups[tuple(at for other, at in place.items() if other != axis)].add(tuple(index.tolist()))
        return any(len(group) > 1 for group in groups.values())

    def _cuts(self, dim: int, size: int, wanted: Mapping[int, int], pieces: Sequence[int]) -> list[Cut | None]:
        """The ways to cut a dim that give every rank as many positions as it has; None: not at all."""
        found: list[Cut | None] = [None] if all(count == size for count in wanted.values()) else []
        for number, selection in enumerate(self.selections(size)):
            if not wanted.keys() <= selection.picks.keys():
                continue
            for k in pieces:
                if all(len(selection.picks[rank]) == k * count for rank, count in wanted.items()):
                    found += [Cut(dim, number, j, k) for j in range(k)]
        if len(set(wanted.values())) == 1:
            count = next(iter(wanted.values()))
            found += [Cut(dim, -1, j, k) for k in pieces if k > 1 and size == k * count for j in range(k)]
        return found[: _OPTIONS + 1]

    def choices(
        self, shape: Sequence[int], wanted: Mapping[int, Sequence[int]], pieces: Sequence[int] = (1,)
    ) -> list[tuple[Cut, ...]]:
        """The ways to cut a tensor of some shape so that every rank's part has the wanted one."""
        if any(len(each) != len(shape) for each in wanted.values()):
            return []
        options = [
            self._cuts(dim, size, {rank: each[dim] for rank, each in wanted.items()}, pieces)
            for dim, size in enumerate(shape)
        ]
        if not all(options):
            return []
        found = itertools.islice(itertools.product(*options), _CHOICES)
        return [tuple(cut for cut in cuts if cut is not None) for cuts in found]

    def positions(self, size: int, cut: Cut, rank: int) -> Array:
        """The positions of a cut on a rank."""
        index = np.arange(size) if cut.selection < 0 else self.known[size][cut.selection].picks[rank]
        return index if cut.pieces == 1 else chunk(index, cut.pieces, cut.piece)

    def axes_of(self, laid: Laid) -> set[str]:
        """The axes along which a tensor is cut."""
        shape = self.runs[0].spec[laid.var].shape
        return {
            axis for cut in laid.cuts if cut.selection >= 0 for axis in self.known[shape[cut.dim]][cut.selection].axes
        }

    def is_ordered(self, laid: Laid) -> bool:
        """Whether some positions are in an order that only the ranks have."""
        shape = self.runs[0].spec[laid.var].shape
        return any(cut.selection >= 0 and self.known[shape[cut.dim]][cut.selection].order for cut in laid.cuts)

    def is_lacking(self, laid: Laid) -> bool:
        """Whether some positions are on no rank."""
        shape = self.runs[0].spec[laid.var].shape
        for cut in laid.cuts:
            if cut.selection >= 0 and cut.pieces == 1:
                picks = self.known[shape[cut.dim]][cut.selection].picks
                if len(set(np.concatenate(list(picks.values())).tolist())) < shape[cut.dim]:
                    return True
        return False

    def role(self, laid: Laid) -> object:
        """What tensors of different sizes have in common that are laid out alike."""
        shape = self.runs[0].spec[laid.var].shape
        cuts = []
        for cut in laid.cuts:
            known = self.known[shape[cut.dim]][cut.selection] if cut.selection >= 0 else None
            rule = (
                None if known is None else (known.axes, known.plain, known.role or (not known.plain and cut.selection))
            )
            cuts.append((cut.dim, rule, cut.piece, cut.pieces))
        return tuple(cuts), laid.partial, laid.share

    def ways(self, var: Var, cuts: tuple[Cut, ...], shares: bool) -> Iterator[Laid]:
        """A tensor cut in one way: copied, or as a summand or a share over axes along which it is not cut."""
        yield Laid(var, cuts)
        value = self.runs[0].spec[var]
        if value.dtype == np.bool_ or any(cut.selection < 0 for cut in cuts):
            return
        used = self.axes_of(Laid(var, cuts))
        free = [axis for axis in self.axes if axis not in used]
        for count in range(1, len(free) + 1):
            for chosen in itertools.combinations(free, count):
                yield Laid(var, cuts, chosen)
                if shares and value.dtype.kind == "f":
                    yield Laid(var, cuts, chosen, share=True)

    # -- values

    def cut(self, laid: Laid, run: Run, rank: int) -> Array:
        """The part of a tensor that a rank has, whole where it is a summand."""
        whole = value = run.spec[laid.var]
        for cut in laid.cuts:
            value = value.take(self.positions(whole.shape[cut.dim], cut, rank), axis=cut.dim)
        return value

    def values(self, laid: Laid, run: Run, ranks: Iterable[int]) -> dict[int, Array]:
        """A tensor on every rank; of summands the first rank along the axes has all, the others zero."""
        found = {}
        for rank in ranks:
            value, place = self.cut(laid, run, rank), self.capture.coordinates(rank)
            if laid.share:
                value = value / math.prod(self.capture.mesh[axis] for axis in laid.partial)
            elif any(place[axis] for axis in laid.partial):
                value = np.zeros_like(value)
            found[rank] = value
        return found

    def other(self, laid: Laid, pieces: int, number: int) -> Laid:
        """The same for another pass: piece ``number`` of every cut into that many."""
        cuts = tuple(replace(cut, piece=number) if cut.pieces == pieces else cut for cut in laid.cuts)
        return replace(laid, cuts=cuts)


def chunk(index: Array, parts: int, number: int) -> Array:
    """One of the parts that ``torch.chunk`` makes, empty where it makes fewer."""
    size = -(-len(index) // parts)
    return index[number * size : (number + 1) * size]


def ranges(positions: Sequence[int]) -> str:
    """Positions as ranges: ``0..1, 6..7``."""
    parts: list[list[int]] = []
    for each in positions:
        if parts and each == parts[-1][-1] + 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    shown = [str(part[0]) if len(part) == 1 else f"{part[0]}..{part[-1]}" for part in parts[:_PARTS]]
    return ", ".join(shown) + (", ..." if len(parts) > _PARTS else "")
