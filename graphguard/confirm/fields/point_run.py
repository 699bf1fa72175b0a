"""Programs evaluated at one point, operator by operator, over an algebra whose values are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from graphguard.ir import Graph, Node, Var
from graphguard.ir.graph import Arg
from graphguard.ir.joining import JoinedCall
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules import Trait, combine, evaluate_node


class WithheldError(Exception):
    """An algebra has no value for a call, which must not stay closed for that: what a proof makes of it is more."""


class RuleFailedError(Unsupported):
    """A rule raised another error than :class:`Unsupported`: its operands do not fit each other."""


class PointRun(Generic[V]):
    """Calls and collectives over an algebra; both raise :class:`Unsupported` for what it cannot follow.

    ``real`` says that no tensor is complex.
    """

    def __init__(self, algebra: Algebra[V], traits: Mapping[str, Trait], real: bool = False) -> None:
        self.algebra = algebra
        self.traits = traits
        self.real = real

    def results(self, node: Node, graph: Graph, values: Mapping[Var, V]) -> tuple[V, ...]:
        """What a call gives that is no collective; every operand has a value."""
        try:
            return evaluate_node(self.algebra, node, graph, values, traits=self.traits, real=self.real)
        except Unsupported:
            raise
        except WithheldError as error:
            raise Unsupported(str(error)) from error
        except Exception as error:  # a defect of a rule costs this opinion, not the verdict
            raise RuleFailedError(f"the rule of {node.op} failed: {type(error).__name__} {error}") from error

    def exchange(
        self, call: JoinedCall, graphs: Sequence[Graph], values: Sequence[Mapping[Var, V]]
    ) -> dict[int, list[V]]:
        """What every member of a collective receives."""
        members = call.group
        nodes = {rank: graphs[rank].nodes[index] for rank, index in call.nodes.items()}
        given = {rank: [values[rank][var] for var in node.operands()] for rank, node in nodes.items()}
        first = nodes[members[0]]
        dtype = graphs[members[0]].types[first.outs[0]].dtype if first.outs else ""
        match call.kind:
            case "gg.barrier":
                return {rank: [] for rank in members}
            case "gg.send":
                source, destination = members
                return {source: [], destination: given[source]}
            case "gg.all_reduce":
                total = combine(self.algebra, str(first.args[1]), [given[rank][0] for rank in members], dtype)
                return {rank: [total] for rank in members}
            case "gg.reduce":
                total = combine(self.algebra, str(first.args[2]), [given[rank][0] for rank in members], dtype)
                return {rank: [total if rank == _root(first.args[1]) else given[rank][0]] for rank in members}
            case "gg.all_gather":
                return {rank: [given[other][0] for other in members] for rank in members}
            case "gg.gather":
                gathered = [given[other][0] for other in members]
                return {rank: gathered if rank == _root(first.args[1]) else [] for rank in members}
            case "gg.all_to_all":
                return {rank: [given[other][place] for other in members] for place, rank in enumerate(members)}
            case "gg.scatter":
                parts = given[_root(first.args[1])]
                return {rank: [parts[place]] for place, rank in enumerate(members)}
            case "gg.reduce_scatter":
                how = str(first.args[1])
                columns = enumerate(members)
                return {
                    rank: [combine(self.algebra, how, [given[o][place] for o in members], dtype)]
                    for place, rank in columns
                }
            case "gg.broadcast":
                return dict.fromkeys(members, given[_root(first.args[1])])
            case _:
                raise Unsupported(f"a collective of kind {call.kind}")


def _root(arg: Arg) -> int:
    if not isinstance(arg, int):
        raise Unsupported("a root that is no rank")
    return arg
