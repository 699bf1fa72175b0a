"""Proofs of captures that differ little from one that was tried: what did not change is not evaluated again."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from graphguard.ir import Capture
from graphguard.ir.collection import without_collection
from graphguard.ir.joining import join
from graphguard.refine.judgement import Judgement
from graphguard.refine.proof import Proof
from graphguard.refine.prove import SECONDS, prove
from graphguard.refine.retrial import Retrial
from graphguard.refine.state import QUESTION_SECONDS
from graphguard.refine.verdicts import failed, trouble_of
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Exhausted


@without_collection()
def retried(proof: Proof, edited: Capture, wanted: Collection[str] = (), seconds: float = SECONDS) -> Proof | None:
    """The proof of a capture that differs from this one in a few calls of its ranks, without frontiers: they cost more than the verdict.

    None where it spoils a promise that held, keeps none of those that are ``wanted`` (if any are), or does not come to an end: all that is evaluated is what
    changed, and the rest only once a wanted promise holds.
    """
    state, before = proof.state, proof.before
    if state is None or before is None:
        again = prove(edited, seconds=seconds)
        kept = not wanted or not again.failing.issuperset(wanted)
        return again if kept and again.failing <= proof.failing else None
    started = time.thread_time()
    joined = join(edited.ranks)
    if trouble_of(edited, joined):
        return None
    state.algebra.universe.deadline = started + seconds
    evaluator = state.ground.evaluator.again(edited)
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
    started = time.thread_time()
    state.algebra.universe.deadline = started + QUESTION_SECONDS
    try:
        known = state.respecified(capture, spec)
    except (Exhausted, Unsupported):
        return proof
    outcome = Judgement(capture, join(capture.ranks), started).explained(known, proof.outcome)
    return Proof(capture, outcome, known, failing=tuple(proof.failing))


@without_collection()
def reprove(proof: Proof, edited: Capture, seconds: float = SECONDS) -> Proof:
    """Prove a capture that differs from this one in its ranks only; what did not change is not evaluated again."""
    if proof.state is None:
        return prove(edited, seconds=seconds)
    started = time.thread_time()
    joined = join(edited.ranks)
    trouble = trouble_of(edited, joined)
    if trouble:
        return Proof(edited, failed(edited, trouble, started))
    proof.state.algebra.universe.deadline = started + seconds
    return Judgement(edited, joined, started).on(proof.state.ground)
