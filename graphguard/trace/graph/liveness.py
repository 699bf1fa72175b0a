"""Which nodes of a recording a graph has: rearrangements and uninitialised memory that nothing reads are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from graphguard.ir.graph import Node
from graphguard.ops import aten, operators

_BOOKKEEPING: Final = operators(
    lambda op: op.makes == "empty" or op.moves in ("view", "permute", "part", "split", "stride")
) | {
    *(aten.as_strided_scatter.default, aten.diagonal_scatter.default),
    *(aten.select_scatter.default, aten.slice_scatter.default, aten.full.default, aten.view.dtype),
}


def is_silent(node: Node) -> bool:
    """Whether a call is of no account unless its results are read."""
    return (node.phase == "prelude" and not node.op.startswith("gg.")) or node.op in _BOOKKEEPING


@dataclass(frozen=True, slots=True)
class Stretch:
    """The nodes from ``start`` to ``end``, of which it is known already that all are needed, but for those at ``open``, which only what follows may read.

    ``reads`` are the variables, by number, that the others read from before.
    """

    start: int
    end: int
    open: tuple[int, ...]
    reads: tuple[int, ...]


class Liveness:
    """Goes through nodes from the last to the first; ``wanted`` are the variables that are read, by number, ``named`` those that have a name and are kept for it."""

    def __init__(self, nodes: Sequence[Node], wanted: Iterable[int], named: Iterable[int]) -> None:
        self.wanted = set(wanted)
        self.dropped: list[Node] = []
        self._nodes = nodes
        self._named = set(named)
        self._kept: list[Node] = []

    def kept(self, stretches: Sequence[Stretch]) -> tuple[Node, ...]:
        """The nodes that are needed, in their order."""
        end = len(self._nodes)
        for stretch in reversed(stretches):
            self._walk(stretch.end, end)
            self._decided(stretch)
            end = stretch.start
        self._walk(0, end)
        return tuple(reversed(self._kept))

    def _walk(self, start: int, end: int) -> None:
        wanted, named, kept = self.wanted, self._named, self._kept
        for index in range(end - 1, start - 1, -1):
            node = self._nodes[index]
            if is_silent(node) and not any(out.id in wanted or out.id in named for out in node.outs):
                self.dropped.append(node)
                continue
            wanted.update([var.id for var in node.reads])
            kept.append(node)

    def _decided(self, stretch: Stretch) -> None:
        end = stretch.end
        for index in reversed(stretch.open):
            self._kept.extend(self._nodes[end - 1 : index : -1])
            self._walk(index, index + 1)
            end = index
        self._kept.extend(self._nodes[stretch.start : end][::-1])
        self.wanted.update(stretch.reads)
