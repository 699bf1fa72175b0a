"""Numbers that ought to start where the rank's own part of a tensor starts: bounds, positions, and rows that are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from graphguard.ir import Capture, Node, TensorType, Var
from graphguard.ops import OPERATORS, aten, operators, traits_of
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Offset
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site

RULE = "wrong-shard"
_ADDING = operators(lambda op: op.symbol == "+")
_COUNTING = _ADDING | operators(lambda op: op.symbol == "-" or op.compares)
_LOOKING: Mapping[str, tuple[int, ...]] = {
    **{op: (traits.looks_up.at,) for op, traits in OPERATORS.items() if traits.looks_up and traits.looks_up.table == 0},
    aten.masked_fill.Scalar: (0,),
    aten.where.self: (1, 2),
    aten.clamp.default: (0,),
    aten.index.Tensor: (1,),
    aten.scatter.value: (2,),
}
"""Which arguments of an operator may be numbers of rows."""
_LENGTHS = 4  # different lengths of parts that are tried


def offsets(around: Neighbours) -> Iterator[Guess]:
    """A guess for each number, or family of numbers that one tensor is compared with and moved by, that may lack the rank's offset."""
    for axis, size in around.capture.mesh.items():
        if size == 1:
            continue
        for length in _lengths(around.capture, size):
            yield from _constants(around, axis, length)
            yield from _passes(around, axis, size, length)
            yield from _rows(around, axis, length)
        yield from _found(around, axis)
    yield from _blocks(around)


def _lengths(capture: Capture, size: int) -> list[int]:
    """How long a rank's part of a dim may be, the longest first: a length that the ranks have, and the specification that many times."""
    assert capture.spec is not None
    whole = {extent for kind in capture.spec.types.values() for extent in kind.shape if isinstance(extent, int)}
    own = {
        extent
        for graph in capture.ranks
        for kind in graph.types.values()
        for extent in kind.shape
        if isinstance(extent, int)
    }
    found = sorted((extent // size for extent in whole if extent % size == 0 and extent // size in own), reverse=True)
    return [length for length in found if length > 0][:_LENGTHS]


def _numbers(site: Site, around: Neighbours) -> dict[int, int] | None:
    """The number that integers are compared with or moved by, on every rank; None where a site does neither."""
    if site.node.op not in _COUNTING or len(site.node.args) != 2 or site.node.kwargs:
        return None
    found: dict[int, int] = {}
    for rank, index in site.position.items():
        graph = around.capture.ranks[rank]
        tensor, number = graph.nodes[index].args[:2]
        if not isinstance(tensor, Var) or type(number) is not int or not graph.types[tensor].dtype.startswith("int"):
            return None
        found[rank] = number
    return found


def _read(site: Site, around: Neighbours) -> tuple[tuple[int, Var], ...]:
    """The tensors that the ranks compare or move."""
    nodes = ((rank, around.capture.ranks[rank].nodes[index]) for rank, index in sorted(site.position.items()))
    return tuple((rank, next(node.operands())) for rank, node in nodes)


def _constants(around: Neighbours, axis: str, length: int) -> Iterator[Guess]:
    """Numbers that are the same on every rank, or the multiples of another length: all that one tensor is compared with and moved by, then each alone."""
    families: dict[tuple[tuple[int, Var], ...], list[tuple[Site, dict[int, int]]]] = {}
    for site in around.sites.values():
        if (numbers := _numbers(site, around)) is not None:
            families.setdefault(_read(site, around), []).append((site, numbers))
    for family in families.values():
        groups = [family, *([each] for each in family if len(family) > 1)]
        for group in groups:
            added = all(site.node.op in _ADDING for site, _ in group)
            needed = [
                _from_start(numbers, around.capture, axis, -length if site.node.op in _ADDING and not added else length)
                for site, numbers in group
            ]
            yield from _replaced(
                around, axis, length, [(site, now, new) for (site, now), new in zip(group, needed, strict=True)]
            )


def _from_start(numbers: Mapping[int, int], capture: Capture, axis: str, length: int) -> dict[int, int]:
    """The number of the first rank along an axis, and on every other one that many lengths more."""
    first = {rank: _at_start(capture, rank, axis) for rank in numbers}
    return {
        rank: numbers.get(first[rank], number) + length * capture.coordinates(rank)[axis]
        for rank, number in numbers.items()
    }


def _at_start(capture: Capture, rank: int, axis: str) -> int:
    """The rank that is at the start of an axis, and where this one is along all others."""
    here = {**capture.coordinates(rank), axis: 0}
    return next(other for other in range(capture.world_size) if capture.coordinates(other) == here)


def _replaced(
    around: Neighbours, axis: str, length: int, changes: list[tuple[Site, dict[int, int], dict[int, int]]]
) -> Iterator[Guess]:
    """Other numbers at sites that have some."""
    changes = [(site, now, new) for site, now, new in changes if now != new]
    if not changes:
        return
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    for site, _, new in changes:
        for rank, index in site.position.items():
            node = around.capture.ranks[rank].nodes[index]
            calls.setdefault(rank, {})[index] = (replace(node, args=(node.args[0], new[rank])),)
    site, now, new = changes[0]
    rank = next(rank for rank in sorted(new) if new[rank] != now[rank])
    told = f"'{{name}}' goes by another start than that of the rank's own part along axis '{axis}': rank {rank} has {now[rank]}, needs {new[rank]}"
    yield RULE, OtherCalls(calls, _no_types(calls), told, Offset(axis, length, "number")), site, 2


def _no_types(calls: Mapping[int, object]) -> dict[int, dict[Var, TensorType]]:
    return {rank: {} for rank in calls}


def _passes(around: Neighbours, axis: str, size: int, length: int) -> Iterator[Guess]:
    """Positions in a loop that goes through the parts of all ranks: in each pass they are those of the part that has come."""
    for sites in _in_loops(around):
        if len(sites) != size:
            continue
        for sign in (-1, 1) if size > 2 else (-1,):
            changes = [
                (
                    site,
                    {
                        rank: (around.capture.coordinates(rank)[axis] + sign * step) % size * length
                        for rank in site.position
                    },
                )
                for step, site in enumerate(sites)
            ]
            if traits_of(sites[0].node.op).makes == "range":
                yield from _moved(around, axis, length, changes)
            else:
                now = [_numbers(site, around) or {} for site in sites]
                for guess in _replaced(
                    around,
                    axis,
                    length,
                    [(site, before, new) for before, (site, new) in zip(now, changes, strict=True)],
                ):
                    rule, edit, site, cost = guess
                    assert isinstance(edit, OtherCalls)
                    told = edit.told.replace("the rank's own part", "the part that has come")
                    yield rule, replace(edit, told=told, means=Offset(axis, length, "pass")), site, cost


def _blocks(around: Neighbours) -> Iterator[Guess]:
    """Positions in a loop that goes through blocks of the rank's own part: each pass has those behind the ones of the pass before."""
    for sites in _in_loops(around):
        extents = {around.capture.ranks[rank].types[var].shape for site in sites for rank, var in site.tensors.items()}
        shape = extents.pop() if len(extents) == 1 else ()
        length = shape[0] if len(shape) == 1 else None
        if not isinstance(length, int) or len({_arguments(site, around) for site in sites}) > 1:
            continue
        told = (
            f"'{{name}}' is the same in each of {len(sites)} passes: every one needs {length} more than the one before"
        )
        offset = Offset("", length, "block")
        changes = [(site, dict.fromkeys(site.position, step * length)) for step, site in enumerate(sites[1:], 1)]
        yield RULE, _added(around, changes, told, offset), sites[0], 2


def _arguments(site: Site, around: Neighbours) -> tuple[tuple[int, object], ...]:
    """What is no tensor among the arguments of a site, by rank."""
    return tuple(
        (rank, tuple(arg for arg in around.capture.ranks[rank].nodes[index].args if not isinstance(arg, Var)))
        for rank, index in sorted(site.position.items())
    )


def _in_loops(around: Neighbours) -> Iterator[list[Site]]:
    """Positions that are made at one place of the source several times, in order."""
    found: dict[object, list[Site]] = {}
    for site in around.sites.values():
        made = traits_of(site.node.op).makes == "range" or (
            site.node.op in _ADDING and _numbers(site, around) is not None
        )
        if made and site.node.stack >= 0:
            graph = around.capture.ranks[min(site.position)]
            found.setdefault((site.node.op, graph.stack_of(site.node.stack)), []).append(site)
    yield from (sites for sites in found.values() if len(sites) > 1)


def _moved(around: Neighbours, axis: str, length: int, changes: list[tuple[Site, dict[int, int]]]) -> Iterator[Guess]:
    """Numbers added to positions, another one in every pass."""
    site, numbers = next((site, numbers) for site, numbers in changes if any(numbers.values()))
    rank = next(rank for rank in sorted(numbers) if numbers[rank])
    start = numbers[rank]
    told = f"'{{name}}' starts at 0 in every pass: rank {rank} has 0..{length - 1}, needs {start}..{start + length - 1} along axis '{axis}' for the part that has come"
    yield RULE, _added(around, changes, told, Offset(axis, length, "pass")), site, 2


def _found(around: Neighbours, axis: str) -> Iterator[Guess]:
    """Places that each rank finds in its own part of a dim, as the largest of its part of a vocabulary."""
    for site in around.sites.values():
        traits = traits_of(site.node.op)
        slot, argument = traits.places, traits.dim_at
        if slot is None or argument is None:
            continue
        rank = min(site.position)
        node, types = around.capture.ranks[rank].nodes[site.position[rank]], around.capture.ranks[rank].types
        shape = types[next(node.operands())].shape
        dim = node.args[argument] if len(node.args) > argument else -1
        length = shape[dim] if shape and isinstance(dim, int) else None
        if not isinstance(length, int) or slot >= len(node.outs):
            continue
        numbers = {rank: around.capture.coordinates(rank)[axis] * length for rank in site.position}
        last = max(numbers, key=lambda rank: numbers[rank])
        told = f"'{{name}}' gives places in the rank's own part along axis '{axis}': in the whole they are {numbers[last]} further on rank {last}"
        edit = _added(around, [(site, numbers)], told, Offset(axis, length, "found", slot=slot), slot)
        yield RULE, edit, site, 2


def _added(
    around: Neighbours, changes: list[tuple[Site, dict[int, int]]], told: str, offset: Offset, slot: int = 0
) -> OtherCalls:
    """Numbers added to what sites give, by rank."""
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for site, numbers in changes:
        for rank, index in site.position.items():
            graph = around.capture.ranks[rank]
            node, own = graph.nodes[index], types.setdefault(rank, {})
            before = Var(fresh(graph) + len(own))
            own[before] = graph.types[node.outs[slot]]
            moved = (node.outs[slot],)
            added = replace(node, op=aten.add.Tensor, args=(before, numbers[rank]), kwargs={}, outs=moved, draw=None)
            outs = (*node.outs[:slot], before, *node.outs[slot + 1 :])
            calls.setdefault(rank, {})[index] = (replace(node, outs=outs), added)
    return OtherCalls(calls, types, told, offset)


def _rows(around: Neighbours, axis: str, length: int) -> Iterator[Guess]:
    """Numbers of rows of the whole, where a rank looks them up in its own part."""
    for site in around.sites.values():
        for place in _LOOKING.get(site.node.op, ()):
            edit = _less(site, place, around, axis, length)
            if edit is not None:
                yield RULE, edit, site, 3


def _less(site: Site, place: int, around: Neighbours, axis: str, length: int) -> OtherCalls | None:
    """One argument of a call less the start of the rank's part; None where it is no tensor of integers."""
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    read: dict[int, Var] = {}
    for rank, index in site.position.items():
        graph = around.capture.ranks[rank]
        node = graph.nodes[index]
        given = node.args[place] if len(node.args) > place else None
        only = [each for each in given if each is not None] if isinstance(given, tuple) else [given]
        var = only[0] if len(only) == 1 else None
        if not isinstance(var, Var) or not graph.types[var].dtype.startswith("int"):
            return None
        read[rank], new = var, Var(fresh(graph))
        types[rank] = {new: graph.types[var]}
        start = length * around.capture.coordinates(rank)[axis]
        moved = replace(node, op=aten.sub.Tensor, args=(var, start), kwargs={}, outs=(new,), draw=None)
        argument = tuple(new if each == var else each for each in given) if isinstance(given, tuple) else new
        args = (*node.args[:place], argument, *node.args[place + 1 :])
        calls[rank] = {index: (moved, replace(node, args=args))}
    last = max(site.position, key=lambda rank: around.capture.coordinates(rank)[axis])
    start = length * around.capture.coordinates(last)[axis]
    told = f"'{{name}}' takes numbers of the whole for those of the rank's own part: rank {last} needs them less {start}, where its part along axis '{axis}' starts"
    return OtherCalls(calls, types, told, Offset(axis, length, "rows", read))
