"""What is known once both programs are evaluated into one universe, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from graphguard.ir import Capture, Graph, Var
from graphguard.ir.fuel import SECOND
from graphguard.refine.evaluation.evaluate import Evaluator, Values
from graphguard.refine.found.lookup import Lookup, Targets
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.ground import Ground
from graphguard.relations.algebra import Unsupported
from graphguard.relations.explain.differences import Difference, differing_reads
from graphguard.relations.explain.weights import Weights, weights
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Exhausted
from graphguard.relations.terms.values import NormalValue

T = TypeVar("T")

QUESTION: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class State:
    """The evaluated specification and ranks."""

    ground: Ground
    ranks: list[Values]
    lookup: Lookup
    evaluator: Evaluator

    @property
    def algebra(self) -> NormalForm:
        """The algebra that everything is evaluated in."""
        return self.ground.algebra

    @property
    def specification(self) -> Values:
        """The specification's values."""
        return self.ground.specification

    def value(self, graph: int, var: Var) -> NormalValue | None:
        """The normal form of a tensor of a rank, or of the specification for ``SPECIFICATION``."""
        return (self.specification if graph == SPECIFICATION else self.ranks[graph]).get(var)

    def weights(self, rank: int, var: Var, meant: Var) -> Weights | None:
        """How often each summand of a tensor of the specification counts in a rank's tensor; None where that is not made of them."""
        found, wanted = self.value(rank, var), self.value(SPECIFICATION, meant)
        if found is None or wanted is None:
            return None
        try:
            return weights(self.algebra.universe, found, wanted)
        except (Unsupported, Exhausted):
            return None

    def difference(self, capture: Capture, promise: str, since: tuple[int, ...]) -> Difference | None:
        """An element of a promised output, none before ``since``, that differs, and what it is computed from instead; None where it is computed in another way."""
        wanted = next((each.wanted for each in capture.promises if each.name == promise), None)
        spec = capture.spec
        if spec is None or not isinstance(wanted, dict) or promise not in spec.outputs:
            return None
        meant = self.value(SPECIFICATION, spec.outputs[promise])
        held = {
            rank: self.value(rank, graph.outputs[promise])
            for rank, graph in enumerate(capture.ranks)
            if promise in graph.outputs
        }
        values = {rank: value for rank, value in held.items() if value is not None}
        try:
            rebuilt = self.lookup.layouts.rebuild(wanted, values) if len(values) == len(held) else None
            copies = rebuilt.copies if rebuilt and meant else ()
            found = (differing_reads(self.algebra.universe, copy, meant, since) for copy in copies if meant)
            return next(filter(None, found), None)
        except (Unsupported, Exhausted):
            return None

    def respecified(self, capture: Capture, spec: Graph) -> State:
        """The same ranks beside a specification that computes the same values in other steps; raises what evaluating those raises."""
        evaluator = self.ground.evaluator.again(capture)
        evaluator.gaps = {}
        values = evaluator.specification(spec, self.ground.leaves)
        ground = replace(self.ground, evaluator=evaluator, specification=values, targets=Targets())
        everything = evaluator.again(capture)
        everything.gaps |= {where: gap for where, gap in self.evaluator.gaps.items() if where.graph != SPECIFICATION}
        lookup = ground.lookup(capture, self.ranks)
        return State(ground, self.ranks, lookup, everything)


def answer(lookup: Lookup, question: Callable[[Lookup], T | None]) -> T | None:
    """An answer within a limit of its own; None where there is none."""
    lookup.universe.refuel("a question", QUESTION)
    try:
        return question(lookup)
    except (Unsupported, Exhausted):
        return None
