"""Parameters that hold several projections, cut as if they were one: a block of all rows for each rank instead of a block of each projection.

Fused query, key and value, or gate and up: the specification takes the result apart, so each of its parts must be sharded by itself.  How a parameter is cut often stands in
no line of the program, so this is looked at where no edit of the program mends a promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten
from graphguard.refine.finding import Finding, Related
from graphguard.refine.proving.changes import retried
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.editing import fresh, with_nodes
from graphguard.repair.graph.slices import SLICES, SPLITS
from graphguard.repair.text.frames import Sources

Rows = list[tuple[int, int]]
"""Half-open ranges of one dim."""


@dataclass(frozen=True, slots=True)
class Block:
    """A parameter of which every rank has one block along a dim, cut over one axis; ``nodes`` cut it, one a rank."""

    leaf: str
    dim: int
    size: int
    axis: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """Blocks that must be cut part by part, the extents of the parts, and the promises that this mends."""

    blocks: tuple[Block, ...]
    parts: tuple[int, ...]
    mends: tuple[str, ...]

    def needed(self, capture: Capture, rank: int) -> Rows:
        """The rows that a rank needs of the first parameter."""
        block = self.blocks[0]
        return _rows(self.parts, capture.mesh[block.axis], capture.coordinates(rank)[block.axis])


def packed(capture: Capture, proof: Proof, broken: tuple[str, ...]) -> Packed | None:
    """The parameters that, cut part by part, mend broken promises and spoil none; None where there are none."""
    found: dict[tuple[int, ...], list[Block]] = {}
    for block in _blocks(capture):
        for parts in _parts(capture, block):
            found.setdefault(parts, []).append(block)
    for parts, blocks in found.items():
        again = retried(proof, _cut_by_parts(capture, blocks, parts), broken)
        mends = tuple(name for name in broken if again is not None and name not in again.failing)
        if mends:
            return Packed(tuple(blocks), parts, mends)
    return None


def _blocks(capture: Capture) -> Iterator[Block]:
    """Parameters that our own reading of shapes or declarations, or the program while it was built, cut over one axis, in blocks."""
    for leaf in capture.leaves:
        cuts = [_cut(graph, leaf.name) for graph in capture.ranks]
        known = [cut for cut in cuts if cut is not None]
        if (
            leaf.kind != "parameter"
            or len(known) != len(cuts)
            or len({(dim, length) for _, dim, _, length in known}) != 1
        ):
            continue
        _, dim, _, length = known[0]
        size = leaf.type.shape[dim]
        for axis, count in capture.mesh.items():
            starts = [capture.coordinates(rank)[axis] * length for rank in range(capture.world_size)]
            if isinstance(size, int) and count > 1 and length * count == size and starts == [cut[2] for cut in known]:
                yield Block(leaf.name, dim, size, axis, tuple(cut[0] for cut in known))
                break


def _cut(graph: Graph, leaf: str) -> tuple[int, int, int, int] | None:
    """The node that cuts a rank's part out of a leaf, with its dim, start and length; None where the whole is used, or more is done with it before."""
    value = next((var for var, name in graph.inputs.items() if name == leaf), None)
    shape = None if value is None else graph.types[value].shape
    while value is not None:
        readers = [(index, node) for index, node in enumerate(graph.nodes) if value in set(node.operands())]
        if len(readers) != 1 or readers[0][1].phase != "prelude":
            return None
        index, node = readers[0]
        if node.op == aten.view.default:  # of a copy, whose memory is copied as a line
            value = node.outs[0]
            continue
        if graph.types[value].shape != shape:
            return None
        return _split(graph, index, node) if node.op == aten.split.Tensor else _slice(index, node)
    return None


def _slice(index: int, node: Node) -> tuple[int, int, int, int] | None:
    match node.args:
        case (_, int(dim), int(start), int(stop)) if node.op == aten.slice.Tensor:
            return index, dim, start, stop - start
    return None


def _split(graph: Graph, index: int, node: Node) -> tuple[int, int, int, int] | None:
    """The part that is read of a split into equal ones, as a loader's ``chunk`` makes it; None where that is not one of them."""
    out = _kept(graph, node)
    dim = node.args[2] if len(node.args) > 2 else 0
    if out is None or not isinstance(dim, int) or len({graph.types[each] for each in node.outs}) > 1:
        return None
    length = _extent(graph, out, dim)
    return index, dim % len(graph.types[out].shape), node.outs.index(out) * length, length


def _kept(graph: Graph, node: Node) -> Var | None:
    """The only result of a node that is read."""
    read = {var for each in graph.nodes for var in each.operands()} | set(graph.outputs.values())
    kept = [out for out in node.outs if out in read]
    return kept[0] if len(kept) == 1 else None


def _parts(capture: Capture, block: Block) -> Iterator[tuple[int, ...]]:
    """The extents of the parts into which the specification takes what it computes from a parameter, where every rank can have a share of each."""
    assert capture.spec is not None
    count = capture.mesh[block.axis]
    seen: set[tuple[int, ...]] = set()
    for parts in _taken_apart(capture.spec, block):
        if (
            len(parts) > 1
            and sum(parts) == block.size
            and not any(part % count for part in parts)
            and parts not in seen
        ):
            seen.add(parts)
            yield parts


def _taken_apart(graph: Graph, block: Block) -> Iterator[tuple[int, ...]]:
    """The extents of what each tensor that rests on a parameter is split or sliced into, along a dim."""
    reached = {var for var, name in graph.inputs.items() if name == block.leaf}
    slices: dict[tuple[Var, int], set[tuple[int, int]]] = {}
    for node in graph.nodes:
        if node.phase == "backward" or not reached & set(node.operands()):
            continue
        reached.update(node.outs)
        if node.op in SPLITS:
            yield _parts_of_split(graph, node)
        elif node.op == aten.view.default:
            yield from _parts_of_view(graph, node, block.size)
        elif node.op in SLICES and isinstance(node.args[0], Var) and len(node.args) > 3:
            whole, dim, start = node.args[0], node.args[1], node.args[2]
            if isinstance(dim, int) and isinstance(start, int):
                slices.setdefault((whole, dim), set()).add((start, start + _extent(graph, node.outs[0], dim)))
    for (whole, dim), ranges in slices.items():
        ordered = sorted(ranges)
        tiles = ordered[0][0] == 0 and ordered[-1][1] == _extent(graph, whole, dim)
        if tiles and all(one[1] == other[0] for one, other in pairwise(ordered)):
            yield tuple(high - low for low, high in ordered)


def _parts_of_split(graph: Graph, node: Node) -> tuple[int, ...]:
    """The extents of a split's parts along the dim that it cuts; empty where it cuts none, or drops it."""
    whole = graph.types[next(node.operands())].shape
    first = graph.types[node.outs[0]].shape
    if len(whole) != len(first):
        return ()
    cut = next((dim for dim, (size, part) in enumerate(zip(whole, first, strict=True)) if size != part), None)
    return () if cut is None else tuple(_extent(graph, out, cut) for out in node.outs)


def _parts_of_view(graph: Graph, node: Node, size: int) -> Iterator[tuple[int, ...]]:
    """The equal parts into which a view takes a dim of this size, where it makes several dims of it, such as three projections of some heads each."""
    before, after = (
        [_extent(graph, var, dim) for dim in range(len(graph.types[var].shape))]
        for var in (next(node.operands()), node.outs[0])
    )
    for dim, extent in enumerate(before):
        place = next((place for place in range(len(after)) if prod(after[:place]) == prod(before[:dim])), None)
        if extent == size and place is not None and 1 < after[place] < size and size % after[place] == 0:
            yield (size // after[place],) * after[place]


def _extent(graph: Graph, var: Var, dim: int) -> int:
    size = graph.types[var].shape[dim]
    return size if isinstance(size, int) else 0


def _rows(parts: tuple[int, ...], count: int, index: int) -> Rows:
    """The rows of one of ``count`` ranks where each part is cut by itself."""
    starts = [0, *accumulate(parts)]
    return [
        (start + index * (part // count), start + (index + 1) * (part // count))
        for start, part in zip(starts, parts, strict=False)
    ]


def _cut_by_parts(capture: Capture, blocks: list[Block], parts: tuple[int, ...]) -> Capture:
    """The capture in which every rank has its share of each part."""
    graphs = []
    for rank, graph in enumerate(capture.ranks):
        changed: dict[int, tuple[Node, ...]] = {}
        types: dict[Var, TensorType] = {}
        for block in blocks:
            rows = _rows(parts, capture.mesh[block.axis], capture.coordinates(rank)[block.axis])
            changed[block.nodes[rank]] = _pieces(graph, block, block.nodes[rank], rows, types)
        graphs.append(with_nodes(graph, changed, types))
    return replace(capture, ranks=tuple(graphs))


def _pieces(graph: Graph, block: Block, index: int, rows: Rows, types: dict[Var, TensorType]) -> tuple[Node, ...]:
    """The calls that cut some rows of a parameter and join them, in place of the one that cuts a block; ``types`` gets those of the pieces."""
    node = graph.nodes[index]
    kept = _kept(graph, node) or node.outs[0]
    kind = graph.types[kept]
    pieces = []
    for low, high in rows:
        piece = Var(fresh(graph) + len(types))
        types[piece] = replace(kind, shape=(*kind.shape[: block.dim], high - low, *kind.shape[block.dim + 1 :]))
        args = (node.args[0], block.dim, low, high)
        pieces.append(replace(node, op=aten.slice.Tensor, args=args, outs=(piece,)))
    operands = tuple(piece.outs[0] for piece in pieces)
    return (*pieces, replace(node, op=aten.cat.default, args=(operands, block.dim), outs=(kept,)))


def packed_finding(capture: Capture, found: Packed, sources: Sources) -> Finding:
    """What to say of parameters that must be cut part by part: where the first is taken apart, and the rows that a rank has and needs."""
    block = found.blocks[0]
    rank = capture.world_size - 1
    apart = _place(capture, block, sources)
    cut = (
        sources.place(capture.ranks[0], capture.ranks[0].nodes[block.nodes[0]])
        if _is_cut_by_user(capture, block)
        else None
    )
    related = [Related(capture.check.span, "the check that fails")]
    if cut is not None and apart is not None:
        related.insert(0, Related(apart, "here its parts are taken apart"))
    named = " and ".join(f"'{each.leaf}'" for each in found.blocks[:2]) + (", ..." if len(found.blocks) > 2 else "")
    one = len(found.blocks) == 1
    length = block.size // capture.mesh[block.axis]
    start = capture.coordinates(rank)[block.axis] * length
    has, needs = _text([(start, start + length)]), _text(found.needed(capture, rank))
    return Finding(
        rule="wrong-shard",
        headline=f"{named} {'holds' if one else 'hold'} {len(found.parts)} parts and {'is' if one else 'are'} cut as one: "
        f"rank {rank} has rows {has}, needs rows {needs} along axis '{block.axis}'",
        span=cut or apart,
        needed=f"each part of '{block.leaf}' sharded over '{block.axis}' by itself"
        + (" (load=, partition_stride or a strided placement)" if cut is None else ""),
        found=f"one block of '{block.leaf}' on every rank"
        + (", which is how its shape is read" if cut is None else ""),
        tensor=block.leaf,
        promises=found.mends,
        related=tuple(related),
    )


def _is_cut_by_user(capture: Capture, block: Block) -> bool:
    """Whether a line of the program cuts the parameter, and not our own reading of its shape."""
    return capture.ranks[0].nodes[block.nodes[0]].stack >= 0


def _text(rows: Rows) -> str:
    return " and ".join(f"{low}..{high - 1}" if high - low > 1 else str(low) for low, high in rows)


def _place(capture: Capture, block: Block, sources: Sources) -> Span | None:
    """Where a rank takes apart what it computes from the parameter, else where it first reads it."""
    graph = capture.ranks[0]
    reached = set(graph.nodes[block.nodes[0]].outs)
    readers = []
    for node in graph.nodes:
        if node.phase == "forward" and reached & set(node.operands()):
            reached.update(node.outs)
            readers.append(node)
    apart = next((node for node in readers if node.op in SPLITS | SLICES), None)
    first = apart or (readers[0] if readers else None)
    return None if first is None else sources.place(graph, first)
