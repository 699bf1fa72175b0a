"""Which hypotheses a proof confirms: try edits on the graphs, keep what mends the broken promises."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from graphguard.ir import Capture
from graphguard.refine.prove import Proof
from graphguard.repair.alignment import Alignment, align
from graphguard.repair.edits import apply
from graphguard.repair.frames import Sources
from graphguard.repair.guesses import SCALING
from graphguard.repair.hypotheses import Hypothesis, hypotheses
from graphguard.repair.slices import SLICES, Site, backward_slice, reached

SECONDS = 2.0  # of this thread's own time, so that a busy machine does not change the diagnosis
ROUNDS = 4
ENOUGH = 3


@dataclass(frozen=True, slots=True)
class Repair:
    """A confirmed hypothesis: what it mends, and the program after it; ``sites`` are those of the program before it."""

    hypothesis: Hypothesis
    mends: tuple[str, ...]
    capture: Capture
    proof: Proof
    sites: Mapping[int, Site]
    alternatives: tuple[Hypothesis, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """The repairs found, one per defect, and the promises that stay broken after all of them."""

    repairs: tuple[Repair, ...]
    left: tuple[str, ...]
    capture: Capture
    proof: Proof
    alignment: Alignment


def search(
    capture: Capture,
    proof: Proof,
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    seconds: float = SECONDS,
) -> Search:
    """Mend a program edit by edit: each edit must mend at least one broken promise and spoil none.

    ``broken`` names the promises that numbers refuted; ``ratios`` are constant factors that numbers showed; ``sources`` say which
    sites one change of the source would touch.
    """
    deadline = time.thread_time() + seconds
    repairs: list[Repair] = []
    while broken and len(repairs) < ROUNDS:
        alignment = align(capture)
        sites = backward_slice(capture, proof, alignment, broken)
        suspects = _suspects(capture, proof, alignment, sites)
        repair = _best(capture, proof, suspects, broken, ratios, sources, deadline)
        if repair is None:
            break
        repairs.append(repair)
        broken = tuple(name for name in broken if name not in repair.mends)
        capture, proof = repair.capture, proof.reprove(repair.capture) if broken else repair.proof
    return Search(tuple(repairs), broken, capture, proof, align(capture))


def _suspects(capture: Capture, proof: Proof, alignment: Alignment, sites: Mapping[int, Site]) -> Mapping[int, Site]:
    """The sites that no kept promise rests on: another value there would break that promise, so the defect is elsewhere."""
    kept = tuple(promise.name for promise in proof.outcome.promises if promise.holds)
    cleared = reached(capture, alignment, kept)
    suspects = {number: site for number, site in sites.items() if number not in cleared}
    return suspects or sites


def _best(
    capture: Capture,
    proof: Proof,
    sites: Mapping[int, Site],
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    deadline: float,
) -> Repair | None:
    """The first hypothesis, by cost, that mends most; one that mends all ends the search at its cost."""
    best: Repair | None = None
    same: list[Hypothesis] = []

    def places(site: Site) -> list[Hashable]:
        graph = capture.ranks[min(site.position)]
        inner = sources.frames(graph, site.node)[:1]
        numbers = sources.numbers(graph, site.node) if site.node.op in SCALING | SLICES else []
        return list(dict.fromkeys([*(frame.span for frame in inner), sources.place(graph, site.node), *numbers]))

    def named(site: Site) -> bool:
        return sources.is_named(sources.place(capture.ranks[min(site.position)], site.node))

    for guess in hypotheses(proof, sites, ratios, broken, places, named):
        settled = best is not None and set(best.mends) == set(broken) and guess.cost > best.hypothesis.cost
        if settled or time.thread_time() > deadline:
            break
        repair = _try(guess, capture, proof, sites, broken)
        if repair is None:
            continue
        if best is None or len(repair.mends) > len(best.mends):
            best, same = repair, []
        elif len(repair.mends) == len(best.mends):
            same.append(guess)
        if len(same) >= ENOUGH:
            break
    if best is None:
        return None
    return Repair(best.hypothesis, best.mends, best.capture, best.proof, sites, tuple(same))


def _try(
    guess: Hypothesis, capture: Capture, proof: Proof, sites: Mapping[int, Site], broken: tuple[str, ...]
) -> Repair | None:
    edited = capture
    try:
        for edit in guess.edits:
            edited = apply(edit, edited)
    except (KeyError, IndexError):
        return None  # a rank lacks the position: the edit does not exist there
    again = proof.reprove(edited, explain=False)
    failing = {promise.name for promise in again.outcome.promises if not promise.holds}
    before = {promise.name for promise in proof.outcome.promises if not promise.holds}
    if not failing <= before:
        return None
    mends = tuple(name for name in broken if name not in failing)
    return Repair(guess, mends, edited, again, sites) if mends else None
