"""Relation inference on one capture: both programs evaluated into one universe, every promise compared there.

Equal normal forms mean equal values, so a promise that holds here holds for all inputs.  What does not hold is not thereby wrong:
whether it is, a run on numbers decides.
"""

from __future__ import annotations

from typing import Final

from graphguard.ir import Capture
from graphguard.ir.collection import without_collection
from graphguard.ir.fuel import Fuel, burnt
from graphguard.ir.joining import join
from graphguard.refine.evaluation.exposed import exposed
from graphguard.refine.proving.at_once import axes_alike, by_digits
from graphguard.refine.proving.attempts import EXPANDED, PATIENCE, Attempt, Effort, Search
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.programs import is_like_one_known, recalled, remember
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.verdicts import failed, trouble_of
from graphguard.refine.stages.cuts import divided
from graphguard.relations.terms.kernels import STEPS
from graphguard.rules import TraitError, parse_traits

DIGITS_ABOVE: Final = 16
"""Of so many ranks each is evaluated for itself, which costs little; of more all at once, where that proves every promise."""


@without_collection()
def prove(
    capture: Capture,
    memo: Memo | None = None,
    steps: float = STEPS,
    effort: Effort = "usual",
    digits_above: int = DIGITS_ABOVE,
) -> Proof:
    """Try to prove every promise of a capture; never raises for what a program does, and ends after about so many ``steps`` (:mod:`graphguard.ir.fuel`).

    With a memo the stages of the program, or all of it where it cannot be cut, are first looked for there; what the memo knows is not proved again.
    Further attempts get a sixth of them, ``patient`` ones as many again; an outcome that is ``hurried`` may come out otherwise with these.  A ``hasty`` proof
    leaves them out: :func:`finished` makes up for it.  Of more ranks than ``digits_above`` all are evaluated at once where that proves every promise (:mod:`graphguard.refine.digits`).
    """
    started = burnt()
    patience = min(PATIENCE[effort], steps)
    spelling = None
    if memo is not None and is_like_one_known(capture, memo):  # one walk tells
        outcome, spelling = recalled(capture, memo, started)
        if outcome is not None:
            return Proof(capture, outcome, again=lambda: _searched(capture, memo, steps, patience))
    if len(capture.ranks) > digits_above:
        at_once = _at_once(capture, steps, patience, started)
        if at_once is not None:
            return at_once
        started = burnt()  # as if it had not been tried
    search = _search(capture, memo, steps, patience)
    if isinstance(search, str):
        return Proof(capture, failed(capture, search, started))
    if memo is not None and search.division is None and spelling is None:
        outcome, spelling = recalled(capture, memo, started)
        if outcome is not None:
            return Proof(capture, outcome, again=lambda: search.run(burnt()))
    proof = search.run(started)
    if proof.roundings and not proof.outcome.proved:
        written = prove(
            exposed(capture, proof.roundings), memo, max(0.0, steps - proof.outcome.fuel), effort, digits_above
        )
        doubted = any(rounding.doubted for found in proof.roundings.values() for rounding in found)
        return proof if doubted and written.outcome.proved else written
    if memo is not None and proof.outcome.proved:
        remember(capture, memo, proof.outcome, spelling, cut=search.division is not None)
    return proof


def all_at_once(capture: Capture, steps: float = STEPS) -> tuple[Proof | None, tuple[str, ...]]:
    """The proof of all ranks at once, None where there is none; and the axes along which all ranks run one program."""
    proof = _at_once(capture, steps, PATIENCE["hasty"], burnt())
    return proof, axes_alike(capture)


def _at_once(capture: Capture, steps: float, patience: float, started: float) -> Proof | None:
    """The proof of all ranks at once; None where there is none, which says nothing.

    That all their collectives meet is asked of every rank, as ever.  It is not remembered: to make it anew costs less than to know it by the calls of all ranks.
    """
    try:
        traits = parse_traits(capture.traits)
    except TraitError:
        return None
    outcome = by_digits(capture, traits, Fuel("the proof of all ranks at once", steps / 4), started)
    if isinstance(outcome, str) or trouble_of(capture, join(capture.ranks)):
        return None
    return Proof(capture, outcome, whole=lambda: _searched(capture, None, steps, patience))


def _searched(capture: Capture, memo: Memo | None, steps: float, patience: float) -> Proof:
    """The proof of a capture that is known to have one, made anew with what is known of its stages."""
    search = _search(capture, memo, steps, patience)
    assert isinstance(search, Search)
    return search.run(burnt())


def _search(capture: Capture, memo: Memo | None, steps: float, patience: float) -> Search | str:
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
    return Search(capture, traits, joined, memo, division, steps, patience)


@without_collection()
def finished(proof: Proof, memo: Memo | None = None) -> Proof:
    """A hasty proof with the further attempts that it left out."""
    capture, outcome, started = proof.capture, proof.outcome, burnt()
    if outcome.proved or outcome.gaps:
        return proof
    joined = join(capture.ranks)
    search = Search(capture, parse_traits(capture.traits), joined, None, None, STEPS, PATIENCE["usual"])
    if proof.shallow is not None:  # what a shorter program does not prove, the whole one may
        again = search.whole(started)
    elif proof.known is None or outcome.fuel > STEPS / 4:
        return proof
    else:
        again = search.again(proof, started)
    if again.outcome.proved and memo is not None and divided(capture, joined) is None:
        remember(capture, memo, again.outcome, None, cut=False)
    return again


def expanded(proof: Proof, fuel: Fuel) -> Proof:
    """The attempt that writes out products of sums, which costs more and may understand more; it ends with the fuel."""
    capture = proof.capture
    attempt = Attempt(capture, parse_traits(capture.traits), join(capture.ranks), proof.facts, EXPANDED, fuel)
    return attempt.run(burnt())
