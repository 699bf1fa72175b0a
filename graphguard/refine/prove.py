"""Relation inference on one capture: both programs evaluated into one universe, every promise compared there.

Equal normal forms mean equal values, so a promise that holds here holds for all inputs.  What does not hold is not thereby wrong:
whether it is, a run on numbers decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from graphguard.ir import Capture, Placement, Promise, Var
from graphguard.ir.collection import without_collection
from graphguard.ir.joining import Joined, join
from graphguard.refine.calls import Unspelt
from graphguard.refine.cuts import Division, divided
from graphguard.refine.exposed import exposed
from graphguard.refine.frontiers import implementation_frontier, relevant_gaps, specification_frontier
from graphguard.refine.ground import Ground, grounded
from graphguard.refine.hidden import CONTRACTIONS
from graphguard.refine.lookup import GroupRelation, Lookup
from graphguard.refine.memo import Memo
from graphguard.refine.naming import names_of
from graphguard.refine.outcome import Location, Outcome, PromiseOutcome
from graphguard.refine.programs import is_like_one_known, recalled, remember
from graphguard.refine.promises import Checker, told
from graphguard.refine.regions import Failed
from graphguard.refine.retrial import Before, Retrial
from graphguard.refine.segments import Answers, Segments, Work
from graphguard.refine.spelling import Facts
from graphguard.refine.state import QUESTION_SECONDS, State, T, answer
from graphguard.refine.traces import Rounding
from graphguard.refine.verdicts import failed, proved, trouble_of
from graphguard.relations.algebra import Unsupported
from graphguard.relations.differences import Difference
from graphguard.relations.kernels import Exhausted
from graphguard.relations.relation import Relation
from graphguard.relations.values import NormalValue
from graphguard.relations.weights import Weights
from graphguard.rules import Trait, TraitError, parse_traits

Effort: TypeAlias = Literal["hasty", "usual", "patient"]

SECONDS: Final = 60.0
_EXPANDED: Final = 16  # products of sums of at most this many terms are written out where the first attempt fails
_PATIENCE: Final[dict[Effort, float]] = {"hasty": 0.0, "usual": 5.0, "patient": 30.0}  # seconds of a second attempt

_COARSE: Final = "ranks compute in a narrower type than the specification"

__all__ = ["Effort", "GroupRelation", "Memo", "Proof", "prove"]


class Proof:
    """A proof attempt and everything that can be asked about it afterwards.

    ``evaluated`` counts the calls that had to be evaluated for it: fewer than ``calls``, all that both programs have, where a memo knew the others.
    ``again`` makes the proof anew where it was remembered as a whole and something is asked about it.
    ``failing`` are the promises that do not hold in the evaluation behind it, which ``reprove`` starts from; ``outcome`` may hold some of them by another.
    """

    def __init__(
        self,
        capture: Capture,
        outcome: Outcome,
        state: State | None = None,
        segments: Segments | None = None,
        again: Callable[[], Proof] | None = None,
        failing: tuple[str, ...] | None = None,
    ) -> None:
        self.capture = capture
        self.outcome = outcome
        self.failing = frozenset(outcome.failing if failing is None else failing)
        self.calls = sum(len(graph.nodes) for graph in (capture.spec, *capture.ranks) if graph is not None)
        self.evaluated = self.calls if segments is None else segments.evaluated
        if again is not None:
            self.evaluated = 0
        self._again = again
        self._known = state
        self._answers = None if segments is None else Answers(segments)
        self._relations: dict[Var, Relation | None] = {}
        self._before: Before | None = None

    @property
    def _state(self) -> State | None:
        """The evaluation of the whole program, made when it is first needed where the proof went without."""
        self._recall()
        if self._known is None and self._answers is not None:
            self._known = prove(self.capture)._known  # noqa: SLF001 - of the same class
        return self._known

    def _recall(self) -> None:
        """Have something to ask, where the proof was remembered as a whole."""
        if self._again is not None:
            again, self._again = self._again, None
            full = again()
            self._known, self._answers = full._known, full._answers  # noqa: SLF001 - of the same class

    @property
    def facts(self) -> Facts:
        """Ranges of index leaves, by name, that the specification's look-ups state."""
        self._recall()
        if self._answers is not None:
            return dict(self._answers.segments.facts)
        return {} if self._known is None else dict(self._known.algebra.universe.facts)

    @property
    def unmet(self) -> frozenset[int] | None:
        """The contractions of the specification that were hidden though no rank had them; None where nothing was hidden."""
        hidden = None if self._known is None else self._known.evaluator.hidden
        return None if hidden is None else hidden.unmet

    @property
    def coarse(self) -> bool:
        """Whether some tensors are of a narrower type than others, so that it matters where numbers are rounded."""
        return self._known is None or self._known.evaluator.narrowing.active

    @property
    def roundings(self) -> Mapping[Location, tuple[Rounding, ...]]:
        """Calls of ranks that compute in a narrower type than the specification does."""
        return {} if self._known is None else self._known.evaluator.narrowing.roundings

    def relation(self, var: Var) -> Relation | None:
        """How a tensor of the specification is rebuilt from the ranks' tensors; None where no clean relation is known."""
        if var not in self._relations:
            self._relations[var] = self._ask(0, var, lambda lookup: lookup.relation(var))
        return self._relations[var]

    def relations(self) -> dict[str, Relation]:
        """The relation of every tensor of the specification that has one, by name."""
        found = {}
        for var, name in self.names().items():
            relation = self.relation(var)
            if relation is not None:
                found[name] = relation
        return found

    def names(self) -> dict[Var, str]:
        """The names of the specification's tensors."""
        self._recall()
        if self._known is None and self._answers is None:
            return {}
        assert self.capture.spec is not None
        return names_of(self.capture.spec)

    def describe(self, rank: int, var: Var) -> str | None:
        """A rank's tensor in terms of the specification's; None where it is no window of any."""
        return self._ask(rank + 1, var, lambda lookup: lookup.describe(rank, var))

    def group(self, variables: Mapping[int, Var]) -> GroupRelation | None:
        """How one tensor a rank rebuild some tensor of the specification together; None where they do not cleanly."""
        if self._state is None:
            return None
        return answer(self._state.lookup, lambda lookup: lookup.group(variables))

    def on_relation(self, variables: Mapping[int, Var]) -> bool:
        """Whether each rank's tensor is by itself a window of a tensor of the specification, no partial sum and unscaled."""

        def question(lookup: Lookup) -> bool:
            texts = (lookup.describe(rank, var) for rank, var in variables.items())
            return all(lookup.on_relation(rank, var) for rank, var in variables.items()) and not any(
                text is not None and "partial sum" in text for text in texts
            )

        return self._state is not None and bool(answer(self._state.lookup, question))

    def holders(self, var: Var) -> list[tuple[dict[int, Var], dict[str, Placement]]]:
        """The ranks' tensors that hold a tensor of the specification, one a rank, whole or in parts, with their placements."""
        return [] if self._state is None else answer(self._state.lookup, lambda lookup: lookup.holders(var)) or []

    def value(self, graph: int, var: Var) -> NormalValue | None:
        """The normal form of a tensor of a rank, or of the specification for ``SPECIFICATION``."""
        return None if self._state is None else self._state.value(graph, var)

    def weights(self, rank: int, var: Var, meant: Var) -> Weights | None:
        """How often each summand of a tensor of the specification counts in a rank's tensor; None where that is not made of them."""
        return None if self._state is None else self._state.weights(rank, var, meant)

    def difference(self, promise: str) -> Difference | None:
        """An element of a promised output that differs, and what it is computed from instead; None where it is computed in another way."""
        return None if self._state is None else self._state.difference(self.capture, promise)

    def expanded(self, seconds: float) -> Proof:
        """The attempt that writes out products of sums, which costs more and may understand more; it ends within about ``seconds``."""
        traits, joined = parse_traits(self.capture.traits), join(self.capture.ranks)
        return _Attempt(self.capture, traits, joined, self.facts, _EXPANDED, seconds).run(time.thread_time())

    @without_collection()
    def finished(self, memo: Memo | None = None) -> Proof:
        """A hasty proof with the second attempt that it left out."""
        capture, outcome, started = self.capture, self.outcome, time.thread_time()
        if outcome.proved or outcome.gaps or self._known is None or outcome.seconds > SECONDS / 4:
            return self
        joined = join(capture.ranks)
        search = _Search(capture, parse_traits(capture.traits), joined, None, None, SECONDS, _PATIENCE["usual"])
        proof = search.again(self, started)
        if proof.outcome.proved and memo is not None and divided(capture, joined) is None:
            remember(capture, memo, proof.outcome, None, cut=False)
        return proof

    @without_collection()
    def retried(self, edited: Capture, wanted: Collection[str] = (), seconds: float = SECONDS) -> Proof | None:
        """The proof of a capture that differs from this one in a few calls of its ranks, without frontiers: they cost more than the verdict.

        None where it spoils a promise that held, keeps none of those that are ``wanted`` (if any are), or does not come to an end: all that is evaluated is what
        changed, and the rest only once a wanted promise holds.
        """
        state = self._state
        if state is None:
            again = prove(edited, seconds=seconds)
            kept = not wanted or not again.failing.issuperset(wanted)
            return again if kept and again.failing <= self.failing else None
        started = time.thread_time()
        joined = join(edited.ranks)
        if trouble_of(edited, joined):
            return None
        state.algebra.universe.deadline = started + seconds
        if self._before is None:
            self._before = Before.of(self.capture, state.ranks, state.evaluator)
        evaluator = state.ground.evaluator.again(edited)
        retrial = Retrial(edited, joined, evaluator, state.ground.leaves, self._before)
        known = {p.name: replace(p, holds=p.name not in self.failing) for p in self.outcome.promises}
        try:
            return _Judgement(edited, joined, started).of_changes(retrial, state.ground, known, wanted)
        except (Exhausted, Unsupported):
            return None

    @without_collection()
    def respecified(self, capture: Capture) -> Proof:
        """The same attempt on a capture whose specification computes the same values in other steps: the ranks are not evaluated again."""
        state, spec = self._state, capture.spec
        if state is None or spec is None:
            return prove(capture, effort="hasty")
        started = time.thread_time()
        state.algebra.universe.deadline = started + QUESTION_SECONDS
        try:
            known = state.respecified(capture, spec)
        except (Exhausted, Unsupported):
            return self
        outcome = _Judgement(capture, join(capture.ranks), started).explained(known, self.outcome)
        return Proof(capture, outcome, known, failing=tuple(self.failing))

    @without_collection()
    def reprove(self, edited: Capture, seconds: float = SECONDS) -> Proof:
        """Prove a capture that differs from this one in its ranks only; what did not change is not evaluated again."""
        if self._state is None:
            return prove(edited, seconds=seconds)
        started = time.thread_time()
        joined = join(edited.ranks)
        trouble = trouble_of(edited, joined)
        if trouble:
            return Proof(edited, failed(edited, trouble, started))
        self._state.algebra.universe.deadline = started + seconds
        return _Judgement(edited, joined, started).on(self._state.ground)

    def _ask(self, graph: int, var: Var, question: Callable[[Lookup], T | None]) -> T | None:
        """An answer about a tensor of a graph (0 for the specification, then the ranks)."""
        self._recall()
        if self._known is not None:
            return answer(self._known.lookup, question)
        if self._answers is None:
            return None
        try:
            lookup = self._answers.lookup(graph, var, time.thread_time() + QUESTION_SECONDS)
        except (Unsupported, Exhausted):
            return None
        return answer(lookup, question)


@without_collection()
def prove(capture: Capture, memo: Memo | None = None, seconds: float = SECONDS, effort: Effort = "usual") -> Proof:
    """Try to prove every promise of a capture; never raises for what a program does, and ends within about ``seconds`` of the processor.

    With a memo the stages of the program, or all of it where it cannot be cut, are first looked for there; what the memo knows is not proved again.
    A second attempt gets a few seconds, a ``patient`` one some more; an outcome that is ``hurried`` may come out otherwise with these.  A ``hasty`` proof
    leaves it out: :meth:`Proof.finished` makes it.
    """
    started = time.thread_time()
    patience = min(_PATIENCE[effort], seconds)
    spelling = None
    if memo is not None and is_like_one_known(capture, memo):  # one walk tells
        outcome, spelling = recalled(capture, memo, started)
        if outcome is not None:
            return Proof(capture, outcome, again=lambda: _searched(capture, memo, seconds, patience))
    search = _search(capture, memo, seconds, patience)
    if isinstance(search, str):
        return Proof(capture, failed(capture, search, started))
    if memo is not None and search.division is None and spelling is None:
        outcome, spelling = recalled(capture, memo, started)
        if outcome is not None:
            return Proof(capture, outcome, again=lambda: search.run(time.thread_time()))
    proof = search.run(started)
    if proof.roundings and not proof.outcome.proved:
        written = prove(exposed(capture, proof.roundings), memo, max(0.0, seconds - proof.outcome.seconds), effort)
        doubted = any(rounding.doubted for found in proof.roundings.values() for rounding in found)
        return proof if doubted and written.outcome.proved else written
    if memo is not None and proof.outcome.proved:
        remember(capture, memo, proof.outcome, spelling, cut=search.division is not None)
    return proof


def _searched(capture: Capture, memo: Memo, seconds: float, patience: float) -> Proof:
    """The proof of a capture that is known to have one, made anew with what is known of its stages."""
    search = _search(capture, memo, seconds, patience)
    assert isinstance(search, _Search)
    return search.run(time.thread_time())


def _search(capture: Capture, memo: Memo | None, seconds: float, patience: float) -> _Search | str:
    """How a capture is to be proved; or why there is nothing to prove."""
    try:
        traits = parse_traits(capture.traits)
    except TraitError as error:
        return str(error)
    joined = join(capture.ranks)
    trouble = trouble_of(capture, joined)
    if trouble:
        return trouble
    division = None if memo is None else divided(capture, joined)
    return _Search(capture, traits, joined, memo, division, seconds, patience)


@dataclass(frozen=True, slots=True)
class _Search:
    """The ways to a proof, in order."""

    capture: Capture
    traits: Mapping[str, Trait]
    joined: Joined
    memo: Memo | None
    division: Division | None
    seconds: float
    patience: float

    def run(self, started: float) -> Proof:
        capture = self.capture
        segments = None
        if self.memo is not None and self.division is not None:
            deadline = started + self.seconds / 2
            segments = _piecewise(capture, self.traits, self.joined, self.memo, self.division, deadline)
        if segments is not None:
            outcome = proved(capture, segments.promises, segments.facts, segments.assumed, started)
            return Proof(capture, outcome, segments=segments)
        return self._whole(started)

    def _whole(self, started: float) -> Proof:
        first = _Attempt(self.capture, self.traits, self.joined, {}, 1, self.seconds).run(started)
        if first.outcome.proved or first.outcome.gaps or time.thread_time() - started > self.seconds / 4:
            return first
        return self.again(first, started) if self.patience else first

    def again(self, first: Proof, started: float) -> Proof:
        """What further attempts, which write products out, make of the first: on contractions as unknowns, then on all that they are made of."""
        judgement = _Judgement(self.capture, self.joined, started)
        first = self._with_hidden(first, judgement)
        if first.outcome.proved:
            return first
        attempt = _Attempt(self.capture, self.traits, self.joined, first.facts, _EXPANDED, self.patience)
        second = attempt.run(started)
        if second.outcome.proved:
            return second
        whole = completed(first, second, judgement)
        if not whole.outcome.proved and time.thread_time() > attempt.deadline:
            whole.outcome = replace(whole.outcome, hurried=True)
        return whole

    def _with_hidden(self, first: Proof, judgement: _Judgement) -> Proof:
        """The first attempt with what is proved where contractions of the specification are unknowns of their own."""
        assert self.capture.spec is not None
        if first.coarse or not any(node.op in CONTRACTIONS for node in self.capture.spec.nodes):
            return first
        shown: frozenset[int] | None = frozenset()
        until = time.thread_time() + self.patience / 2
        while not first.outcome.proved and (left := until - time.thread_time()) > 0:
            attempt = _Attempt(self.capture, self.traits, self.joined, first.facts, _EXPANDED, left, shown)
            proof = attempt.run(judgement.started)
            if proof.outcome.proved:
                return proof
            first = completed(first, proof, judgement)
            if proof.unmet is None or proof.unmet == shown:
                break
            shown = proof.unmet
        return first


def completed(first: Proof, second: Proof, judgement: _Judgement) -> Proof:
    """The first attempt, with the outputs that only the second proves; each holds under what its own attempt assumes, and all of that is listed."""
    held = {promise.name: promise for promise in second.outcome.promises if promise.holds}
    promises = tuple(p if p.holds else held.get(p.name, p) for p in first.outcome.promises)
    if promises == first.outcome.promises:
        return first
    outcome = Outcome(
        proved=all(promise.holds for promise in promises),
        promises=promises,
        assumed=tuple(dict.fromkeys((*first.outcome.assumed, *second.outcome.assumed))),
        cautions=first.outcome.cautions,
        seconds=time.thread_time() - judgement.started,
    )
    state = first._known  # noqa: SLF001 - of the same class
    if not outcome.proved and state is not None:
        outcome = judgement.explained(state, outcome)
    return Proof(first.capture, outcome, state, failing=first.outcome.failing)


def _piecewise(
    capture: Capture, traits: Mapping[str, Trait], joined: Joined, memo: Memo, division: Division, deadline: float
) -> Segments | None:
    """A proof stage by stage; None where there is none."""
    try:
        return Work(capture, joined, traits, memo, division).prove(deadline)
    except (Failed, Unspelt, Unsupported, Exhausted):
        return None


class _Attempt:
    """One evaluation of the specification, and a judgement of the ranks on it."""

    def __init__(
        self,
        capture: Capture,
        traits: Mapping[str, Trait],
        joined: Joined,
        facts: Facts,
        expand: int,
        seconds: float,
        shown: Collection[int] | None = None,
    ) -> None:
        self.capture = capture
        self.traits = traits
        self.joined = joined
        self.facts = facts
        self.expand = expand
        self.shown = shown
        self.deadline = time.thread_time() + seconds

    def run(self, started: float) -> Proof:
        try:
            ground = grounded(self.capture, self.traits, self.facts, self.expand, self.deadline, self.shown)
        except Exhausted as reason:
            return Proof(self.capture, failed(self.capture, str(reason), started))
        except Unsupported as reason:
            return Proof(self.capture, failed(self.capture, f"an input cannot be represented: {reason}", started))
        return _Judgement(self.capture, self.joined, started).on(ground)


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The ranks of a capture, evaluated beside a specification, with the promises compared at the end."""

    capture: Capture
    joined: Joined
    started: float

    def on(self, ground: Ground) -> Proof:
        capture = self.capture
        evaluator = ground.evaluator.again(capture)
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
        state.algebra.universe.deadline = time.thread_time() + QUESTION_SECONDS
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
            seconds=time.thread_time() - self.started,
        )
