"""Proofs of captures that differ little from one that was tried: what did not change is not evaluated again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from graphguard.ir import Capture
from graphguard.ir.collection import without_collection
from graphguard.ir.fuel import burnt
from graphguard.ir.joining import join
from graphguard.refine.proving.judgement import Judgement
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove
from graphguard.refine.proving.retrial import Retrial
from graphguard.refine.proving.state import QUESTION
from graphguard.refine.proving.verdicts import failed, trouble_of
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import STEPS, Exhausted


@without_collection()
def retried(proof: Proof, edited: Capture, wanted: Collection[str] = (), steps: float = STEPS) -> Proof | None:
    """The proof of a capture that differs from this one in a few calls of its ranks, without frontiers: they cost more than the verdict.

    None where it spoils a promise that held, keeps none of those that are ``wanted`` (if any are), or does not come to an end: all that is evaluated is what
    changed, and the rest only once a wanted promise holds.
    """
    state, before = proof.state, proof.before
    if state is None or before is None:
        again = prove(edited, steps=steps)
        kept = not wanted or not again.failing.issuperset(wanted)
        return again if kept and again.failing <= proof.failing else None
    started = burnt()
    joined = join(edited.ranks)
    if trouble_of(edited, joined):
        return None
    state.algebra.universe.refuel("the proof of an edit", steps)
    evaluator = state.ground.evaluator.again(edited, tentative=True)
    retrial = Retrial(edited, joined, evaluator, state.ground.leaves, before)
    known = {p.name: replace(p, holds=p.name not in proof.failing) for p in proof.outcome.promises}
    try:
        return Judgement(edited, joined, started).of_changes(retrial, state.ground, known, wanted)
    except (Exhausted, Unsupported):
        return None


@without_collection()
def respecified(proof: Proof, capture: Capture) -> Proof:
    """The same attempt on a capture whose specification computes the same values in other steps: the ranks are not evaluated again."""
    state, spec = proof.state, capture.spec
    if state is None or spec is None:
        return prove(capture, effort="hasty")
    started = burnt()
    state.algebra.universe.refuel("a question", QUESTION)
    try:
        known = state.respecified(capture, spec)
    except (Exhausted, Unsupported):
        return proof
    outcome = Judgement(capture, join(capture.ranks), started).explained(known, proof.outcome)
    return Proof(capture, outcome, known, failing=tuple(proof.failing))


@without_collection()
def reprove(proof: Proof, edited: Capture, steps: float = STEPS) -> Proof:
    """Prove a capture that differs from this one in its ranks only; what did not change is not evaluated again."""
    if proof.state is None:
        return prove(edited, steps=steps)
    started = burnt()
    joined = join(edited.ranks)
    trouble = trouble_of(edited, joined)
    if trouble:
        return Proof(edited, failed(edited, trouble, started))
    proof.state.algebra.universe.refuel("the proof of an edit", steps)
    return Judgement(edited, joined, started, tentative=True).on(proof.state.ground)
