"""Whether the ranks of a script start from the same parameters, and whether they compute different things: what each of them made of leaves, draws, literals and what others sent it.

Such values are told apart by what they are computed of, and how.  What a rank draws from a generator that the script did not seed is its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeAlias

from graphguard.ir import Trouble
from graphguard.ir.graph import Graph, Node, Var
from graphguard.ir.joining import JoinedCall, join, span_of
from graphguard.ops import REDUCTIONS, gg, operators
from graphguard.trace.scripts.script import START, UNSEEDED

Starts: TypeAlias = Sequence[Mapping[str, Var]]
"""By rank: parameters, as they were made."""

_MOVING = operators(lambda op: bool(op.moves))  # their numbers say which elements, and nothing of these
_UNKNOWN = ("unknown",)
_FIX = (
    "needed: the same parameters on all ranks\n"
    "fix: seed all ranks alike before the model is made, or broadcast its parameters from one rank when nothing changes them any more"
)


def without_starts(graphs: tuple[Graph, ...]) -> tuple[tuple[Graph, ...], Starts]:
    """Graphs without the outputs that say how parameters start, and these, by the parameter's name."""
    starts = [
        {name.removeprefix(START): var for name, var in graph.outputs.items() if name.startswith(START)}
        for graph in graphs
    ]
    if not any(starts):
        return graphs, starts
    kept = [{name: var for name, var in graph.outputs.items() if not name.startswith(START)} for graph in graphs]
    return tuple(replace(graph, outputs=outputs) for graph, outputs in zip(graphs, kept, strict=True)), starts


def unlike_starts(graphs: tuple[Graph, ...], starts: Starts) -> tuple[list[Trouble], bool]:
    """The first parameter that ranks start with other numbers of; and whether all ranks are known to start with the same ones of all."""
    if not any(starts):
        return [], False
    values, known = _Values(graphs), True
    for name in dict.fromkeys(name for each in starts for name in each):
        made = {rank: values.of(rank, each[name]) for rank, each in enumerate(starts) if name in each}
        first = next(iter(made))
        known = known and len(made) == len(graphs) and len({one.how for one in made.values()}) == 1
        for rank, value in made.items():
            if value.of != made[first].of and _UNKNOWN not in value.of | made[first].of:
                return [_trouble(graphs, name, (first, rank), starts, made)], False
    return [], known


def add_up_what_differs(graphs: tuple[Graph, ...]) -> bool:
    """Whether ranks reduce gradients that are not computed alike on all of them, whatever they draw: they work on different parts of what they have."""
    values = _Values(graphs, ("prelude", "forward", "backward", "step"), draws=False)
    for call in join(graphs).collectives:
        nodes = {rank: graphs[rank].nodes[index] for rank, index in call.nodes.items()}
        if call.kind in REDUCTIONS and all(node.phase == "backward" for node in nodes.values()):
            given = {tuple(values.of(rank, var).how for var in node.reads) for rank, node in nodes.items()}
            if len(given) > 1:
                return True
    return False


def _trouble(
    graphs: tuple[Graph, ...], name: str, ranks: tuple[int, int], starts: Starts, made: Mapping[int, _Value]
) -> Trouble:
    first, rank = ranks
    place = graphs[rank].producers().get(starts[rank][name])
    drawn = [sorted(made[each].of - made[other].of, key=str) for each, other in (ranks, ranks[::-1])]
    streams = [next((str(what[1]) for what in own if what[0] == "draw"), "") for own in drawn]
    why = "what they compute of it differs"
    if all(streams):
        seeds = [stream.partition(":")[2] for stream in streams]
        own = any(seed in ("", str(UNSEEDED)) for seed in seeds)
        why = (
            "each draws them for itself, and nothing seeds it"
            if own
            else f"they are drawn from seed {seeds[0]} and from seed {seeds[1]}"
        )
    message = f"'{name}' starts with other numbers on rank {rank} than on rank {first}: {why}\n{_FIX}"
    return Trouble("wrong-relation", message, None if place is None else span_of(graphs[rank], place), rank)


@dataclass(frozen=True, slots=True)
class _Value:
    """How a value is computed, as a digest; and draws, literals and leaves that it is computed of."""

    how: bytes
    of: frozenset[tuple[Any, ...]]


def _value(how: object, of: Iterator[_Value] | Sequence[_Value] = (), *own: tuple[Any, ...]) -> _Value:
    digest = blake2b(repr(how).encode(), digest_size=16).digest()
    return _Value(digest, frozenset(own).union(*(each.of for each in of)))


class _Values:
    """What the variables of all ranks are, of some phases of their programs; without ``draws`` one is as good as another."""

    def __init__(
        self, graphs: tuple[Graph, ...], phases: Collection[str] = ("prelude",), *, draws: bool = True
    ) -> None:
        self._graphs = graphs
        self._draws = draws
        self._known: list[dict[Var, _Value]] = [
            {var: _value(leaf, (), leaf) for var, leaf in _leaves(graph)} for graph in graphs
        ]
        for step in join(graphs).order:
            if isinstance(step, JoinedCall):
                self._meet(step)
            elif (node := graphs[step[0]].nodes[step[1]]).phase in phases:
                self._compute(step[0], node)

    def of(self, rank: int, var: Var) -> _Value:
        """What a rank has; a value of its own where nobody knows what it is computed of."""
        return self._known[rank].get(var) or _value((rank, var.id), (), _UNKNOWN)

    def _compute(self, rank: int, node: Node) -> None:
        own: list[tuple[Any, ...]] = []
        if node.draw is not None:
            unseeded = node.draw[0].partition(":")[2] in ("", str(UNSEEDED))
            own.append(("draw", *node.draw, rank if unseeded else None) if self._draws else ("draw",))
        elif node.op not in _MOVING:
            own += [("number", node.op, arg) for arg in node.args if type(arg) in (int, float)]

        def told(arg: Any) -> Any:
            if isinstance(arg, Var):
                return self.of(rank, arg).how
            return tuple(map(told, arg)) if isinstance(arg, tuple) else arg

        what = node.op, told(node.args), [(name, told(arg)) for name, arg in node.kwargs.items()], own
        given = [self.of(rank, var) for var in node.reads]
        for place, out in enumerate(node.outs):
            self._known[rank][out] = _value((what, place), given, *own)

    def _meet(self, call: JoinedCall) -> None:
        """What a collective gives: what one member has, or is computed of what all have."""
        nodes = {rank: self._graphs[rank].nodes[index] for rank, index in call.nodes.items()}
        given = {rank: [self.of(rank, var) for var in node.reads] for rank, node in nodes.items()}
        everything = [value for rank in call.group for value in given.get(rank, ())]
        for rank, node in nodes.items():
            for place, out in enumerate(node.outs):
                if call.kind == gg.send:
                    value = given[call.group[0]][0]
                elif call.kind == gg.broadcast:
                    value = given[node.args[1]][0]  # type: ignore[index]
                elif call.kind == gg.all_gather:
                    value = given[call.group[place]][0]
                else:
                    own = None if call.kind == gg.all_reduce else (call.group.index(rank), place)
                    value = _value((call.kind, [each.how for each in everything], node.args[1:-1], own), everything)
                self._known[rank][out] = value


def _leaves(graph: Graph) -> Iterator[tuple[Var, tuple[Any, ...]]]:
    yield from ((var, ("leaf", name)) for var, name in graph.inputs.items())
    yield from ((var, ("constant", str(one.type), one.digest)) for var, one in graph.constants.items())
