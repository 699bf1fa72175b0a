"""A proof attempt and everything that can be asked about it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphguard.ir import Capture, Placement, Var
from graphguard.ir.fuel import Fuel
from graphguard.refine.evaluation.traces import Rounding
from graphguard.refine.found.lookup import GroupRelation, Lookup
from graphguard.refine.found.naming import names_of
from graphguard.refine.outcome import Location, Outcome
from graphguard.refine.proving.retrial import Before
from graphguard.refine.proving.segments import Answers, Segments
from graphguard.refine.proving.state import QUESTION, State, T, answer
from graphguard.refine.stages.shorter import Shorter
from graphguard.refine.stages.spelling import Facts
from graphguard.relations.algebra import Unsupported
from graphguard.relations.explain.differences import Difference
from graphguard.relations.explain.weights import Weights
from graphguard.relations.relation import Relation
from graphguard.relations.terms.kernels import Exhausted
from graphguard.relations.terms.values import NormalValue


class Proof:
    """A proof attempt and everything that can be asked about it afterwards.

    ``evaluated`` counts the calls that had to be evaluated for it: fewer than ``calls``, all that both programs have, where a memo knew the others.
    ``known`` is the evaluation behind it; what was proved in ``segments`` has one only once ``whole``, the proof of the program in one piece, is asked for it,
    and what was remembered is proved ``again`` where something is asked about it.  Where a program with fewer of the layers that are alike told that it is not proved, ``shallow`` is the proof of that
    one, ``shorter``: causes are looked for there.
    ``failing`` are the promises that do not hold in the evaluation behind it, which ``changes`` start from; ``outcome`` may hold some of them by another.
    """

    def __init__(
        self,
        capture: Capture,
        outcome: Outcome,
        state: State | None = None,
        *,
        segments: Segments | None = None,
        whole: Callable[[], Proof] | None = None,
        again: Callable[[], Proof] | None = None,
        failing: tuple[str, ...] | None = None,
        shallow: Proof | None = None,
        shorter: Shorter | None = None,
    ) -> None:
        self.capture = capture
        self.outcome = outcome
        self.failing = frozenset(outcome.failing if failing is None else failing)
        self.calls = capture.calls
        self.evaluated = self.calls if segments is None else segments.evaluated
        if again is not None:
            self.evaluated = 0
        self.known = state
        self._again = again
        self._whole = whole
        self._answers = None if segments is None else Answers(segments)
        self._relations: dict[Var, Relation | None] = {}
        self._before: Before | None = None
        self.shallow = shallow
        self.shorter = shorter
        if shallow is not None:
            self.evaluated = shallow.evaluated

    @property
    def state(self) -> State | None:
        """The evaluation of the whole program, made when it is first needed where the proof went without."""
        self._recall()
        if self._whole is not None:
            self._look_at_all()
        return self.known

    @property
    def before(self) -> Before | None:
        """The evaluated ranks, which a retrial of changed ones starts from."""
        state = self.state
        if self._before is None and state is not None:
            self._before = Before.of(self.capture, state.ranks, state.evaluator)
        return self._before

    def _recall(self) -> None:
        """Have something to ask, where the proof was remembered as a whole, or was none of the whole."""
        if self._again is not None:
            again, self._again = self._again, None
            full = again()
            self.known, self._answers, self._whole = full.known, full._answers, full._whole  # noqa: SLF001 - of the same class
        if self._whole is not None and self._answers is None:
            self._look_at_all()

    def _look_at_all(self) -> None:
        """Evaluate the whole program."""
        assert self._whole is not None
        whole, self._whole = self._whole, None
        self.known = whole().known

    @property
    def facts(self) -> Facts:
        """Ranges of index leaves, by name, that the specification's look-ups state."""
        self._recall()
        if self._answers is not None:
            return dict(self._answers.segments.facts)
        return {} if self.known is None else dict(self.known.algebra.universe.facts)

    @property
    def unmet(self) -> frozenset[int] | None:
        """The contractions of the specification that were hidden though no rank had them; None where nothing was hidden."""
        hidden = None if self.known is None else self.known.evaluator.hidden
        return None if hidden is None else hidden.unmet

    @property
    def coarse(self) -> bool:
        """Whether some tensors are of a narrower type than others, so that it matters where numbers are rounded."""
        return self.known is None or self.known.evaluator.narrowing.active

    @property
    def roundings(self) -> Mapping[Location, tuple[Rounding, ...]]:
        """Calls of ranks that compute in a narrower type than the specification does."""
        return {} if self.known is None else self.known.evaluator.narrowing.roundings

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
        if self.known is None and self._answers is None:
            return {}
        assert self.capture.spec is not None
        return names_of(self.capture.spec)

    def describe(self, rank: int, var: Var) -> str | None:
        """A rank's tensor in terms of the specification's; None where it is no window of any."""
        return self._ask(rank + 1, var, lambda lookup: lookup.describe(rank, var))

    def group(self, variables: Mapping[int, Var]) -> GroupRelation | None:
        """How one tensor a rank rebuild some tensor of the specification together; None where they do not cleanly."""
        if self.state is None:
            return None
        return answer(self.state.lookup, lambda lookup: lookup.group(variables))

    def on_relation(self, variables: Mapping[int, Var]) -> bool:
        """Whether each rank's tensor is by itself a window of a tensor of the specification, no partial sum and unscaled."""

        def question(lookup: Lookup) -> bool:
            texts = (lookup.describe(rank, var) for rank, var in variables.items())
            return all(lookup.on_relation(rank, var) for rank, var in variables.items()) and not any(
                text is not None and "partial sum" in text for text in texts
            )

        return self.state is not None and bool(answer(self.state.lookup, question))

    def holders(self, var: Var) -> list[tuple[dict[int, Var], dict[str, Placement]]]:
        """The ranks' tensors that hold a tensor of the specification, one a rank, whole or in parts, with their placements."""
        return [] if self.state is None else answer(self.state.lookup, lambda lookup: lookup.holders(var)) or []

    def value(self, graph: int, var: Var) -> NormalValue | None:
        """The normal form of a tensor of a rank, or of the specification for ``SPECIFICATION``."""
        return None if self.state is None else self.state.value(graph, var)

    def weights(self, rank: int, var: Var, meant: Var) -> Weights | None:
        """How often each summand of a tensor of the specification counts in a rank's tensor; None where that is not made of them."""
        return None if self.state is None else self.state.weights(rank, var, meant)

    def difference(self, promise: str, since: tuple[int, ...] = ()) -> Difference | None:
        """An element of a promised output, none before ``since``, that differs, and what it is computed from instead; None where it is computed in another way."""
        return None if self.state is None else self.state.difference(self.capture, promise, since)

    def _ask(self, graph: int, var: Var, question: Callable[[Lookup], T | None]) -> T | None:
        """An answer about a tensor of a graph (0 for the specification, then the ranks)."""
        self._recall()
        if self.known is not None:
            return answer(self.known.lookup, question)
        if self._answers is None:
            return None
        try:
            lookup = self._answers.lookup(graph, var, Fuel("a question", QUESTION))
        except (Unsupported, Exhausted):
            return None
        return answer(lookup, question)
