"""Programs evaluated at one point, operator by operator, over an algebra whose values are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from graphguard.ir import Graph, Node, Var
from graphguard.ir.joining import JoinedCall
from graphguard.ops import COLLECTIVE, exchanged
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
        nodes = [graphs[rank].nodes[call.nodes[rank]] for rank in members]
        first, collective = nodes[0], COLLECTIVE[call.kind]

        def given(member: int, position: int) -> V:
            return values[members[member]][nodes[member].reads[position]]

        def reduced(member: int, found: list[V]) -> V:
            dtype = graphs[members[member]].types[nodes[member].outs[0]].dtype
            return combine(self.algebra, str(collective.argument("reduce", first.args)), found, dtype)

        root = collective.root(first.args, members)
        return dict(zip(members, exchanged(call.kind, len(members), root, given, reduced), strict=True))
