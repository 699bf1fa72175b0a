"""The ways to a proof of one capture, in order: stage by stage, as a whole, and with more written out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from graphguard.ir import Capture
from graphguard.ir.fuel import SECOND, Fuel, burnt
from graphguard.ir.joining import Joined, join
from graphguard.refine.evaluation.hidden import CONTRACTIONS
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.ground import grounded
from graphguard.refine.proving.judgement import Judgement
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.regions import Failed
from graphguard.refine.proving.segments import Segments, Work
from graphguard.refine.proving.shallow import proves, told
from graphguard.refine.proving.verdicts import failed, proved, trouble_of
from graphguard.refine.stages.calls import Unspelt
from graphguard.refine.stages.cuts import Division
from graphguard.refine.stages.shorter import shorter
from graphguard.refine.stages.spelling import Facts
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Exhausted
from graphguard.rules import Trait

Effort: TypeAlias = Literal["hasty", "usual", "patient"]

# For further attempts, whose steps are cheaper than most: these take half as long as they say.
PATIENCE: Final[dict[Effort, float]] = {"hasty": 0, "usual": 10 * SECOND, "patient": 60 * SECOND}
EXPANDED: Final = 16  # products of sums of at most this many terms are written out where the first attempt fails


@dataclass(frozen=True, slots=True)
class Search:
    """The ways to a proof, in order."""

    capture: Capture
    traits: Mapping[str, Trait]
    joined: Joined
    memo: Memo | None
    division: Division | None
    steps: float
    patience: float

    def run(self, started: float) -> Proof:
        """The proof stage by stage where a memo and cuts allow it, else in one piece."""
        capture = self.capture
        segments = None
        if self.memo is not None and self.division is not None:
            fuel = Fuel("the proof stage by stage", self.steps / 2)
            segments = piecewise(capture, self.traits, self.joined, self.memo, self.division, fuel)
        if segments is not None:
            outcome = proved(capture, segments.promises, segments.facts, segments.assumed, started)
            return Proof(capture, outcome, segments=segments, whole=lambda: self.whole(burnt()))
        return self.shallow(started) or self.whole(started)

    def shallow(self, started: float) -> Proof | None:
        """What a program with fewer of the layers that are alike tells of one that is not proved, where little effort is asked; None where it tells less than the whole would."""
        if self.patience or self.memo is None or self.division is None:
            return None
        less = shorter(self.capture, self.division)
        if less is None:
            return None
        joined = join(less.capture.ranks)
        if trouble_of(less.capture, joined):
            return None
        search = replace(self, capture=less.capture, joined=joined, memo=None, division=None)
        proof = search.whole(burnt())
        if proof.outcome.proved or proof.known is None or proof.roundings:
            return None
        outcome = told(self.capture, less, proof.outcome, burnt() - started)
        held = {promise.name for promise in outcome.promises if promise.holds}
        fuel = Fuel("the proof stage by stage", self.steps / 2)
        if held and not proves(self.capture, held, self.traits, self.joined, self.memo, self.division, fuel):
            return None
        return Proof(self.capture, outcome, shallow=proof, shorter=less, whole=lambda: self.whole(burnt()))

    def whole(self, started: float) -> Proof:
        """The proof in one piece."""
        first = Attempt(self.capture, self.traits, self.joined, {}, 1, Fuel("the proof", self.steps)).run(started)
        if first.outcome.proved or first.outcome.gaps or burnt() - started > self.steps / 4:
            return first
        return self.again(first, started) if self.patience else first

    def again(self, first: Proof, started: float) -> Proof:
        """What further attempts, which write products out, make of the first: on contractions as unknowns, then on all that they are made of."""
        judgement = Judgement(self.capture, self.joined, started)
        first = self._with_hidden(first, judgement)
        if first.outcome.proved:
            return first
        fuel = Fuel("the proof with products written out", self.patience)
        attempt = Attempt(self.capture, self.traits, self.joined, first.facts, EXPANDED, fuel)
        second = attempt.run(started)
        if second.outcome.proved:
            return second
        whole = completed(first, second, judgement)
        if not whole.outcome.proved and fuel.spent:
            whole.outcome = replace(whole.outcome, hurried=True)
        return whole

    def _with_hidden(self, first: Proof, judgement: Judgement) -> Proof:
        """The first attempt with what is proved where contractions of the specification are unknowns of their own."""
        assert self.capture.spec is not None
        if first.coarse or not any(node.op in CONTRACTIONS for node in self.capture.spec.nodes):
            return first
        shown: frozenset[int] | None = frozenset()
        fuel = Fuel("the proof with contractions as unknowns", self.patience / 2)
        while not first.outcome.proved and not fuel.spent:
            attempt = Attempt(self.capture, self.traits, self.joined, first.facts, EXPANDED, fuel, shown)
            proof = attempt.run(judgement.started)
            if proof.outcome.proved:
                return proof
            first = completed(first, proof, judgement)
            if proof.unmet is None or proof.unmet == shown:
                break
            shown = proof.unmet
        return first


def completed(first: Proof, second: Proof, judgement: Judgement) -> Proof:
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
        fuel=burnt() - judgement.started,
    )
    state = first.known
    if not outcome.proved and state is not None:
        outcome = judgement.explained(state, outcome)
    return Proof(first.capture, outcome, state, failing=first.outcome.failing)


def piecewise(
    capture: Capture, traits: Mapping[str, Trait], joined: Joined, memo: Memo, division: Division, fuel: Fuel
) -> Segments | None:
    """A proof stage by stage; None where there is none."""
    try:
        return Work(capture, joined, traits, memo, division).prove(fuel)
    except (Failed, Unspelt, Unsupported, Exhausted):
        return None


class Attempt:
    """One evaluation of the specification, and a judgement of the ranks on it."""

    def __init__(
        self,
        capture: Capture,
        traits: Mapping[str, Trait],
        joined: Joined,
        facts: Facts,
        expand: int,
        fuel: Fuel,
        shown: Collection[int] | None = None,
    ) -> None:
        self.capture = capture
        self.traits = traits
        self.joined = joined
        self.facts = facts
        self.expand = expand
        self.shown = shown
        self.fuel = fuel

    def run(self, started: float) -> Proof:
        """The proof, or why there is none; ``started`` is when all of it began."""
        try:
            ground = grounded(self.capture, self.traits, self.facts, self.expand, self.fuel, self.shown)
        except Exhausted as reason:
            return Proof(self.capture, failed(self.capture, str(reason), started))
        except Unsupported as reason:
            return Proof(self.capture, failed(self.capture, f"an input cannot be represented: {reason}", started))
        return Judgement(self.capture, self.joined, started).on(ground)
