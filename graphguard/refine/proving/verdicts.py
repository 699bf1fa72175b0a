"""Outcomes of attempts that came to one end for all promises."""

from __future__ import annotations

from collections.abc import Iterable

from graphguard.ir import Capture
from graphguard.ir.fuel import burnt
from graphguard.ir.joining import Joined
from graphguard.refine.found.frontiers import cautions_of
from graphguard.refine.outcome import Outcome, PromiseOutcome
from graphguard.refine.stages.spelling import Facts
from graphguard.relations.functions.integers import COMPUTED_INDICES


def proved(
    capture: Capture,
    promises: tuple[PromiseOutcome, ...],
    facts: Facts,
    texts: Iterable[str],
    started: float,
) -> Outcome:
    """An outcome in which every promise holds; ``texts`` are what else was assumed on the way."""
    inputs = {leaf.name for leaf in capture.leaves}
    assumed = [*capture.assumed]
    for name, (low, high) in sorted(facts.items()):
        known = name in inputs  # else an unknown of the proof's own, which has no name for a reader
        assumed.append(
            f"{low} <= {name} < {high}, as the specification's own look-ups need" if known else COMPUTED_INDICES
        )
    assumed += sorted(texts)
    return Outcome(
        proved=True,
        promises=promises,
        assumed=tuple(dict.fromkeys(assumed)),
        cautions=cautions_of(capture),
        fuel=burnt() - started,
    )


def trouble_of(capture: Capture, joined: Joined) -> str:
    """Why there is nothing to prove."""
    if capture.spec is None:
        return "the specification was not captured"
    if len(capture.ranks) != capture.world_size:
        return f"{len(capture.ranks)} of {capture.world_size} ranks were captured"
    if joined.mismatches:
        return joined.mismatches[0].message
    if not capture.promises:
        return "nothing was promised"
    return ""


def failed(capture: Capture, reason: str, started: float) -> Outcome:
    """An outcome in which no promise holds, for a reason."""
    promises = tuple(PromiseOutcome(promise.name, False, "", reason=reason) for promise in capture.promises)
    return Outcome(False, promises, fuel=burnt() - started)
