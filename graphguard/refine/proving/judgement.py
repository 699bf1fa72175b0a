"""The ranks of a capture, evaluated beside a specification, with every promise compared at the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir import Capture, Promise
from graphguard.ir.fuel import burnt
from graphguard.ir.joining import Joined
from graphguard.refine.found.frontiers import implementation_frontier, relevant_gaps, specification_frontier
from graphguard.refine.found.promises import Checker, told
from graphguard.refine.outcome import Location, Outcome, PromiseOutcome
from graphguard.refine.proving.ground import Ground
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.retrial import Retrial
from graphguard.refine.proving.state import QUESTION, State
from graphguard.refine.proving.verdicts import failed, proved
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Exhausted

_COARSE: Final = "ranks compute in a narrower type than the specification"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The ranks of a capture, evaluated beside a specification, with the promises compared at the end."""

    capture: Capture
    joined: Joined
    started: float
    tentative: bool = False

    def on(self, ground: Ground) -> Proof:
        """The proof beside an evaluated specification."""
        capture = self.capture
        evaluator = ground.evaluator.again(capture, tentative=self.tentative)
        try:
            ranks = evaluator.ranks(self.joined, ground.leaves)
            checker = Checker(capture, evaluator, self.joined, ground.specification, ranks, ground.layouts)
            promises = tuple(checker.check(promise) for promise in capture.promises)
        except Exhausted as reason:
            return Proof(capture, failed(capture, str(reason), self.started))
        except Unsupported as reason:
            return Proof(capture, failed(capture, f"an input cannot be represented: {reason}", self.started))
        state = State(ground, ranks, ground.lookup(capture, ranks), evaluator)
        return Proof(capture, self._outcome(state, checker, promises, self.started), state)

    def _outcome(self, state: State, checker: Checker, promises: tuple[PromiseOutcome, ...], started: float) -> Outcome:
        promises = tuple(told(outcome, p) for outcome, p in zip(promises, self.capture.promises, strict=True))
        if state.evaluator.narrowing.coarse:
            promises = tuple(replace(promise, holds=False, reason=_COARSE) for promise in promises)
        universe = state.algebra.universe
        outcome = proved(self.capture, promises, universe.facts, {*checker.assumed, *universe.assumed}, started)
        return self.explained(state, outcome) if outcome.failing else outcome

    def of_changes(
        self, retrial: Retrial, ground: Ground, known: Mapping[str, PromiseOutcome], wanted: Collection[str]
    ) -> Proof | None:
        """What became of promises that are ``known`` of the ranks before a change; None as :meth:`Proof.retried` says."""
        capture, evaluator = self.capture, retrial.evaluator
        checker = Checker(capture, evaluator, self.joined, ground.specification, retrial.values, ground.layouts)
        found: dict[str, PromiseOutcome] = {}

        def judged(promise: Promise) -> PromiseOutcome:
            before = known.get(promise.name)
            return before if before is not None and retrial.stayed(promise.name) else checker.check(promise)

        results = [p for p in capture.promises if not p.name.startswith("grad(") and p.name in known]
        right = [promise for promise in results if known[promise.name].holds]
        retrial.towards([promise.name for promise in right])  # what spoils a result is not worth its gradients
        for promise in right:
            found[promise.name] = judged(promise)
            if not found[promise.name].holds:
                return None
        if wanted:
            retrial.towards(wanted)
            found |= {promise.name: judged(promise) for promise in capture.promises if promise.name in wanted}
            if not any(found[name].holds for name in wanted if name in found):
                return None
        retrial.all()
        for promise in capture.promises:
            kept = found[promise.name] if promise.name in found else judged(promise)
            found[promise.name] = told(kept, promise)
            if not kept.holds and promise.name in known and known[promise.name].holds:
                return None
        if evaluator.narrowing.coarse:
            return None
        promises = tuple(found[promise.name] for promise in capture.promises)
        universe = ground.algebra.universe
        outcome = proved(capture, promises, universe.facts, {*checker.assumed, *universe.assumed}, self.started)
        lookup = ground.lookup(capture, retrial.values)
        outcome = replace(outcome, proved=all(promise.holds for promise in promises))
        return Proof(capture, outcome, State(ground, retrial.values, lookup, evaluator))

    def explained(self, state: State, outcome: Outcome) -> Outcome:
        """The outcome with the frontiers of what is not proved."""
        capture, failing = self.capture, outcome.failing
        assert capture.spec is not None
        state.algebra.universe.refuel("a question", QUESTION)
        here: tuple[Location, ...] = ()
        there: tuple[Location, ...] = ()
        try:
            here = specification_frontier(
                state.lookup, [capture.spec.outputs[n] for n in failing if n in capture.spec.outputs]
            )
            wanted = {r: [g.outputs[n] for n in failing if n in g.outputs] for r, g in enumerate(capture.ranks)}
            there = implementation_frontier(state.lookup, wanted)
        except (Exhausted, Unsupported):
            pass  # a frontier is help, not part of the verdict
        return Outcome(
            proved=False,
            promises=outcome.promises,
            specification_frontier=here,
            implementation_frontier=there,
            gaps=relevant_gaps(capture, state.evaluator.gaps, failing),
            assumed=outcome.assumed,
            cautions=outcome.cautions,
            fuel=burnt() - self.started,
        )
