"""Which hypotheses a proof confirms: try edits on the graphs, keep what mends the broken promises."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from graphguard.ir import Capture
from graphguard.ir.fuel import LOOKS, SECOND, Fuel
from graphguard.refine.evaluation.exposed import is_unmeant
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.changes import reprove
from graphguard.refine.proving.proof import Proof
from graphguard.repair.backward.stopped import results_among
from graphguard.repair.graph.alignment import Alignment
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.graph.slices import SLICES, Site, backward_slice, reached
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.derived import derived
from graphguard.repair.trying.hypotheses import Hypothesis, hypotheses
from graphguard.repair.trying.outdated import is_consequence, is_stale, outdated, outdates
from graphguard.repair.trying.trials import Repair, Trials, holds

STEPS = 2 * SECOND
FURTHER = SECOND  # for all steps together, where no single edit mends a promise
DERIVED = SECOND // 2  # for edits that follow from the difference: there are few of them
ROUNDS = 4
ENOUGH = 3
STALE = SECOND // 5  # for gradients that were recorded before another value was put in the forward pass
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
    trials: Trials

    @property
    def alignment(self) -> Alignment:
        """Which nodes of the ranks belong together."""
        return self.trials.alignment


def search(
    capture: Capture,
    proof: Proof,
    broken: tuple[str, ...],
    ratios: Mapping[str, float],
    sources: Sources,
    steps: float = STEPS,
    further: float = FURTHER,
    trials: Trials | None = None,
) -> Search:
    """Mend a program edit by edit: each edit must mend at least one broken promise and spoil none.

    Where no single edit does, as with two defects on the way to one output, the next must at least bring the specification's first
    tensor without a relation back, and the search goes on from there; such edits count once a promise is mended at the end.

    ``broken`` names the promises that numbers refuted; ``ratios`` are constant factors that numbers showed; ``sources`` say which
    sites one change of the source would touch.  ``steps`` are for single edits, ``further`` more for steps and for edits that follow from the difference;
    ``trials`` is what numbers are known to refute.
    """
    fuel = Fuel("the search for an edit", steps, LOOKS)
    repairs: list[Repair] = []
    taken: list[Repair] = []  # on the way to a promise
    given_up: tuple[str, ...] = ()
    stale = False
    trials = trials or Trials.of(capture)
    start = broken, capture, proof, trials
    while broken and len(repairs) + len(taken) < ROUNDS:
        asked = _Round(trials, proof, broken, ratios, sources, stale)
        repair = asked.repair(fuel, 0 if stale else further)
        if repair is None or is_consequence(repair, broken):
            break
        taken.append(repair)
        capture = repair.capture
        if repair.mends:
            repairs += [replace(step, mends=repair.mends) for step in taken]
            taken = []
            broken = tuple(name for name in broken if name not in repair.mends)
            stale = stale or outdates(repair)
            fuel = fuel.part(fuel.what, STALE) if stale else fuel
            lost = outdated(repair, broken)
            given_up += tuple(name for name in broken if name in lost)
            broken = tuple(name for name in broken if name not in lost)
        proof = reprove(proof, capture) if broken else repair.proof
        trials = trials.after(capture) if broken else Trials(capture, None)
        start = (broken, capture, proof, trials) if not taken else start
    broken, capture, proof, trials = start
    return Search(tuple(repairs), broken + given_up, stale, capture, proof, trials)


@dataclass(slots=True)
class _Round:
    """What is asked of one program on the way, to find the next edit."""

    trials: Trials
    proof: Proof
    broken: tuple[str, ...]
    ratios: Mapping[str, float]
    sources: Sources
    stale: bool
    _guesses: dict[frozenset[int], list[Hypothesis]] = field(default_factory=dict)

    def repair(self, fuel: Fuel, further: float) -> Repair | None:
        """The next edit: one that mends a promise, one that follows from the difference, or a step towards one."""
        sites = backward_slice(self.trials.capture, self.proof, self.trials.alignment, self.broken)
        suspects = self._suspects(sites)
        found = self._best(suspects, fuel)
        if found is None and len(suspects) < len(sites):  # a kept promise may be one that the defect does not change
            found = self._best(sites, fuel)
        if found is None and further and not self.stale:
            found = self._derived(sites)
        return self._step(sites, Fuel(fuel.what, fuel.left + further, LOOKS)) if found is None else found

    def _guesses_at(self, sites: Mapping[int, Site]) -> list[Hypothesis]:
        key = frozenset(sites)
        if key not in self._guesses:
            questions = _questions(self.trials.capture, self.sources)
            self._guesses[key] = hypotheses(self.proof, sites, self.ratios, self.broken, *questions)
        return self._guesses[key]

    def _suspects(self, sites: Mapping[int, Site]) -> Mapping[int, Site]:
        """The sites that no kept promise rests on: another value there would break that promise, so the defect is elsewhere."""
        kept = tuple(promise.name for promise in self.proof.outcome.promises if promise.holds)
        cleared = reached(self.trials.capture, self.trials.alignment, kept)
        suspects = {number: site for number, site in sites.items() if number not in cleared or _gives_more(site)}
        return suspects if any(number not in cleared for number in suspects) else sites

    def _best(self, sites: Mapping[int, Site], fuel: Fuel) -> Repair | None:
        """The first hypothesis, by cost, that mends most; one that mends all ends the search at its cost.

        A wrong result spoils the gradients behind it: while one is wrong, only what mends a result is looked for, where it rests on.
        """
        guesses = [guess for guess in self._guesses_at(sites) if not (self.stale and is_stale(guess))]
        results = results_among(self.trials.capture, self.broken)
        if results and len(results) < len(self.broken):
            resting = reached(self.trials.capture, self.trials.alignment, results)
            first = [guess for guess in guesses if guess.site.number in resting]
            repair = self._likeliest(first, sites, results, fuel)
            if repair is not None:
                return repair
        return self._likeliest(guesses, sites, self.broken, fuel)

    def _derived(self, sites: Mapping[int, Site]) -> Repair | None:
        """The likeliest edit that follows from how the programs differ."""
        fuel = Fuel("the search for an edit by the difference", DERIVED, LOOKS)
        point = None if self.trials.refuter is None else self.trials.refuter.point
        rows = derived(self.proof, self.trials.alignment, sites, self.broken, point)
        return self._likeliest((Hypothesis(*row) for row in rows), sites, self.broken, fuel)

    def _likeliest(
        self, guesses: Iterable[Hypothesis], sites: Mapping[int, Site], wanted: tuple[str, ...], fuel: Fuel
    ) -> Repair | None:
        best: Repair | None = None
        same: list[Hypothesis] = []
        for guess in guesses:
            margin = 0 if best is not None and set(best.mends) == set(self.broken) else MARGIN
            settled = best is not None and guess.cost > best.hypothesis.cost + margin
            if settled or fuel.spent:
                break
            fewest = 1 if best is None else sum(name in best.mends for name in wanted)
            repair = self.trials.mending(guess, self.proof, sites, self.broken, wanted, fewest)
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

    def _step(self, sites: Mapping[int, Site], fuel: Fuel) -> Repair | None:
        """The hypothesis after which the ranks hold a tensor of the specification's frontier, and most of what comes after it."""
        spec, trials = self.trials.capture.spec, self.trials
        frontier = [place.node for place in self.proof.outcome.specification_frontier if place.graph == SPECIFICATION]
        missing = [out for node in frontier for out in (spec.nodes[node].outs if spec is not None else ())]
        later = [out for node in (spec.nodes if spec is not None else ()) for out in node.outs]
        best: tuple[int, Repair] | None = None
        for guess in self._guesses_at(sites) if missing else ():
            settled = best is not None and guess.cost > best[1].hypothesis.cost + 1
            if settled or fuel.spent:
                break
            repair = trials.regaining(guess, self.proof, sites, self.broken, missing)
            if repair is None:
                continue
            held = sum(holds(repair.proof, var) for var in later)
            if best is None or held > best[0]:
                best = held, repair
        return None if best is None else best[1]


def _gives_more(site: Site) -> bool:
    """Whether an operator of autograd gives several gradients, of which a kept promise may rest on one."""
    return site.node.phase == "backward" and len(site.node.outs) > 1


def _questions(
    capture: Capture, sources: Sources
) -> tuple[
    Callable[[Site], list[Hashable]], Callable[[Site], bool], Callable[[Site], Hashable], Callable[[Site], bool]
]:
    """Where a site stands in the source, whether its author gave it a name, which forward call it is the gradient of, and whether its factor is a number there."""

    def places(site: Site) -> list[Hashable]:
        graph = capture.ranks[min(site.position)]
        inner = sources.frames(graph, site.node)[:1]
        numbers = sources.numbers(graph, site.node) if site.node.op in SCALING | SLICES else []
        found: list[Hashable] = [*(frame.span for frame in inner), sources.place(graph, site.node), *numbers]
        if is_unmeant(site.node):  # what is computed in a narrow type is seldom one operator
            found += [(frame.span.file, frame.function) for frame in sources.forward_frames(graph, site.node)[:1]]
        return list(dict.fromkeys(found))

    def named(site: Site) -> bool:
        return sources.is_named(sources.place(capture.ranks[min(site.position)], site.node))

    def passes(site: Site) -> Hashable:
        return sources.forward_call(capture.ranks[min(site.position)], site.node)

    def literal(site: Site) -> bool:
        graph = capture.ranks[min(site.position)]
        inner = sources.frames(graph, site.node)[:1]
        return any(sources.is_scaled_by_number(frame.span) for frame in inner)

    return places, named, passes, literal


def _weight(repair: Repair) -> tuple[int, int]:
    """How much a repair mends, results before gradients: a wrong result spoils the gradients behind it, too."""
    return len(results_among(repair.before, repair.mends)), len(repair.mends)
