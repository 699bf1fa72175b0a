"""Targets that may be ignored: the one number of a range that is no class.

A target of ``nll_loss`` is a class or its ``ignore_index``.  Whether there are ignored ones is for the check to say, by a range that holds the index; where
it says nothing, a program that compares its targets with that index, or an index that is not torch's default, says so as well.  So does a specification
that puts another number in the place of one number before it looks its targets up, as in ``labels[labels == -100] = 0``: what it would look up besides
is an error of its own, so a declared range that holds more is read as that number and those that can be looked up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir.capture import Capture, Leaf
from graphguard.ir.graph import Graph, Node, Var
from graphguard.ir.lookups import MOVING, held_by, implied, looked_up, origins
from graphguard.ops import aten

DEFAULT_IGNORED: Final = -100
_MEAN: Final = 1
_LOSSES: Final = dict.fromkeys((aten.nll_loss_forward.default, aten.nll_loss2d_forward.default), 4)
_COMPARISONS: Final = (aten.ne.Scalar, aten.eq.Scalar)


def marked(capture: Capture) -> Capture:
    """The capture, its leaves of targets telling which number of theirs is ignored where there may be ignored ones."""
    if capture.spec is None:
        return capture
    spans, ignored, losses = implied(capture.spec), _ignored(capture.spec), _targets(capture.spec)
    leaves, assumed = [], [*capture.assumed]
    for leaf in capture.leaves:
        number = ignored.get(leaf.name)
        if number is None or leaf.value is not None or leaf.name not in spans:
            leaves.append(leaf)
            continue
        low, high = spans[leaf.name]
        declared = leaf.low is not None and leaf.high is not None
        if not declared and _spoken_of(capture, leaf, number):
            least = min(low, number) if leaf.low is None else leaf.low
            leaf = replace(leaf, low=least, high=max(high, number + 1) if leaf.high is None else leaf.high)
        within = leaf.low is not None and leaf.high is not None and leaf.low <= number < leaf.high
        if within and not (declared and leaf.name in losses):
            assumed.append(
                f"{leaf.name} is {number} (ignored) or {low} <= {leaf.name} < {high}, as the specification's own look-ups need"
            )
        leaves.append(replace(leaf, ignored=number) if within else leaf)
    return replace(capture, leaves=tuple(leaves), assumed=tuple(assumed))


def _ignored(spec: Graph) -> dict[str, int]:
    """The leaves that are targets, each with a number beside the classes that means none of them wherever the leaf is looked up."""
    numbers: dict[str, set[int]] = {}
    found = [(node, index, extent) for node in spec.nodes for index, extent in looked_up(spec, node)]
    producers = spec.producers() if found else {}
    for node, index, extent in found:
        for leaf, shift in origins(spec, producers, index):
            told = set() if shift else {*_told(node), *_replaced(spec, producers, index, leaf)}
            here = {number for number in told if not 0 <= number < extent}
            numbers[leaf] = here & numbers.get(leaf, here)
    return {leaf: min(found) for leaf, found in numbers.items() if found}


def _targets(spec: Graph) -> set[str]:
    """The leaves that are targets of losses that ignore some: what such a range means is known."""
    producers = spec.producers()
    found = (looked_up(spec, node) for node in spec.nodes if node.op in _LOSSES)
    return {leaf for pairs in found for index, _ in pairs for leaf, _ in origins(spec, producers, index)}


def _told(node: Node) -> Iterator[int]:
    """The number that a loss is told to ignore."""
    number = node.args[_LOSSES[node.op]] if node.op in _LOSSES else None
    if isinstance(number, int):
        yield number


def _replaced(graph: Graph, producers: Mapping[Var, int], var: Var, leaf: str) -> Iterator[int]:
    """Numbers of a leaf in whose place another one is put on the way to an index."""
    while var in producers:
        node = graph.nodes[producers[var]]
        held = held_by(graph, producers, node)
        mine = next((one for one in held if (leaf, 0) in origins(graph, producers, one)), None)
        if mine is None:
            return
        for mask, gone in _masks(node, mine):
            number = _marked_by(graph, producers, mask, gone, leaf)
            if number is not None:
                yield number
        var = mine


def _masks(node: Node, held: Var) -> Iterator[tuple[Var, bool]]:
    """The condition under which a result holds another number than an operand, and whether it does so where that is true."""
    name = node.op.split(".")[1]
    if name == "where":
        condition, first = node.args[:2]
        found: tuple[object, bool] = (condition, first != held)
    elif name == "masked_fill":
        found = (node.args[1], True)
    elif name == "index_put":
        places = node.args[1]
        found = (places[0] if isinstance(places, tuple) and len(places) == 1 else None, True)
    elif name == "mul":
        found = (next((arg for arg in node.args if arg != held), None), False)
    else:
        return
    mask, gone = found
    if isinstance(mask, Var):
        yield mask, gone


def _marked_by(graph: Graph, producers: Mapping[Var, int], mask: Var, gone: bool, leaf: str) -> int | None:
    """The number at which a mask is ``gone`` and nowhere else; None where it is another kind of mask."""
    while mask in producers:
        node = graph.nodes[producers[mask]]
        name, operand = node.op.split(".")[1], node.args[0]
        if not isinstance(operand, Var):
            return None
        if node.op in _COMPARISONS:
            number = node.args[1]
            same = gone == (name == "eq") and (leaf, 0) in origins(graph, producers, operand)
            return number if same and isinstance(number, int) and not isinstance(number, bool) else None
        if name in ("bitwise_not", "logical_not"):
            gone = not gone
        elif node.op not in MOVING:
            return None
        mask = operand
    return None


def _spoken_of(capture: Capture, leaf: Leaf, number: int) -> bool:
    """Whether anything in the programs says that there are ignored targets."""
    return number != DEFAULT_IGNORED or any(_compares(graph, leaf, number) for graph in capture.graphs)


def _compares(graph: Graph, leaf: Leaf, number: int) -> bool:
    producers = graph.producers()
    return any(
        node.op in _COMPARISONS
        and node.args[1] == number
        and isinstance(node.args[0], Var)
        and (leaf.name, 0) in origins(graph, producers, node.args[0])
        for node in graph.nodes
    )


def counted_apart(capture: Capture) -> Iterator[tuple[Leaf, int]]:
    """Targets of which nothing is declared and of which a rank takes the mean over a part, with the number that would be ignored.

    With as many ignored ones on every rank as on the others, or none, a mean of means is the mean.
    """
    parts = {name for graph in capture.ranks for name in _averaged_parts(graph, capture)}
    ignored = _ignored(capture.spec) if parts and capture.spec is not None else {}
    for leaf in capture.leaves:
        if leaf.name in parts and leaf.name in ignored and leaf.low is None and leaf.high is None:
            yield leaf, ignored[leaf.name]


def _averaged_parts(graph: Graph, capture: Capture) -> Iterator[str]:
    means = [node for node in graph.nodes if node.op in _LOSSES and node.args[3] == _MEAN]
    if not means:
        return
    producers = graph.producers()
    shapes = {leaf.name: leaf.type.shape for leaf in capture.leaves}
    for node in means:
        target = node.args[1]
        for leaf, _ in origins(graph, producers, target) if isinstance(target, Var) else ():
            if isinstance(target, Var) and _elements(graph.types[target].shape) < _elements(shapes[leaf]):
                yield leaf


def _elements(shape: tuple[object, ...]) -> int:
    return math.prod(size for size in shape if isinstance(size, int))


def without_ignored(capture: Capture) -> Capture:
    """The same claim for targets of which none is ignored; the capture itself where there are no others."""
    names = [leaf.name for leaf in capture.leaves if leaf.ignored is not None]
    if not names:
        return capture
    leaves = [leaf if leaf.ignored is None else _classes_only(leaf) for leaf in capture.leaves]
    told = tuple(
        f"the proof is for a '{name}' without ignored targets; with some, the programs agree on numbers"
        for name in names
    )
    return replace(capture, leaves=tuple(leaves), assumed=(*capture.assumed, *told))


def _classes_only(leaf: Leaf) -> Leaf:
    """The leaf without its ignored number, at one end of its range; the look-ups bound what is left."""
    return replace(leaf, low=None, high=None, ignored=None)
