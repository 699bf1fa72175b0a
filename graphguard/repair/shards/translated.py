"""Numbers of rows of a whole table that a rank uses for its own part of it, such as the padding row of an embedding."""

from __future__ import annotations

from collections.abc import Iterator

from graphguard.ir import Capture, Node
from graphguard.ops import aten
from graphguard.repair.graph.edits import SetArgument
from graphguard.repair.graph.neighbours import Guess, Neighbours

_NONE = -1
_ROWS: dict[str, tuple[int, int]] = {
    aten.embedding_dense_backward.default: (3, 2),
    aten.embedding.default: (2, -1),
}
"""Where an operator names a row, and where the number of rows (-1: of its first operand)."""


def translated(around: Neighbours) -> Iterator[Guess]:
    """The row that the specification names, as each rank's own part of the table has it: none where another rank has it."""
    capture = around.capture
    spec = capture.spec
    for site in around.sites.values() if spec is not None else ():
        if site.node.op not in _ROWS or spec is None:
            continue
        place, _ = _ROWS[site.node.op]
        for meant in spec.nodes:
            if meant.op != site.node.op or len(meant.args) <= place or len(site.node.args) <= place:
                continue
            row, whole = meant.args[place], _rows(meant, capture, None)
            for axis, size in capture.mesh.items():
                own = _rows(site.node, capture, min(site.position))
                if not isinstance(row, int) or row < 0 or size == 1 or own * size != whole:
                    continue
                starts = {rank: own * capture.coordinates(rank)[axis] for rank in site.position}
                rows = {rank: row - start if 0 <= row - start < own else _NONE for rank, start in starts.items()}
                yield "wrong-shard", SetArgument(site.position, place, rows, "row"), site, 0


def _rows(node: Node, capture: Capture, rank: int | None) -> int:
    """How many rows a table has."""
    graph = capture.spec if rank is None else capture.ranks[rank]
    _, place = _ROWS[node.op]
    assert graph is not None
    count = graph.types[next(node.operands())].shape[0] if place < 0 else node.args[place]
    return count if isinstance(count, int) else 0
