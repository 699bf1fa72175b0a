"""What the input relation says of every rank's tensor: windows onto sequential tensors, joined along a dim.

A class ``S = concat(d0, d1; dim)`` is turned round: d0 is the first window of S, d1 the second.  Two classes that give one tensor
two meanings contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmarks.peer_pair.document import Apply, Task, Tensor, Term, tensors


@dataclass(frozen=True, slots=True)
class Window:
    """A box of a sequential tensor: start and extent along every dim."""

    leaf: str
    starts: tuple[int, ...]
    shape: tuple[int, ...]

    def part(self, dim: int, start: int, stop: int) -> Window:
        """The positions start to stop along a dim."""
        starts, shape = list(self.starts), list(self.shape)
        starts[dim] += start
        shape[dim] = stop - start
        return Window(self.leaf, tuple(starts), tuple(shape))


@dataclass(frozen=True, slots=True)
class Joined:
    """Layouts joined along a dim."""

    dim: int
    parts: tuple[Layout, ...]


Layout: TypeAlias = Window | Joined


def extent(layout: Layout, dim: int) -> int:
    """The size of a layout along a dim."""
    if isinstance(layout, Window):
        return layout.shape[dim]
    if layout.dim == dim:
        return sum(extent(part, dim) for part in layout.parts)
    return extent(layout.parts[0], dim)


def part(layout: Layout, dim: int, start: int, stop: int) -> Layout:
    """The positions start to stop of a layout along a dim."""
    if isinstance(layout, Window):
        return layout.part(dim, start, stop)
    if layout.dim != dim:
        return Joined(layout.dim, tuple(part(item, dim, start, stop) for item in layout.parts))
    parts, at = [], 0
    for item in layout.parts:
        size = extent(item, dim)
        low, high = max(start - at, 0), min(stop - at, size)
        if low < high:
            parts.append(part(item, dim, low, high))
        at += size
    return joined(dim, parts)


def joined(dim: int, parts: Iterable[Layout]) -> Layout:
    """Layouts joined along a dim, neighbouring windows made one, so that equal layouts are equal data."""
    merged: list[Layout] = []
    for item in parts:
        pieces = item.parts if isinstance(item, Joined) and item.dim == dim else (item,)
        for piece in pieces:
            previous = merged[-1] if merged else None
            if isinstance(previous, Window) and isinstance(piece, Window) and _adjacent(previous, piece, dim):
                shape = list(previous.shape)
                shape[dim] += piece.shape[dim]
                merged[-1] = Window(previous.leaf, previous.starts, tuple(shape))
            else:
                merged.append(piece)
    return merged[0] if len(merged) == 1 else Joined(dim, tuple(merged))


def _adjacent(first: Window, second: Window, dim: int) -> bool:
    expected = list(first.starts)
    expected[dim] += first.shape[dim]
    sizes = [size for d, size in enumerate(first.shape) if d != dim]
    return (
        first.leaf == second.leaf
        and tuple(expected) == second.starts
        and sizes == [size for d, size in enumerate(second.shape) if d != dim]
    )


@dataclass(slots=True)
class Layouts:
    """The meaning of every related tensor.

    ``of`` maps (rank, node) to its layout; ``sums`` a sequential tensor to the rank tensors that it is the sum of; ``same`` a sequential tensor to another
    that it equals; ``conflicts`` are sentences; ``ignored`` are classes that say nothing usable.
    """

    of: dict[tuple[int, str], Layout] = field(default_factory=dict)
    sums: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


Shapes: TypeAlias = Callable[[Tensor], tuple[int, ...]]


def layouts_of(task: Task, classes: Iterable[tuple[Term, ...]]) -> Layouts:
    """Turn the classes of an input relation round."""
    found = _Reader(task)
    found.read(tuple(classes))
    return found.layouts


class _Reader:
    def __init__(self, task: Task) -> None:
        self.layouts = Layouts()
        self._nodes = [task.seq.by_id(), *(graph.by_id() for graph in task.dist)]
        # Per class, what it says of pieces of a tensor: (dim, start, stop) -> layout.
        self._pieces: dict[tuple[int, str], dict[tuple[int, int, int], Layout]] = {}
        # The same of tensors of which no class tells everything.
        self._told: dict[tuple[int, str], dict[tuple[int, int, int], Layout]] = {}

    def read(self, classes: tuple[tuple[Term, ...], ...]) -> None:
        among_ranks = []
        for terms in classes:
            sources = [term for term in terms if isinstance(term, Tensor) and term.rank is None]
            if not sources:
                among_ranks.append(terms)
                continue
            first = sources[0]
            for other in sources[1:]:
                self.layouts.same[other.node] = first.node
            shape = self.shape(first)
            self._class([term for term in terms if term not in sources], Window(first.node, (0,) * len(shape), shape))
        self._spread(among_ranks)
        self.layouts.ignored += [name for rank, name in self._told if (rank, name) not in self.layouts.of]

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        shape = self._nodes[0 if tensor.rank is None else tensor.rank + 1][tensor.node].shape
        return shape or ()

    def _class(self, terms: list[Term], meaning: Layout) -> None:
        for term in terms:
            self._pieces = {}
            if not self._assign(term, meaning):
                self.layouts.ignored.append(", ".join(tensor.node for tensor in tensors(term)))
            for key, pieces in self._pieces.items():
                if not self._assemble(key, pieces):  # other classes may tell the rest of the tensor
                    self._told.setdefault(key, {}).update(pieces)
                    self._assemble(key, self._told[key])

    def _assign(self, term: Term, meaning: Layout) -> bool:
        if isinstance(term, Tensor):
            return term.rank is not None and self._whole((term.rank, term.node), meaning)
        if term.op == "concat":
            return self._assign_concat(term, meaning)
        inner = term.args[0] if term.args else None
        if (
            term.op == "slice"
            and isinstance(inner, Tensor)
            and inner.rank is not None
            and term.params[3:] in ((), (1,))
        ):
            dim, start, stop = term.params[:3]
            self._pieces.setdefault((inner.rank, inner.node), {})[dim, start, stop] = meaning
            return True
        if (
            term.op == "reduce_add"
            and isinstance(meaning, Window)
            and all(isinstance(arg, Tensor) for arg in term.args)
        ):
            self.layouts.sums[meaning.leaf] = tuple(arg for arg in term.args if isinstance(arg, Tensor))
            return True
        return False

    def _assign_concat(self, term: Apply, meaning: Layout) -> bool:
        dim, at, understood = term.params[0], 0, True
        for arg in term.args:
            size = self._size(arg, dim)
            understood &= self._assign(arg, part(meaning, dim, at, at + size))
            at += size
        return understood

    def _size(self, term: Term, dim: int) -> int:
        if isinstance(term, Tensor):
            return self.shape(term)[dim]
        if term.op == "slice" and term.params[0] == dim:
            return term.params[2] - term.params[1]
        if term.op == "concat" and term.params[0] == dim:
            return sum(self._size(arg, dim) for arg in term.args)
        return self._size(term.args[0], dim)

    def _whole(self, key: tuple[int, str], meaning: Layout) -> bool:
        known = self.layouts.of.setdefault(key, meaning)
        if known != meaning:
            self.layouts.conflicts.append(f"'{key[1]}' of rank {key[0]} is related twice, differently")
        return True

    def _assemble(self, key: tuple[int, str], pieces: dict[tuple[int, int, int], Layout]) -> bool:
        """Whether pieces are a whole tensor, whose layout is then known."""
        dim = next(iter(pieces))[0]
        at, parts = 0, []
        for (_, start, stop), meaning in sorted(pieces.items(), key=lambda item: item[0][1]):
            if start == at:
                parts.append(meaning)
                at = stop
        whole = at == self.shape(Tensor(*key))[dim] and all(piece[0] == dim for piece in pieces)
        return whole and self._whole(key, joined(dim, parts))

    def _spread(self, classes: list[tuple[Term, ...]]) -> None:
        """Equalities among ranks: what one of the tensors is known to be, the others are."""
        remaining = classes
        while remaining:
            later = []
            for terms in remaining:
                meaning = next((layout for layout in map(self._meaning, terms) if layout is not None), None)
                if meaning is None:
                    later.append(terms)
                else:
                    self._class(list(terms), meaning)
            if len(later) == len(remaining):
                self.layouts.ignored.extend(
                    ", ".join(t.node for term in terms for t in tensors(term)) for terms in later
                )
                return
            remaining = later

    def _meaning(self, term: Term) -> Layout | None:
        """What a tensor of a rank, or a slice of one, is known to be."""
        if isinstance(term, Tensor):
            return None if term.rank is None else self.layouts.of.get((term.rank, term.node))
        inner = term.args[0] if term.args else None
        if term.op != "slice" or not isinstance(inner, Tensor) or inner.rank is None:
            return None
        key, (dim, start, stop) = (inner.rank, inner.node), term.params[:3]
        whole = self.layouts.of.get(key)
        return self._told.get(key, {}).get((dim, start, stop)) if whole is None else part(whole, dim, start, stop)
