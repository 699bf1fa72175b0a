"""Numbers that are no number of the specification's, where it has one that no rank has: another epsilon, another power, wherever it is computed with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphguard.ir import Capture, Graph, Node
from graphguard.repair.edits import Call, ChangeCall
from graphguard.repair.neighbours import Guess, Neighbours

_COST: Final = 1
_WITH_NUMBERS: Final = ("aten.add.Tensor", "aten.add.Scalar", "aten.pow.Tensor_Scalar")


def constants(around: Neighbours) -> Iterator[Guess]:
    """A guess for each call with such a number: the one of the specification's that the ranks lack."""
    capture = around.capture
    for op in _WITH_NUMBERS if capture.spec is not None else ():
        meant, held = _numbers(capture.spec, op), _numbers(capture.ranks[0], op)  # type: ignore[arg-type]
        lacking = [node for number, node in meant.items() if number not in held]
        if len(lacking) != 1:
            continue
        for site in around.sites.values():
            number = _number(site.node, op)
            if number is None or number in meant or site.node.phase != "forward":
                continue
            yield "wrong-relation", _with(capture, site.position, lacking[0]), site, _COST


def _with(capture: Capture, position: dict[int, int], meant: Node) -> ChangeCall:
    args = {
        rank: (capture.ranks[rank].nodes[index].args[0], meant.args[1], *capture.ranks[rank].nodes[index].args[2:])
        for rank, index in position.items()
    }
    assert capture.spec is not None
    frames = capture.spec.stack_of(meant.stack) if meant.stack >= 0 else ()
    return ChangeCall(position, Call(meant.op, args, meant.kwargs, frames[0].span if frames else None))


def _numbers(graph: Graph, op: str) -> dict[float, Node]:
    """The numbers that an operator is called with in a forward pass, each with the first such call."""
    found: dict[float, Node] = {}
    for node in graph.nodes:
        if (number := _number(node, op)) is not None and node.phase == "forward":
            found.setdefault(number, node)
    return found


def _number(node: Node, op: str) -> float | None:
    number = node.args[1] if node.op == op and len(node.args) > 1 else None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None
