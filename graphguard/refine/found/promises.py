"""Every promised output, checked exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.ir import Capture, Placement, Promise, Var
from graphguard.ir.capture import Like
from graphguard.ir.joining import Joined
from graphguard.refine.evaluation.evaluate import Evaluator, Values, shape_of
from graphguard.refine.found.covers import cover
from graphguard.refine.found.layouts import Layouts
from graphguard.refine.outcome import SOMETHING_ELSE, PromiseOutcome
from graphguard.refine.stages.flow import labelled
from graphguard.relations.layouts import layout
from graphguard.relations.relation import Expression, Relation, placed
from graphguard.relations.relation import held as parts_of
from graphguard.relations.terms.values import NormalValue


@dataclass(frozen=True, slots=True)
class _Found:
    """How the ranks' outputs stand to the specification's: as a relation's text, as a layout, and whether without a factor."""

    text: str
    layout: str
    whole: bool


class Checker:
    """Checks the promises of one evaluation; ``assumed`` gathers what they rest on.

    ``spoken`` is said for the name of every promised output in what was found, where the texts are to be told of other outputs as well.
    """

    def __init__(
        self,
        capture: Capture,
        evaluator: Evaluator,
        joined: Joined,
        specification: Values,
        ranks: list[Values],
        layouts: Layouts,
        spoken: str | None = None,
    ) -> None:
        self.spoken = spoken
        self.capture = capture
        self.evaluator = evaluator
        self.joined = joined
        self.specification = specification
        self.ranks = ranks
        self.layouts = layouts
        self.algebra = layouts.algebra
        self.assumed: set[str] = set()
        self._replaced: dict[tuple[str, str], list[Values]] = {}
        self._labelled = [labelled(graph) for graph in capture.ranks]

    def check(self, promise: Promise) -> PromiseOutcome:
        """Whether one promise holds, and what was found."""
        outcome = self._checked(promise)
        if outcome.holds:
            self._round(promise.name)
        return outcome

    def _checked(self, promise: Promise) -> PromiseOutcome:
        held = {
            rank: self.ranks[rank][graph.outputs[promise.name]]
            for rank, graph in enumerate(self.capture.ranks)
            if promise.name in graph.outputs and graph.outputs[promise.name] in self.ranks[rank]
        }
        needed = needed_by(promise, self.capture)
        if not held:
            return PromiseOutcome(
                promise.name, False, needed, reason=f"no rank has an output '{promise.name}' that could be followed"
            )
        if len(held) < sum(promise.name in graph.outputs for graph in self.capture.ranks):
            return PromiseOutcome(promise.name, False, needed, reason="a rank's output could not be followed")
        if isinstance(promise.wanted, Like):
            return self._like(promise.name, promise.wanted.leaf, held, needed)
        assert self.capture.spec is not None
        target = self.specification.get(self.capture.spec.outputs.get(promise.name, Var(-1)))
        if target is None:
            return PromiseOutcome(
                promise.name,
                False,
                needed,
                reason=f"the specification has no output '{promise.name}' that could be followed",
            )
        if isinstance(promise.wanted, dict):
            return self._placed(promise.name, promise.wanted, target, held, needed)
        return self._inferred(promise.name, target, held, needed)

    def _round(self, name: str) -> None:
        """Have it noted what ranks' outputs are rounded by on the way, where the specification's output is of a wider type."""
        var = None if self.capture.spec is None else self.capture.spec.outputs.get(name)
        if var is not None and self.capture.spec is not None:
            outs = {rank: graph.outputs[name] for rank, graph in enumerate(self.capture.ranks) if name in graph.outputs}
            self.evaluator.narrowing.promised(outs, self.capture.spec.types[var].dtype)

    def _found(self, name: str, target: NormalValue, held: Mapping[int, NormalValue]) -> _Found:
        name = self.spoken or name
        found = self.layouts.find(target, held, scaled=True)
        if found is None:
            return _Found("", "", whole=False)
        placements, factor = found
        expression = self.layouts.expression(placements, dict.fromkeys(held, name))
        text = str(Relation(name, expression, placements))
        words = f"{name}: {layout(Relation(name, expression, placements, factor))}"
        return _Found(text if factor == 1 else f"{text} = {factor} * {name}", words, whole=factor == 1)

    def _placed(
        self,
        name: str,
        wanted: Mapping[str, Placement],
        target: NormalValue,
        held: Mapping[int, NormalValue],
        needed: str,
    ) -> PromiseOutcome:
        holds = self.layouts.holds(target, wanted, held)
        found = self._found(name, target, held)
        return PromiseOutcome(name, holds, needed, found.text, layout=found.layout)

    def _inferred(self, name: str, target: NormalValue, held: Mapping[int, NormalValue], needed: str) -> PromiseOutcome:
        found = self._found(name, target, held)
        if found.whole:
            return PromiseOutcome(name, True, needed, found.text, layout=found.layout)
        said = self.spoken or name
        expression = cover(self.layouts, target, held, said)
        if expression is not None:
            return PromiseOutcome(name, True, needed, str(Relation(said, expression)) + left_over(expression, held))
        return PromiseOutcome(name, False, needed, found.text, layout=found.layout)

    def _like(self, name: str, leaf: str, held: Mapping[int, NormalValue], needed: str) -> PromiseOutcome:
        wrong: list[int] = []
        factors: set[Fraction | None] = set()
        for rank, value in held.items():
            var = self._labelled[rank].get(leaf)
            target = self._laid_out(rank, var, name, leaf) if var is not None else None
            if target is None:
                return PromiseOutcome(
                    name, False, needed, reason=f"rank {rank} does not hold '{leaf}', whose layout was promised"
                )
            if self.layouts.same(value, target):
                factors.add(None)
                continue
            wrong.append(rank)
            factors.add(self.layouts.ratio(value, target) if value.shape == target.shape else None)
        factor = factors.pop() if len(factors) == 1 else None
        assert self.capture.spec is not None
        target = self.specification.get(self.capture.spec.outputs.get(name, Var(-1)))
        found = self._found(name, target, held) if target is not None else _Found("", "", whole=False)
        if wrong and factor is not None:
            return PromiseOutcome(name, False, needed, f"{factor} * what is needed")
        return PromiseOutcome(name, not wrong, needed, found.text, layout=found.layout)

    def _laid_out(self, rank: int, var: Var, name: str, leaf: str) -> NormalValue | None:
        """What the rank's tensor ``var`` is when the specification's outputs stand in place of the leaves, as ``name`` does of ``leaf``."""
        before, _, after = name.rpartition(leaf)
        return self._replace_leaves(before, after)[rank].get(var)

    def _replace_leaves(self, before: str, after: str) -> list[Values]:
        """The ranks' preludes, run on the specification's outputs ``before + leaf + after`` in place of the leaves."""
        key = (before, after)
        if key not in self._replaced:
            assert self.capture.spec is not None
            leaves = self.evaluator.leaves(self.capture.leaves)
            for leaf in self.capture.leaves:
                var = self.capture.spec.outputs.get(before + leaf.name + after)
                value = self.specification.get(var) if var is not None else None
                if value is not None:
                    leaves[leaf.name] = value
                elif leaves[leaf.name].kind == "float":
                    leaves[leaf.name] = self._zeros(shape_of(leaf.type))
            self._replaced[key] = self.evaluator.ranks(self.joined, leaves, lambda node: node.phase == "prelude")
        return self._replaced[key]

    def _zeros(self, shape: tuple[int, ...]) -> NormalValue:
        return self.algebra.full(shape, Fraction(0), "float")


def left_over(expression: Expression, held: Mapping[int, NormalValue]) -> str:
    """What is said of the ranks that have a part in no relation, and no copy of one that has."""
    used = {part.rank for part in parts_of(expression)}
    known = {held[rank].key() for rank in used}
    others = [str(rank) for rank, value in held.items() if rank not in used and value.key() not in known]
    if not others:
        return ""
    return f"{SOMETHING_ELSE} rank{'s' * (len(others) > 1)} {', '.join(others)}"


def needed_by(promise: Promise, capture: Capture) -> str:
    """What a promise asks for, as text."""
    if isinstance(promise.wanted, Like):
        return f"{promise.name}, laid out as {promise.wanted.leaf}"
    if isinstance(promise.wanted, dict):
        rest = {axis: Placement("replicate") for axis in capture.mesh if axis not in promise.wanted}
        return f"{promise.name}: {placed({**promise.wanted, **rest})}"
    return f"a clean relation for {promise.name}"


def told(outcome: PromiseOutcome, promise: Promise) -> PromiseOutcome:
    """The outcome with a text for a layout that no placement describes."""
    if outcome.holds and not outcome.found and isinstance(promise.wanted, Like):
        return replace(outcome, found=f"{promise.name} laid out as {promise.wanted.leaf}")
    return outcome
