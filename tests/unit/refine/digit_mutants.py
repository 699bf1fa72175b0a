"""Programs with one mistake: on all ranks, on one, or on those at one half of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.graph import COLLECTIVES, Arg

Edit = Callable[[Node], Node | None]

_OTHERS = {
    "aten.add.Tensor": "aten.sub.Tensor",
    "aten.sub.Tensor": "aten.add.Tensor",
    "aten.mul.Tensor": "aten.add.Tensor",
    "aten.div.Tensor": "aten.mul.Tensor",
    "aten.silu.default": "aten.sigmoid.default",
    "aten.silu_backward.default": "aten.sigmoid_backward.default",
    "aten.neg.default": "aten.abs.default",
    "aten.rsqrt.default": "aten.sqrt.default",
    "aten.cos.default": "aten.sin.default",
    "aten.sin.default": "aten.cos.default",
}


def _number(at: int, by: int) -> Edit:
    def edit(node: Node) -> Node | None:
        arg = node.args[at] if at < len(node.args) else None
        if type(arg) not in (int, float) or (node.op in COLLECTIVES and at == len(node.args) - 1):
            return None
        return _with(node, at, arg + by)  # type: ignore[operator]

    return edit


def _moved(by: int) -> Edit:
    """A slice of the same length that begins elsewhere."""

    def edit(node: Node) -> Node | None:
        if node.op != "aten.slice.Tensor" or len(node.args) < 4:
            return None
        start, stop = node.args[2], node.args[3]
        if not isinstance(start, int) or not isinstance(stop, int) or start + by < 0:
            return None
        return _with(_with(node, 2, start + by), 3, stop + by)

    return edit


def _with(node: Node, at: int, arg: Arg) -> Node:
    return replace(node, args=(*node.args[:at], arg, *node.args[at + 1 :]))


def _operator(node: Node) -> Node | None:
    return replace(node, op=_OTHERS[node.op]) if node.op in _OTHERS else None


def _reduction(how: str) -> Edit:
    def edit(node: Node) -> Node | None:
        at = next((at for at, arg in enumerate(node.args) if arg in ("sum", "avg")), None)
        return None if at is None or node.args[at] == how else _with(node, at, how)

    return edit


def _group(change: Callable[[tuple[Arg, ...]], tuple[Arg, ...]]) -> Edit:
    def edit(node: Node) -> Node | None:
        group = node.args[-1] if node.op in COLLECTIVES else None
        if not isinstance(group, tuple) or change(group) == group:
            return None
        return _with(node, len(node.args) - 1, change(group))

    return edit


def _swapped(node: Node) -> Node | None:
    """A list in another order."""
    for at, arg in enumerate(node.args):
        if isinstance(arg, tuple) and len(arg) > 1 and all(isinstance(each, Var) for each in arg):
            return _with(node, at, (arg[1], arg[0], *arg[2:]))
    return None


EDITS: dict[str, Edit] = {
    "operator": _operator,
    "sum for a mean": _reduction("sum"),
    "mean for a sum": _reduction("avg"),
    "largest for a sum": _reduction("max"),
    "slice later": _moved(1),
    "slice earlier": _moved(-1),
    "list in another order": _swapped,
    "group reversed": _group(lambda group: group[::-1]),
    "group turned": _group(lambda group: (*group[1:], group[0])),
    "half of a group": _group(lambda group: group[: len(group) // 2]),
    **{f"argument {at} {by:+}": _number(at, by) for at in range(5) for by in (1, -1)},
}


def _dropped(graph: Graph, index: int) -> Graph | None:
    """A graph without a call that changes no type."""
    node = graph.nodes[index]
    if len(node.outs) != 1 or not node.reads or graph.types[node.reads[0]] != graph.types[node.outs[0]]:
        return None
    out, read = node.outs[0], node.reads[0]

    def renamed(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(map(renamed, arg))
        return read if arg == out else arg

    nodes = tuple(
        replace(each, args=tuple(map(renamed, each.args))) for at, each in enumerate(graph.nodes) if at != index
    )
    outputs = {name: read if var == out else var for name, var in graph.outputs.items()}
    labels = {read if var == out else var: name for var, name in graph.labels.items()}
    types = {var: kind for var, kind in graph.types.items() if var != out}
    return replace(graph, nodes=nodes, outputs=outputs, labels=labels, types=types)


def _other_result(graph: Graph, index: int) -> Graph | None:
    """A graph whose call reads the next of several results."""
    turned = {
        a: b
        for node in graph.nodes
        if len(node.outs) > 1
        for a, b in zip(node.outs, (*node.outs[1:], node.outs[0]), strict=True)
    }
    node = graph.nodes[index]
    at = next((at for at, arg in enumerate(node.args) if isinstance(arg, Var) and arg in turned), None)
    if at is None or graph.types[turned[node.args[at]]] != graph.types[node.args[at]]:  # type: ignore[index]
        return None
    return _edited(graph, index, _with(node, at, turned[node.args[at]]))  # type: ignore[index]


def _edited(graph: Graph, index: int, node: Node) -> Graph:
    return replace(graph, nodes=(*graph.nodes[:index], node, *graph.nodes[index + 1 :]))


def _changes(graph: Graph, index: int) -> Iterator[tuple[str, Callable[[Graph], Graph | None]]]:
    for name, edit in EDITS.items():
        if edit(graph.nodes[index]) is not None:

            def change(other: Graph, edit: Edit = edit) -> Graph | None:
                node = edit(other.nodes[index])
                return None if node is None else _edited(other, index, node)

            yield name, change
    if _dropped(graph, index) is not None:
        yield "dropped", lambda other: _dropped(other, index)
    if _other_result(graph, index) is not None:
        yield "another result", lambda other: _other_result(other, index)


def mutants(capture: Capture) -> Iterator[tuple[str, Capture]]:
    """All of them, each with a name; not all are mistakes."""
    count = len(capture.ranks)
    among = {"all": range(count), "the last": [count - 1], "one": [count // 3], "half": range(0, count, 2)}
    among["one coordinate"] = range(count // 4, count // 2)
    for index, node in enumerate(capture.ranks[0].nodes):
        for name, change in _changes(capture.ranks[0], index):
            for where, ranks in among.items():
                changed = list(capture.ranks)
                for rank in ranks:
                    if index < len(changed[rank].nodes):
                        changed[rank] = change(changed[rank]) or changed[rank]
                if any(one is not other for one, other in zip(changed, capture.ranks, strict=True)):
                    yield f"{node.op} #{index}: {name} on {where}", replace(capture, ranks=tuple(changed))
        yield from _with_others(capture, index)


def _with_others(capture: Capture, index: int) -> Iterator[tuple[str, Capture]]:
    """Every rank makes a call of another rank's, where these differ."""
    ranks = capture.ranks
    count = len(ranks)
    others = {
        "the opposite rank": [count - 1 - rank for rank in range(count)],
        "the next rank": [(rank + 1) % count for rank in range(count)],
        "the neighbour": [rank ^ 1 for rank in range(count)],
        "the rank of half the number": [rank // 2 for rank in range(count)],
        "the first rank": [0] * count,
    }
    if any(index >= len(graph.nodes) or graph.nodes[index].op != ranks[0].nodes[index].op for graph in ranks):
        return
    for name, other in others.items():
        changed = tuple(
            _edited(graph, index, replace(graph.nodes[index], args=ranks[other[rank]].nodes[index].args))
            for rank, graph in enumerate(ranks)
        )
        if any(one.nodes[index] != graph.nodes[index] for one, graph in zip(changed, ranks, strict=True)):
            yield f"{ranks[0].nodes[index].op} #{index}: the call of {name}", replace(capture, ranks=changed)
