"""Numbers that are no number of the specification's, where it has one that no rank has: another epsilon, another power, another learning rate, wherever it is computed with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphguard.ir import Capture, Graph, Node
from graphguard.ir.graph import Arg
from graphguard.ops import aten
from graphguard.repair.graph.edits import Call, ChangeCall
from graphguard.repair.graph.neighbours import SCALING, Guess, Neighbours

_COST: Final = 1
_SCALED: Final = 2  # a factor: that of a number of ranks is likelier
_WITH_NUMBERS: Final = (aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.pow.Tensor_Scalar)
_WITH_FACTORS: Final = (aten.add.Tensor, aten.sub.Tensor, aten.addcdiv.default, aten.addcmul.default)
_PHASES: Final = ("forward", "step")
_FACTORS: Final = ("alpha", "value")  # what operators call the number that one of their operands is multiplied by


def constants(around: Neighbours) -> Iterator[Guess]:
    """A guess for each call with such a number: the one of the specification's that the ranks lack."""
    for op in _WITH_NUMBERS:
        yield from _otherwise(around, op, "")
    for op in _WITH_FACTORS:
        for name in _FACTORS:
            yield from _otherwise(around, op, name)


def _otherwise(around: Neighbours, op: str, name: str) -> Iterator[Guess]:
    capture = around.capture
    if capture.spec is None:
        return
    meant, held = _numbers(capture.spec, op, name), _numbers(capture.ranks[0], op, name)
    lacking = [number for number in meant if number not in held]
    if len(lacking) != 1:
        return
    for site in around.sites.values():
        number = _number(site.node, op, name)
        if number is not None and number not in meant and site.node.phase in _PHASES:
            edit = _with(capture, site.position, meant[lacking[0]], name)
            yield ("wrong-scale", edit, site, _SCALED) if op in SCALING else ("wrong-relation", edit, site, _COST)


def _with(capture: Capture, position: dict[int, int], meant: Node, name: str) -> ChangeCall:
    """The ranks' call with the number that the specification's is called with."""
    args: dict[int, tuple[Arg, ...]] = {}
    kwargs: dict[str, Arg] = {}
    for rank, index in position.items():
        own = capture.ranks[rank].nodes[index]
        args[rank] = own.args if name else (own.args[0], meant.args[1], *own.args[2:])
        kwargs = {**own.kwargs, name: meant.kwargs[name]} if name else dict(meant.kwargs)
    assert capture.spec is not None
    frames = capture.spec.stack_of(meant.stack) if meant.stack >= 0 else ()
    return ChangeCall(position, Call(meant.op, args, kwargs, frames[0].span if frames else None))


def _numbers(graph: Graph, op: str, name: str) -> dict[float, Node]:
    """The numbers that an operator is called with in forward passes and optimizers' steps, each with the first such call."""
    found: dict[float, Node] = {}
    for node in graph.nodes:
        if (number := _number(node, op, name)) is not None and node.phase in _PHASES:
            found.setdefault(number, node)
    return found


def _number(node: Node, op: str, name: str) -> float | None:
    """The number that an operator is called with: by its name, or as its second operand."""
    if node.op != op:
        return None
    number = node.kwargs.get(name) if name else node.args[1] if len(node.args) > 1 else None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None
