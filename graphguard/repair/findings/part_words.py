"""What is said of a rank that works on another part than its own."""

from __future__ import annotations

from graphguard.ir import Capture
from graphguard.repair.graph.edits import (
    MoveDiagonal,
    MoveSlice,
    OtherPart,
    OwnPlace,
    SetArgument,
    Shift,
)
from graphguard.repair.graph.parts import Part, needed_parts, read_parts
from graphguard.repair.graph.places import differing_number
from graphguard.repair.graph.slices import Site
from graphguard.repair.shards.triangles import unmoved
from graphguard.repair.writing.words import Named, span_text


def untranslated_text(edit: SetArgument, name: str, site: Site) -> str:
    """A row that is not the one that is meant in a rank's part of a table."""
    now = site.node.args[edit.index]
    rank = next(rank for rank, row in sorted(edit.values.items()) if row != now)
    needed = f"row {edit.values[rank]}" if edit.values[rank] != -1 else "none, for another rank has that row"
    return f"'{name}' names row {now} of its own part of the table: rank {rank} needs {needed}"


def wrong_part_text(
    edit: MoveDiagonal | MoveSlice | OtherPart | Shift, name: str, site: Site, capture: Capture, named: Named
) -> str:
    """A rank works on another part than its own: which it reads, and which it needs."""
    if isinstance(edit, MoveDiagonal):
        return unmoved(edit, name)
    if isinstance(edit, Shift):
        rank, offset = max(edit.offsets.items(), key=lambda item: item[1])
        length = offset // max(1, capture.coordinates(rank)[edit.axis])
        now, needed = span_text(0, length), span_text(offset, length)
        return f"'{name}' starts at 0 on every rank: rank {rank} has {now}, needs {needed} along axis '{edit.axis}'"
    now_by_rank = read_parts(site, capture)
    needed_by_rank = needed_parts(edit, site, capture)
    whole = next((text for rank in site.position if (text := _operand_name(site, rank, capture, named))), "")
    what = f"'{name}' is the wrong part of '{whole}'" if whole and whole not in name else f"'{name}' is the wrong part"
    for rank in sorted(now_by_rank):
        read, wanted = now_by_rank[rank], needed_by_rank.get(rank)
        if wanted is not None and read != wanted:
            return f"{what}: rank {rank} reads {_part_text(read)}, needs {_part_text(wanted)} along axis '{edit.axis}'"
    return f"{what}: each rank needs its own along axis '{edit.axis}'"


def wrong_place_text(edit: OwnPlace, name: str, capture: Capture) -> str:
    """Numbers that come from another rank than the one of the axis."""
    what = f"'{name}' goes by the rank in the whole world"
    if (found := differing_number(capture, edit)) is None:
        ranks = f"rank {min(edit.position)} alone" if len(edit.position) == 1 else "some ranks alone"
        told = f"'{name}' is computed on {ranks}" if len(edit.position) < capture.world_size else f"'{name}'"
        return f"{told}, which goes by the rank in the whole world: the place along axis '{edit.axis}' is meant"
    rank, mine, meant = found
    return f"{what}: rank {rank} has {mine}, needs {meant} by its place along axis '{edit.axis}'"


def _operand_name(site: Site, rank: int, capture: Capture, named: Named) -> str:
    var = next(capture.ranks[rank].nodes[site.position[rank]].operands(), None)
    return "" if var is None else named(rank, var)


def _part_text(part: Part) -> str:
    """``rows 0..3``, ``row 3``, ``rows 1, 3, 5``, ``dim 1, 0..3``."""
    if part.step > 1:
        places = [str(part.start + part.step * each) for each in range(part.length)]
        text = ", ".join(places if len(places) <= 4 else [*places[:3], "...", places[-1]])
    else:
        text = span_text(part.start, part.length)
    if part.dim:
        return f"{text} of dim {part.dim}"
    return f"{'row' if part.length == 1 else 'rows'} {text}"
