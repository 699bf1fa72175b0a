"""Calls that reduce, scale or pad in another way than the specification's calls of the same operator, which all do it alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphguard.ir import Capture, Node
from graphguard.repair.graph.edits import Call, ChangeCall
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.operators.guided import specified_at
from graphguard.repair.text.settings import CODED, place_of, setting_of

_COST: Final = 1
_SCALES: Final = frozenset({"reduction", "normalization"})


def coded(around: Neighbours) -> Iterator[Guess]:
    """A guess for each call with a setting that the specification has otherwise in all calls of the operator."""
    capture = around.capture
    for site in around.sites.values():
        if site.node.phase != "forward":
            continue
        for name in CODED:
            meant = _only(capture, site.node, name)
            place = place_of(site.node, name)
            if meant is None or place is None or setting_of(meant, name) == setting_of(site.node, name):
                continue
            nodes = {rank: capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
            wanted = setting_of(meant, name)
            args = {rank: (*node.args[:place], wanted, *node.args[place + 1 :]) for rank, node in nodes.items()}
            call = Call(site.node.op, args, site.node.kwargs, specified_at(capture, meant))  # type: ignore[arg-type]
            yield "wrong-scale" if name in _SCALES else "wrong-relation", ChangeCall(site.position, call), site, _COST


def _only(capture: Capture, node: Node, name: str) -> Node | None:
    """The first of the specification's calls of an operator; None where they are not set alike."""
    calls = [each for each in capture.spec.nodes if each.op == node.op] if capture.spec is not None else []
    return calls[0] if len({str(setting_of(each, name)) for each in calls}) == 1 else None
