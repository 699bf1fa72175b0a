"""Ranks that go by their place in the whole world where that along one mesh axis is meant: ``get_rank()`` without a group.

What a rank should then run is what the rank at its place along the axis, and at the start of all others, runs: the same operators and numbers, on its own shards and groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, Graph, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.repair.graph.edits import OwnPlace
from graphguard.repair.graph.neighbours import Guess, Neighbours


def places(around: Neighbours) -> Iterator[Guess]:
    """One guess for each axis along which some rank would run something else, at the first site where it does."""
    capture = around.capture
    axes = [axis for axis, size in capture.mesh.items() if size > 1]
    for axis in axes if len(axes) > 1 else ():
        graphs = [graph_of_place(capture, rank, axis) for rank in range(capture.world_size)]
        if any(graph is None for graph in graphs):
            continue
        for site in around.sites.values():
            lacking = len(site.position) < capture.world_size
            if lacking or any(_differs(capture.ranks[r], graphs[r], at) for r, at in site.position.items()):
                yield "wrong-shard", OwnPlace(site.position, axis), site, 1
                break


def _differs(own: Graph, meant: Graph | None, index: int) -> bool:
    """Whether a call stands in another way in the other graph."""
    if meant is None or index >= len(meant.nodes) or own.nodes[index].op != meant.nodes[index].op:
        return True
    return _numbers(own.nodes[index].args) != _numbers(meant.nodes[index].args)


def _numbers(args: tuple[Arg, ...]) -> list[int | float]:
    return [arg for arg in args if isinstance(arg, int | float)]


def graph_of_place(capture: Capture, rank: int, axis: str) -> Graph | None:
    """What the rank at the same place along an axis and at the start of all others runs, on this rank's shards and groups; None where they are cut in other ways."""
    here = capture.coordinates(rank)
    other = _rank_at(capture, {name: here[name] if name == axis else 0 for name in capture.mesh})
    own, meant = capture.ranks[rank], capture.ranks[other]
    names = _names(own, meant)
    if other == rank or names is None:
        return own if other == rank else None
    nodes = [node for node in own.nodes if node.phase == "prelude"]
    types = dict(own.types)
    last = 1 + max(var.id for var in own.types)
    for node in meant.nodes:
        if node.phase == "prelude":
            continue
        for out in node.outs:
            names[out] = Var(last + out.id)
            types[names[out]] = meant.types[out]
        collective = node.op in COLLECTIVES
        args = tuple(
            _moved(capture, arg, other, rank) if collective else arg for arg in (_renamed(a, names) for a in node.args)
        )
        outs, kwargs = (
            tuple(names[out] for out in node.outs),
            {key: _renamed(arg, names) for key, arg in node.kwargs.items()},
        )
        nodes.append(replace(node, args=args, kwargs=kwargs, outs=outs))
    constants = {names[var]: value for var, value in meant.constants.items() if var in names}
    return replace(
        meant,
        inputs=own.inputs,
        constants={**own.constants, **constants},
        nodes=tuple(nodes),
        types=types,
        outputs={name: names.get(var, var) for name, var in meant.outputs.items()},
        labels=own.labels,
        symbols={name: names.get(var, var) for name, var in meant.symbols.items()},
    )


def _names(own: Graph, meant: Graph) -> dict[Var, Var] | None:
    """What a rank has for the inputs, parameters and constants of another; None where one has no such tensor of that type."""
    found: dict[Var, Var] = {}
    for mine, theirs in ((own.inputs, meant.inputs), (own.labels, meant.labels)):
        known = {name: var for var, name in mine.items()}
        for var, name in theirs.items():
            if name not in known or own.types[known[name]] != meant.types[var]:
                return None
            found[var] = known[name]
    return found


def _renamed(arg: Arg, names: dict[Var, Var]) -> Arg:
    if isinstance(arg, Var):
        return names.get(arg, arg)
    return tuple(_renamed(each, names) for each in arg) if isinstance(arg, tuple) else arg


def _rank_at(capture: Capture, place: dict[str, int]) -> int:
    return next(rank for rank in range(capture.world_size) if capture.coordinates(rank) == place)


def _moved(capture: Capture, arg: Arg, start: int, rank: int) -> Arg:
    """A group of ranks around one of them, as it lies around another; anything else stays."""
    if not isinstance(arg, tuple) or start not in arg or not all(isinstance(each, int) for each in arg):
        return arg
    here, there = capture.coordinates(start), capture.coordinates(rank)
    group = []
    for member in arg:
        assert isinstance(member, int)
        if not 0 <= member < capture.world_size:
            return arg
        place = capture.coordinates(member)
        group.append(_rank_at(capture, {a: (place[a] + there[a] - here[a]) % size for a, size in capture.mesh.items()}))
    return tuple(group)


def differing_number(capture: Capture, edit: OwnPlace) -> tuple[int, Arg, Arg] | None:
    """A rank, a number that it has, and the one that it needs, the first that differs; None where the ranks run different operators."""
    for rank, index in sorted(edit.position.items()):
        own, meant = capture.ranks[rank], graph_of_place(capture, rank, edit.axis)
        if meant is None or [node.op for node in own.nodes] != [node.op for node in meant.nodes]:
            return None
        for mine, theirs in zip(_numbers(own.nodes[index].args), _numbers(meant.nodes[index].args), strict=True):
            if mine != theirs:
                return rank, mine, theirs
    return None
