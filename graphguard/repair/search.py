"""Which hypotheses a proof confirms: try edits on the graphs, keep what mends the broken promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from graphguard.ir import Capture
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.prove import Proof
from graphguard.repair.alignment import Alignment, align
from graphguard.repair.derived import derived
from graphguard.repair.frames import Sources
from graphguard.repair.hypotheses import Hypothesis, hypotheses
from graphguard.repair.neighbours import SCALING
from graphguard.repair.slices import SLICES, Site, backward_slice, reached
from graphguard.repair.trials import Repair, Trials, holds

SECONDS = 2.0  # of this thread's own time, so that a busy machine does not change the diagnosis
STEP_SECONDS = 1.0  # more, for all steps together, where no single edit mends a promise
DERIVED_SECONDS = 0.5  # more, for edits that follow from the difference: there are few of them
ROUNDS = 4
ENOUGH = 3
STALE_SECONDS = 0.2  # for gradients that were recorded before another value was put in the forward pass
_OF_VALUES = frozenset({"wrong-relation", "wrong-shard", "wrong-scale"})
MARGIN = 2  # how much less likely one repair of everything may be than one of a part, which another must follow


@dataclass(frozen=True, slots=True)
class Search:
    """The repairs found, one per defect, and the promises that stay broken after all of them.

    ``stale`` says that a repair made recorded gradients those of another program: what is left of them is no defect of its own.
    """

    repairs: tuple[Repair, ...]
    left: tuple[str, ...]
    stale: bool
    capture: Capture
    proof: Proof
    alignment: Alignment
    trials: Trials


def search(
    capture: Capture,
    proof: Proof,
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    seconds: float = SECONDS,
    further: float = STEP_SECONDS,
    trials: Trials | None = None,
) -> Search:
    """Mend a program edit by edit: each edit must mend at least one broken promise and spoil none.

    Where no single edit does, as with two defects on the way to one output, the next must at least bring the specification's first
    tensor without a relation back, and the search goes on from there; such edits count once a promise is mended at the end.

    ``broken`` names the promises that numbers refuted; ``ratios`` are constant factors that numbers showed; ``sources`` say which
    sites one change of the source would touch.  ``seconds`` are for single edits, ``further`` more for steps and for edits that follow from the difference;
    ``trials`` is what numbers are known to refute.
    """
    deadline = time.thread_time() + seconds
    repairs: list[Repair] = []
    steps: list[Repair] = []  # on the way to a promise
    stale = False
    trials = trials or Trials.of(capture)
    start = broken, capture, proof, trials
    while broken and len(repairs) + len(steps) < ROUNDS:
        alignment = align(capture)
        sites = backward_slice(capture, proof, alignment, broken)
        suspects = _suspects(capture, proof, alignment, sites)
        repair = _best(trials, proof, alignment, suspects, broken, ratios, sources, deadline, stale)
        if repair is None and len(suspects) < len(sites):  # a kept promise may be one that the defect does not change
            repair = _best(trials, proof, alignment, sites, broken, ratios, sources, deadline, stale)
        if repair is None and further and not stale:
            repair = _derived(trials, proof, alignment, sites, broken)
        if repair is None:
            repair = _step(trials, proof, sites, broken, ratios, sources, deadline + (0.0 if stale else further))
        if repair is None or _is_consequence(repair, broken):
            break
        steps.append(repair)
        capture = repair.capture
        if repair.mends:
            repairs += [replace(step, mends=repair.mends) for step in steps]
            steps = []
            broken = tuple(name for name in broken if name not in repair.mends)
            stale = stale or _outdates(repair)
            deadline = min(deadline, time.thread_time() + STALE_SECONDS) if stale else deadline
        proof = proof.reprove(capture) if broken else repair.proof
        trials = trials.after(capture) if broken else trials
        start = (broken, capture, proof, trials) if not steps else start
    broken, capture, proof, trials = start
    return Search(tuple(repairs), broken, stale, capture, proof, align(capture), trials)


def _derived(
    trials: Trials, proof: Proof, alignment: Alignment, sites: Mapping[int, Site], broken: tuple[str, ...]
) -> Repair | None:
    """The likeliest edit that follows from how the programs differ."""
    deadline = time.thread_time() + DERIVED_SECONDS
    point = None if trials.refuter is None else trials.refuter.point
    guesses = (Hypothesis(*guess) for guess in derived(proof, alignment, sites, broken, deadline, point))
    return _likeliest(guesses, trials, proof, sites, broken, broken, deadline)


def _outdates(repair: Repair) -> bool:
    """Whether a repair makes gradients that are recorded ones of another program: the edited source has others, which tell what else is wrong."""
    guess = repair.hypothesis
    results = any(not name.startswith("grad(") for name in repair.mends)
    return results and guess.site.node.phase == "forward" and guess.rule in _OF_VALUES


def _is_stale(guess: Hypothesis) -> bool:
    """Whether an edit computes a gradient otherwise, which tells nothing once gradients are those of another program."""
    return guess.rule in _OF_VALUES and guess.site.node.phase == "backward"


def _is_consequence(repair: Repair, broken: tuple[str, ...]) -> bool:
    """Whether a repair rewrites how gradients are computed although a result is wrong that it does not mend: that one spoils them."""
    results = [name for name in broken if not name.startswith("grad(")]
    guess = repair.hypothesis
    return guess.rule == "wrong-relation" and guess.site.node.phase == "backward" and not {*results} <= {*repair.mends}


def _step(
    trials: Trials,
    proof: Proof,
    sites: Mapping[int, Site],
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    deadline: float,
) -> Repair | None:
    """The hypothesis after which the ranks hold a tensor of the specification's frontier, and most of what comes after it."""
    spec = trials.capture.spec
    frontier = [place.node for place in proof.outcome.specification_frontier if place.graph == SPECIFICATION]
    missing = [out for node in frontier for out in (spec.nodes[node].outs if spec is not None else ())]
    later = [out for node in (spec.nodes if spec is not None else ()) for out in node.outs]
    places, named, passes = _questions(trials.capture, sources)
    best: tuple[int, Repair] | None = None
    for guess in hypotheses(proof, sites, ratios, broken, places, named, passes) if missing else ():
        settled = best is not None and guess.cost > best[1].hypothesis.cost + 1
        if settled or time.thread_time() > deadline:
            break
        repair = trials.regaining(guess, proof, sites, broken, missing)
        if repair is None:
            continue
        held = sum(holds(repair.proof, var) for var in later)
        if best is None or held > best[0]:
            best = held, repair
    return None if best is None else best[1]


def _questions(
    capture: Capture, sources: Sources
) -> tuple[Callable[[Site], list[Hashable]], Callable[[Site], bool], Callable[[Site], Hashable]]:
    """Where a site stands in the source, whether its author gave it a name, and which forward call it is the gradient of."""

    def places(site: Site) -> list[Hashable]:
        graph = capture.ranks[min(site.position)]
        inner = sources.frames(graph, site.node)[:1]
        numbers = sources.numbers(graph, site.node) if site.node.op in SCALING | SLICES else []
        return list(dict.fromkeys([*(frame.span for frame in inner), sources.place(graph, site.node), *numbers]))

    def named(site: Site) -> bool:
        return sources.is_named(sources.place(capture.ranks[min(site.position)], site.node))

    def passes(site: Site) -> Hashable:
        return sources.forward_call(capture.ranks[min(site.position)], site.node)

    return places, named, passes


def _suspects(capture: Capture, proof: Proof, alignment: Alignment, sites: Mapping[int, Site]) -> Mapping[int, Site]:
    """The sites that no kept promise rests on: another value there would break that promise, so the defect is elsewhere."""
    kept = tuple(promise.name for promise in proof.outcome.promises if promise.holds)
    cleared = reached(capture, alignment, kept)
    suspects = {number: site for number, site in sites.items() if number not in cleared}
    return suspects or sites


def _best(
    trials: Trials,
    proof: Proof,
    alignment: Alignment,
    sites: Mapping[int, Site],
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    deadline: float,
    stale: bool,
) -> Repair | None:
    """The first hypothesis, by cost, that mends most; one that mends all ends the search at its cost.

    A wrong result spoils the gradients behind it: while one is wrong, only what mends a result is looked for, where it rests on.
    """
    places, named, passes = _questions(trials.capture, sources)
    guesses = hypotheses(proof, sites, ratios, broken, places, named, passes)
    guesses = [guess for guess in guesses if not (stale and _is_stale(guess))]
    results = tuple(name for name in broken if not name.startswith("grad("))
    if results and len(results) < len(broken):
        resting = reached(trials.capture, alignment, results)
        first = [guess for guess in guesses if guess.site.number in resting]
        repair = _likeliest(first, trials, proof, sites, broken, results, deadline)
        if repair is not None:
            return repair
    return _likeliest(guesses, trials, proof, sites, broken, broken, deadline)


def _likeliest(
    guesses: Iterable[Hypothesis],
    trials: Trials,
    proof: Proof,
    sites: Mapping[int, Site],
    broken: tuple[str, ...],
    wanted: tuple[str, ...],
    deadline: float,
) -> Repair | None:
    best: Repair | None = None
    same: list[Hypothesis] = []
    for guess in guesses:
        margin = 0 if best is not None and set(best.mends) == set(broken) else MARGIN
        settled = best is not None and guess.cost > best.hypothesis.cost + margin
        if settled or time.thread_time() > deadline:
            break
        repair = trials.mending(guess, proof, sites, broken, wanted)
        if repair is None:
            continue
        if best is None or _weight(repair) > _weight(best):
            best, same = repair, []
        elif _weight(repair) == _weight(best):
            same.append(guess)
        if len(same) >= ENOUGH:
            break
    if best is None:
        return None
    return replace(best, alternatives=tuple(same))


def _weight(repair: Repair) -> tuple[int, int]:
    """How much a repair mends, results before gradients: a wrong result spoils the gradients behind it, too."""
    return sum(not name.startswith("grad(") for name in repair.mends), len(repair.mends)
