"""The evaluated specification, which every attempt on ranks of the same leaves starts from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from graphguard.ir import Capture
from graphguard.ir.fuel import Fuel
from graphguard.ops import traits_of
from graphguard.refine.evaluation.audits import observed
from graphguard.refine.evaluation.evaluate import Evaluator, Values
from graphguard.refine.found.layouts import Layouts
from graphguard.refine.found.lookup import Lookup, Targets
from graphguard.refine.stages.coarse import float_types
from graphguard.refine.stages.spelling import Facts
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.ranges import from_parts
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import Trait


@dataclass(frozen=True, slots=True)
class Ground:
    """The evaluated specification, with the layouts that were found on it."""

    algebra: NormalForm
    evaluator: Evaluator
    leaves: Mapping[str, NormalValue]
    specification: Values
    layouts: Layouts
    targets: Targets = field(default_factory=Targets)

    def lookup(self, capture: Capture, ranks: list[Values]) -> Lookup:
        """Look-ups of ranks beside this specification: what was found of the same values is not looked for again."""
        return Lookup(capture, self.specification, ranks, self.layouts, targets=self.targets)


def grounded(
    capture: Capture,
    traits: Mapping[str, Trait],
    facts: Facts,
    expand: int,
    fuel: Fuel,
    shown: Collection[int] | None = None,
) -> Ground:
    """Evaluate a specification, anew where its own look-ups state ranges that should have held from the start.

    ``facts`` are ranges that hold, products of sums of at most ``expand`` terms are written out; with ``shown``, contractions but these are hidden.  Raises ``Exhausted`` where there is no
    fuel, ``Unsupported`` for an input that cannot be represented.
    """
    assert capture.spec is not None
    known, unstated = dict(facts), frozenset[str]()
    floats = float_types({kind.dtype for graph in capture.graphs for kind in graph.types.values()})
    while True:
        universe = observed(Universe(expand, fuel, relative=True))
        universe.exponential = expand > 1 and _spelt_differently(capture)
        universe.facts = dict(known)
        universe.unstated = unstated
        algebra = NormalForm(universe)
        evaluator = Evaluator(algebra, capture, traits, shown)
        evaluator.begin(capture, floats)
        leaves = evaluator.leaves(capture.leaves)
        stale = partial(_stated_late, universe, known)
        specification = evaluator.specification(capture.spec, leaves, stale)
        if stale():
            known = dict(universe.facts)  # what a look-up states of an index holds from the start
            continue
        if not universe.needs:
            break
        parts, none = from_parts(universe)
        known, unstated = {**universe.facts, **parts}, unstated | none
    universe.specifying = False
    return Ground(algebra, evaluator, leaves, specification, Layouts(algebra, capture))


def _stated_late(universe: Universe, facts: Facts) -> bool:
    """Whether a range that was not known from the start was stated of an index that had been used."""
    return universe.late and universe.facts != facts


def _spelt_differently(capture: Capture) -> bool:
    """Whether one program has a sigmoid, or what is made of exponentials alike, that the other does not have."""
    assert capture.spec is not None
    spelt = [
        {_plain(node.op) for graph in graphs for node in graph.nodes if traits_of(node.op).exponential}
        for graphs in ((capture.spec,), capture.ranks)
    ]
    return spelt[0] != spelt[1]


def _plain(op: str) -> str:
    """A function's name without what says that it writes or is a gradient."""
    return op.split(".")[1].removesuffix("_backward").rstrip("_")
