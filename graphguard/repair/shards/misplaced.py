"""What could be wrong with the parts of tensors at one site: which part a rank reads or sends, how parts are put together, and who sends."""

from __future__ import annotations

from collections.abc import Iterator

from graphguard.ir import Capture, Var
from graphguard.ops import aten, gg, traits_of
from graphguard.repair.graph.edits import MoveSlice, OtherPart, SetArgument, Shift
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.parts import needed_parts, read_parts
from graphguard.repair.graph.slices import SLICES, SPLITS, Site


def misplaced(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Every guess about the parts at a site."""
    if site.node.op in SLICES | SPLITS:
        yield from _at_slices(site, around.capture)
    if site.node.op == aten.cat.default:
        yield from _at_gathered(site, around)
    if site.node.op == gg.all_to_all:
        yield from _at_exchange(site, around)
    if site.node.op == gg.broadcast:
        yield from _at_broadcast(site)
    if traits_of(site.node.op).makes == "range":
        yield from _at_positions(site, around.capture)


def _at_broadcast(site: Site) -> Iterator[Guess]:
    """Another rank of the group may have what all should get."""
    group = site.node.args[2]
    for sender in group if isinstance(group, tuple) else ():
        if sender != site.node.args[1]:
            yield "wrong-relation", SetArgument(site.position, 1, dict.fromkeys(site.position, sender), "src"), site, 1


def _at_slices(site: Site, capture: Capture) -> Iterator[Guess]:
    """Slices that should start where the rank's part starts: offsets in units of the slice's own length, per mesh axis."""
    for axis, size in capture.mesh.items():
        if size == 1:
            continue
        edit: OtherPart | MoveSlice | None = OtherPart(site.position, axis)
        if site.node.op not in SPLITS:
            starts = _starts(site, capture, axis)
            edit = None if starts is None else MoveSlice(site.position, starts, axis)
        if edit is not None and not _is_read(edit, site, capture):
            yield "wrong-shard", edit, site, 2


def _is_read(edit: OtherPart | MoveSlice, site: Site, capture: Capture) -> bool:
    """Whether every rank reads the part already that an edit would give it: beside others at one place in the source it would be told in their stead."""
    read = read_parts(site, capture)
    return len(read) == len(site.position) and read == needed_parts(edit, site, capture)


def _at_gathered(site: Site, around: Neighbours) -> Iterator[Guess]:
    """The parts of an all-gather or an exchange, put together along another dim or in another order."""
    operands = around.operands(site)
    capture = around.capture
    yield from _turned(site, operands, capture)
    if len(operands) != 1 or operands[0].node.op not in (gg.all_gather, gg.all_to_all):
        return
    nodes = {rank: capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
    gathered = {rank: capture.ranks[rank].nodes[index] for rank, index in operands[0].position.items()}
    ordered = {rank: gathered[rank].outs for rank in nodes if rank in gathered}
    if any(nodes[rank].args[0] != parts for rank, parts in ordered.items()):
        yield "wrong-shard", SetArgument(site.position, 0, dict(ordered), "order"), site, 1
    rank = min(nodes)
    dim = nodes[rank].args[1] if len(nodes[rank].args) > 1 else 0
    for other in range(len(capture.ranks[rank].types[nodes[rank].outs[0]].shape)):
        if other != dim and len(nodes[rank].args) > 1:
            yield "wrong-shard", SetArgument(site.position, 1, dict.fromkeys(nodes, other), "dim"), site, 1


def _turned(site: Site, operands: list[Site], capture: Capture) -> Iterator[Guess]:
    """Tensors of the rank itself, put together in the opposite order."""
    parts = {rank: capture.ranks[rank].nodes[index].args[0] for rank, index in site.position.items()}
    turned = {rank: each[::-1] for rank, each in parts.items() if isinstance(each, tuple) and len(each) > 1}
    known = all(operand.state != "off" or operand.relation for operand in operands)
    if site.state == "off" and known and set(turned) == set(parts):
        yield "wrong-shard", SetArgument(site.position, 0, turned, "parts"), site, 2


def _at_exchange(site: Site, around: Neighbours) -> Iterator[Guess]:
    """The parts of a split, sent to the ranks in another order."""
    operands = around.operands(site)
    if len(operands) != 1 or operands[0].node.op not in SPLITS:
        return
    split = operands[0].position
    graphs = around.capture.ranks
    ordered = {rank: graphs[rank].nodes[index].outs for rank, index in split.items() if rank in site.position}
    now = {rank: graphs[rank].nodes[index].args[0] for rank, index in site.position.items()}
    if set(now) == set(ordered) and now != ordered:
        yield "wrong-shard", SetArgument(site.position, 0, dict(ordered), "order"), site, 1


def _at_positions(site: Site, capture: Capture) -> Iterator[Guess]:
    """Positions that start at zero on every rank, although each holds another part of the sequence."""
    for axis, size in capture.mesh.items():
        offsets = {}
        for rank, var in site.tensors.items():
            (*_, length) = (0, *capture.ranks[rank].types[var].shape)
            offsets[rank] = capture.coordinates(rank)[axis] * (length if isinstance(length, int) else 0)
        if size > 1 and any(offsets.values()):
            yield "wrong-shard", Shift(site.tensors, offsets, axis), site, 1


def _starts(site: Site, capture: Capture, axis: str) -> dict[int, int] | None:
    starts: dict[int, int] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        node = graph.nodes[index]
        dim = node.args[1] if len(node.args) > 1 else 0
        if not isinstance(dim, int) or not isinstance(node.args[0], Var):
            return None
        whole = graph.types[node.args[0]].shape[dim]
        length = 1 if node.op == aten.select.int else graph.types[node.outs[0]].shape[dim]
        if not isinstance(length, int) or not isinstance(whole, int):
            return None
        starts[rank] = capture.coordinates(rank)[axis] * length
        if starts[rank] + length > whole:
            return None
    return starts
