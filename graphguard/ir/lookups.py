"""Integers that say where to look: which leaf they come from, and what the look-ups allow.

A target of ``nll_loss`` is a class or its ``ignore_index``.  Whether there are ignored ones is for the check to say, by a range that holds the index; where
it says nothing, a program that compares its targets with that index, or an index that is not torch's default, says so as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir.capture import Capture, Leaf
from graphguard.ir.graph import Graph, Node, Var

DEFAULT_IGNORED: Final = -100
_MEAN: Final = 1
_LOSSES: Final = {"aten.nll_loss_forward.default": 4, "aten.nll_loss2d_forward.default": 4}
_COMPARISONS: Final = ("aten.ne.Scalar", "aten.eq.Scalar")
# Operators that look up rows: (position of the table, dim of the table, position of the index).
_LOOKUPS: Final = {
    "aten.embedding.default": (0, 0, 1),
    "aten.index_select.default": (0, None, 2),
    "aten.gather.default": (0, None, 2),
    "aten.nll_loss_forward.default": (0, 1, 1),
    "aten.nll_loss2d_forward.default": (0, 1, 1),
    "aten.one_hot.default": (None, None, 0),
}
# Operators whose integer result holds the values of their first operand, at most shifted or replaced in places.
_PASSING: Final = frozenset(
    (
        "view",
        "_unsafe_view",
        "reshape",
        "clone",
        "_to_copy",
        "to",
        "detach",
        "alias",
        "contiguous",
        "transpose",
        "permute",
        "t",
        "squeeze",
        "unsqueeze",
        "expand",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "unbind",
        "index_put",
        "masked_fill",
        "where",
        "copy",
        "flatten",
    )
)


def implied(spec: Graph) -> dict[str, tuple[int, int]]:
    """The range of every leaf that the specification looks something up with, half-open, as its look-ups need."""
    producers = spec.producers()
    spans: dict[str, tuple[int, int]] = {}
    for node in spec.nodes:
        for index, extent in _looked_up(spec, node):
            leaf, shift = _origin(spec, producers, index)
            if leaf is not None:
                low, high = spans.get(leaf, (-(1 << 62), 1 << 62))
                spans[leaf] = (max(low, shift), min(high, extent + shift))
    return {leaf: (low, high) for leaf, (low, high) in spans.items() if low < high}


def _looked_up(spec: Graph, node: Node) -> list[tuple[Var, int]]:
    """Index operands of a look-up, each with the extent it looks into."""
    if node.op in ("aten.index.Tensor", "aten.index_put.default", "aten._unsafe_index.Tensor"):
        table, indices = node.args[0], node.args[1]
        if not isinstance(table, Var) or not isinstance(indices, tuple):
            return []
        sizes = spec.types[table].shape
        pairs = [(index, sizes[dim]) for dim, index in enumerate(indices) if dim < len(sizes)]
        return [(i, n) for i, n in pairs if isinstance(i, Var) and isinstance(n, int) and spec.types[i].dtype != "bool"]
    if node.op not in _LOOKUPS:
        return []
    table_at, fixed_dim, index_at = _LOOKUPS[node.op]
    index = node.args[index_at]
    extent: object = node.args[1] if table_at is None and len(node.args) > 1 else -1
    if table_at is not None:
        table = node.args[table_at]
        dim = node.args[1] if fixed_dim is None else fixed_dim
        if isinstance(table, Var) and isinstance(dim, int) and spec.types[table].shape:
            extent = spec.types[table].shape[dim]
    return [(index, extent)] if isinstance(index, Var) and isinstance(extent, int) and extent > 0 else []


def _origin(spec: Graph, producers: Mapping[Var, int], var: Var) -> tuple[str | None, int]:
    """The leaf whose values an index holds, and by how much the leaf's values lie above them."""
    shift = 0
    while var in producers:
        node = spec.nodes[producers[var]]
        name = node.op.split(".")[1]
        operands = [arg for arg in node.args if isinstance(arg, Var)]
        literal = next((arg for arg in node.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)), None)
        if name in ("add", "sub") and len(operands) == 1 and literal is not None:
            shift += literal if name == "sub" else -literal
        elif name not in _PASSING or not operands:
            return None, 0
        if name == "where":
            operands = [operand for operand in operands if operand in producers or operand in spec.inputs][
                1:
            ] or operands
        var = operands[0]
    return spec.inputs.get(var), shift


def marked(capture: Capture) -> Capture:
    """The capture, its leaves of targets telling which number of theirs is ignored where there may be ignored ones."""
    if capture.spec is None:
        return capture
    spans, ignored = implied(capture.spec), dict(_ignored(capture.spec))
    leaves, assumed = [], [*capture.assumed]
    for leaf in capture.leaves:
        number = ignored.get(leaf.name)
        if number is None or leaf.value is not None or leaf.name not in spans:
            leaves.append(leaf)
            continue
        low, high = spans[leaf.name]
        if leaf.low is None and leaf.high is None and _spoken_of(capture, leaf, number):
            assumed.append(
                f"{leaf.name} is {number} (ignored) or {low} <= {leaf.name} < {high}, as the specification's own look-ups need"
            )
            leaf = replace(leaf, low=min(low, number), high=max(high, number + 1))
        within = leaf.low is not None and leaf.high is not None and leaf.low <= number < leaf.high
        leaves.append(replace(leaf, ignored=number) if within else leaf)
    return replace(capture, leaves=tuple(leaves), assumed=tuple(assumed))


def _ignored(spec: Graph) -> Iterator[tuple[str, int]]:
    """The leaves that are targets, each with a number beside the classes that means none of them."""
    losses = [node for node in spec.nodes if node.op in _LOSSES]
    producers = spec.producers() if losses else {}
    for node in losses:
        if isinstance(node.args[1], Var):
            leaf, shift = _origin(spec, producers, node.args[1])
            number = node.args[_LOSSES[node.op]]
            classes = next((extent for _, extent in _looked_up(spec, node)), 0)
            if leaf is not None and not shift and isinstance(number, int) and not 0 <= number < classes:
                yield leaf, number


def _spoken_of(capture: Capture, leaf: Leaf, number: int) -> bool:
    """Whether anything in the programs says that there are ignored targets."""
    assert capture.spec is not None
    return number != DEFAULT_IGNORED or any(_compares(graph, leaf, number) for graph in (capture.spec, *capture.ranks))


def _compares(graph: Graph, leaf: Leaf, number: int) -> bool:
    producers = graph.producers()
    return any(
        node.op in _COMPARISONS
        and node.args[1] == number
        and isinstance(node.args[0], Var)
        and _origin(graph, producers, node.args[0]) == (leaf.name, 0)
        for node in graph.nodes
    )


def counted_apart(capture: Capture) -> Iterator[tuple[Leaf, int]]:
    """Targets of which nothing is declared and of which a rank takes the mean over a part, with the number that would be ignored.

    With as many ignored ones on every rank as on the others, or none, a mean of means is the mean.
    """
    ignored = {} if capture.spec is None else dict(_ignored(capture.spec))
    parts = {name for graph in capture.ranks for name in _averaged_parts(graph, capture)} if ignored else set()
    for leaf in capture.leaves:
        if leaf.name in parts and leaf.name in ignored and leaf.low is None and leaf.high is None:
            yield leaf, ignored[leaf.name]


def _averaged_parts(graph: Graph, capture: Capture) -> Iterator[str]:
    means = [node for node in graph.nodes if node.op in _LOSSES and node.args[3] == _MEAN]
    producers = graph.producers() if means else {}
    shapes = {leaf.name: leaf.type.shape for leaf in capture.leaves}
    for node in means:
        target = node.args[1]
        leaf, _ = _origin(graph, producers, target) if isinstance(target, Var) else (None, 0)
        if (
            leaf is not None
            and isinstance(target, Var)
            and _elements(graph.types[target].shape) < _elements(shapes[leaf])
        ):
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
