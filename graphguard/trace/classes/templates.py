"""A rank's graph as a program with holes: what ranks of one class share, and the numbers in which they differ.

A hole is a number among the arguments of a call, a rank, a number within a name, which of several results of a call is read, where in a list the one tensor stands that is unlike the others, or a literal tensor.
Graphs have one skeleton if they differ in nothing else.  Leaves are told by where they are read first, other tensors by the call that makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Sym, Var
from graphguard.ops import COLLECTIVE, aten
from graphguard.trace.graph.meetings import Stop

Hole: TypeAlias = tuple[str, Any]
"""What kind of number it is, and the number."""
Fill: TypeAlias = Callable[[str, Any], Any]
"""Gives the number that is to stand in a hole, in the order of holes."""

_NUMBERS: Final = re.compile(r"(0|[1-9]\d*)")
# Collectives' arguments that are a rank or ranks, by place.
_RANKED: Final = {
    op: tuple(place for place, name in enumerate(one.arguments.split()) if name in ("root", "peer", "group"))
    for op, one in COLLECTIVE.items()
} | {"gg.new_group": (0, 1), "gg.split_group": (0, 1)}
_RANKED_NAMES: Final = frozenset(("group", "src", "dst", "ranks"))
# Where slices say from where to where: the end is as far behind the start on every rank.
_ENDS: Final = {
    aten.slice.Tensor: (2, 3),
    aten.slice_scatter.default: (3, 4),
    aten.slice_backward.default: (3, 4),
}


class UnlikeError(Exception):
    """Holes cannot be filled so."""


@dataclass(frozen=True, slots=True)
class Template:
    """One recorded rank: its skeleton, its holes by unit (a call, or what there is beside calls), and the names of all its leaves."""

    graph: Graph
    stops: tuple[Stop, ...]
    skeleton: Any
    holes: tuple[tuple[Hole, ...], ...]

    @classmethod
    def of(cls, graph: Graph, stops: tuple[Stop, ...] = ()) -> Template:
        """A graph, and the stops that were recorded beside it, taken apart."""
        taking = _Taking()
        walk = _Walk(graph, stops, taking.take)
        skeletons, holes = [], []
        for unit in range(walk.units):
            taking.found = []
            skeletons.append(walk.unit(unit)[0])
            holes.append(tuple(taking.found))
        return cls(graph, stops, (tuple(skeletons), tuple(one for one, _ in stops)), tuple(holes))

    def filled(self, numbers: Sequence[Sequence[Any]], changed: Iterable[int]) -> tuple[Graph, tuple[Stop, ...]]:
        """The graph and the stops of a rank with these numbers in the holes of every unit, of which those ``changed`` differ; raises ``UnlikeError``."""
        filling = _Filling()
        walk = _Walk(self.graph, self.stops, filling.fill)
        parts: dict[int, Any] = {}
        for unit in sorted(changed):
            filling.left = list(reversed(numbers[unit]))
            parts[unit] = walk.unit(unit)[1]
        return walk.put_together(parts)


class _Taking:
    def __init__(self) -> None:
        self.found: list[Hole] = []

    def take(self, kind: str, value: Any) -> Any:
        self.found.append((kind, value))
        return value


class _Filling:
    def __init__(self) -> None:
        self.left: list[Any] = []

    def fill(self, _: str, __: Any) -> Any:
        return self.left.pop()


class _Walk:
    """Goes through a graph unit by unit: each gives its part of the skeleton, and what it becomes with its holes filled.  Units: leaves, constants, names and outputs, then calls, then stops."""

    def __init__(self, graph: Graph, stops: tuple[Stop, ...], fill: Fill) -> None:
        self._graph = graph
        self._stops = stops
        self._fill = fill
        self._made: dict[int, tuple[Any, int, tuple[Var, ...]]] = {}
        self._kinds: dict[int, str] = {}
        for place, var in enumerate(graph.constants):
            self._made[var.id] = ("constant", place), -1, (var,)
        for place, node in enumerate(graph.nodes):
            for at, var in enumerate(node.outs):
                self._made[var.id] = ("call", place), at if len(node.outs) > 1 else -1, node.outs
                self._kinds[var.id] = node.op
        read: dict[Var, None] = {}
        for node in graph.nodes:
            read.update(dict.fromkeys(var for var in node.reads if var in graph.inputs))
        read.update(dict.fromkeys(var for var in (*graph.outputs.values(), *graph.labels) if var in graph.inputs))
        self._leaves = list(read)
        self._number = {var: place for place, var in enumerate(read)}

    @property
    def units(self) -> int:
        """How many units there are."""
        return 3 + len(self._graph.nodes) + len(self._stops)

    def unit(self, number: int) -> tuple[Any, Any]:
        """The skeleton of a unit, and what it becomes."""
        if number < 3:
            return (self._inputs, self._constants, self._named)[number]()
        number -= 3
        if number < len(self._graph.nodes):
            return self._node(self._graph.nodes[number])
        return self._node(self._stops[number - len(self._graph.nodes)][1])

    def put_together(self, parts: dict[int, Any]) -> tuple[Graph, tuple[Stop, ...]]:
        """The graph with these units in the place of its own."""
        graph, count = self._graph, len(self._graph.nodes)
        nodes = tuple(parts.get(3 + place, node) for place, node in enumerate(graph.nodes))
        stops = tuple((before, parts.get(3 + count + place, node)) for place, (before, node) in enumerate(self._stops))
        inputs: dict[Var, str] = parts.get(0, graph.inputs)
        constants = parts.get(1, graph.constants)
        labels, outputs = parts.get(2, (graph.labels, graph.outputs))
        types = graph.types
        return replace(
            graph, nodes=nodes, inputs=inputs, constants=constants, labels=labels, outputs=outputs, types=types
        ), stops

    def _inputs(self) -> tuple[Any, Any]:
        graph = self._graph
        rest = [var for var in graph.inputs if var not in self._number]
        skeletons, names = [], {}
        for var in (*self._leaves, *rest):
            kind = graph.types[var]
            skeleton, names[var] = self._text(graph.inputs[var])
            skeletons.append((skeleton, kind.shape, kind.dtype))
        if len(set(names.values())) < len(names):
            raise UnlikeError
        return (tuple(skeletons), len(rest)), {var: names[var] for var in graph.inputs}

    def _constants(self) -> tuple[Any, Any]:
        skeletons, filled = [], {}
        for var, constant in self._graph.constants.items():
            filled[var] = self._fill("tensor", constant)
            skeletons.append((constant.type.shape, constant.type.dtype))
        return tuple(skeletons), filled

    def _named(self) -> tuple[Any, Any]:
        graph = self._graph
        skeletons: list[Any] = []
        labels: dict[Var, str] = {}
        for var, name in graph.labels.items():
            shown, new = self._var(var)
            skeleton, labels[new] = self._text(name)
            skeletons.append((shown, skeleton))
        outputs: dict[str, Var] = {}
        for name, var in graph.outputs.items():
            skeleton, text = self._text(name)
            shown, outputs[text] = self._var(var)
            skeletons.append((skeleton, shown))
        if len(labels) < len(graph.labels) or len(outputs) < len(graph.outputs):
            raise UnlikeError
        symbols = tuple((symbol, self._var(var)[0]) for symbol, var in graph.symbols.items())
        return (tuple(skeletons), symbols), (labels, outputs)

    def _node(self, node: Node) -> tuple[Any, Node]:
        ranked = _RANKED.get(node.op, ())
        ends = _ENDS.get(node.op)
        args: list[Arg] = []
        skeletons: list[Any] = []
        for at, arg in enumerate(node.args):
            if ends is not None and at == ends[1] and type(arg) is int and type(node.args[ends[0]]) is int:
                start, own = args[ends[0]], node.args[ends[0]]
                assert isinstance(start, int)
                assert isinstance(own, int)
                length = self._fill("int", arg - own)
                skeletons.append("#")
                args.append(start + length)
                continue
            skeleton, new = self._arg(arg, at in ranked)
            skeletons.append(skeleton)
            args.append(new)
        kwargs: dict[str, Arg] = {}
        for name, arg in node.kwargs.items():
            skeleton, kwargs[name] = self._arg(arg, name in _RANKED_NAMES)
            skeletons.append((name, skeleton))
        module_skeleton, module = self._text(node.module)
        draw_skeleton, draw = None, node.draw
        if draw is not None:
            text, generator = self._text(draw[0])
            draw_skeleton, draw = text, (generator, self._fill("int", draw[1]))
        types = self._graph.types
        outs = tuple((types[out].shape, types[out].dtype) if out in types else None for out in node.outs)
        skeleton = (node.op, tuple(skeletons), outs, node.phase, module_skeleton, draw_skeleton)
        return skeleton, Node(
            node.op, tuple(args), kwargs, node.outs, node.stack, node.forward, module, node.phase, draw
        )

    def _arg(self, arg: Arg, ranked: bool) -> tuple[Any, Arg]:
        if isinstance(arg, Var):
            return self._var(arg)
        if isinstance(arg, tuple):
            if ranked and arg and all(type(each) is int for each in arg):
                return "group", self._fill("group", arg)
            if len(arg) > 1 and all(isinstance(each, Var) for each in arg):
                return self._list(arg)  # type: ignore[arg-type]
            parts = [self._arg(each, ranked) for each in arg]
            return tuple(skeleton for skeleton, _ in parts), tuple(new for _, new in parts)
        if type(arg) is int:
            return "#", self._fill("rank" if ranked else "int", arg)
        if type(arg) is float:
            return "#.", self._fill("float", arg)
        if isinstance(arg, Sym):
            return ("sym", arg.expr), arg
        if isinstance(arg, DType):
            return ("dtype", arg.name), arg
        return ("=", arg), arg

    def _var(self, var: Var) -> tuple[Any, Var]:
        if var in self._number:
            return ("leaf", self._number[var]), var
        known = self._made.get(var.id)
        if known is None:  # of a stop: what another stop makes
            return ("other", var.id), var
        base, at, outs = known
        if at < 0:
            return base, var
        at = self._fill("result", at)
        if not 0 <= at < len(outs):
            raise UnlikeError
        return (base, "result"), outs[at]

    def _list(self, arg: tuple[Var, ...]) -> tuple[Any, Arg]:
        """A list of tensors; one that another operator made than the others may stand anywhere."""
        kinds = [self._kinds.get(var.id, "") for var in arg]
        odd = [at for at, kind in enumerate(kinds) if kinds.count(kind) == 1]
        if len(arg) < 3 or len(odd) != 1 or len(set(kinds)) != 2:
            parts = [self._var(var) for var in arg]
            return tuple(skeleton for skeleton, _ in parts), tuple(new for _, new in parts)
        (at,) = odd
        rest = [self._var(var) for place, var in enumerate(arg) if place != at]
        own = self._var(arg[at])
        place = self._fill("place", at)
        if not 0 <= place < len(arg):
            raise UnlikeError
        filled = [new for _, new in rest]
        filled.insert(place, own[1])
        return ("one among", tuple(skeleton for skeleton, _ in rest), own[0]), tuple(filled)

    def _text(self, text: str) -> tuple[Any, str]:
        parts = _NUMBERS.split(text)
        if len(parts) == 1:
            return text, text
        for at in range(1, len(parts), 2):
            parts[at] = str(self._fill("number in a name", int(parts[at])))
        return tuple(parts[::2]), "".join(parts)


def is_same(one: Any, other: Any) -> bool:
    """Whether two numbers of holes are the same, to the sign of nothing."""
    if type(one) is Constant:
        return type(other) is Constant and one.type == other.type and one.digest == other.digest
    return type(one) is type(other) and (one == other if type(one) is not float else repr(one) == repr(other))
