"""The proof of a capture with all ranks evaluated at once: of all its promises, or none (see :mod:`graphguard.refine.digits`)."""

from __future__ import annotations

from collections.abc import Mapping

from graphguard.ir import Capture
from graphguard.ir.fuel import Fuel
from graphguard.ir.strict import STRICT
from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.evaluate import Run
from graphguard.refine.digits.exchanges import Exchange, joined
from graphguard.refine.digits.programs import Quotient, quotients
from graphguard.refine.digits.promises import Promises, Specified
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.ground import Ground, grounded
from graphguard.refine.proving.verdicts import proved
from graphguard.refine.ragged import has_symbols
from graphguard.refine.stages.coarse import float_types
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Exhausted
from graphguard.rules import Trait
from graphguard.rules.basis.casting import DOUBLES


def by_digits(capture: Capture, traits: Mapping[str, Trait], fuel: Fuel, started: float) -> Outcome | str:
    """The outcome of a capture of which every promise is proved; else why not, which says nothing about the program."""
    try:
        return _proved(capture, traits, fuel, started)
    except (Unsupported, Exhausted) as reason:
        return str(reason)
    except Exception as error:
        if STRICT:
            raise
        return f"digits failed: {type(error).__name__} {error}"  # a defect of ours costs time, not the verdict


def axes_alike(capture: Capture) -> tuple[str, ...]:
    """The axes along which all ranks run one program, as far as that is seen."""
    try:
        found = next(quotients(capture))
    except Unsupported:
        return ()
    return tuple(found.mesh[axis][0] for axis in found.digits)


def evaluated(capture: Capture, found: Quotient, ground: Ground) -> tuple[Stacked, list[Run], Promises]:
    """All programs of a quotient, evaluated beside the specification; raises ``Unsupported``."""
    algebra = Stacked(ground.algebra, found.sizes, ground.evaluator.own)
    steps = joined(found)
    runs = [Run(algebra, ground.evaluator, program) for program in found.programs]
    leaves = {name: algebra.lift(value) for name, value in ground.leaves.items()}
    for run in runs:
        run.start(leaves, ground.evaluator)
    Exchange(found, algebra, runs).run(steps)
    there = Specified(ground.evaluator, ground.leaves, ground.specification, ground.layouts)
    return algebra, runs, Promises(capture, found, there, algebra, steps)


def _proved(capture: Capture, traits: Mapping[str, Trait], fuel: Fuel, started: float) -> Outcome:
    if capture.spec is None or not capture.promises:
        raise Unsupported("there is nothing to prove")
    if any(map(has_symbols, capture.graphs)):
        raise Unsupported("sizes that the data decides")
    types = {kind.dtype for graph in capture.graphs for kind in graph.types.values()}
    types |= {leaf.type.dtype for leaf in capture.leaves}
    if len(float_types(types)) > 1 and not DOUBLES.isdisjoint(types):
        raise Unsupported("doubles beside other floats")
    reasons: dict[str, None] = {}
    for found in quotients(capture):
        try:
            return by_programs(capture, found, traits, fuel, started)
        except Unsupported as reason:
            reasons[str(reason)] = None
    raise Unsupported("; ".join(reasons))


def by_programs(capture: Capture, found: Quotient, traits: Mapping[str, Trait], fuel: Fuel, started: float) -> Outcome:
    """The outcome of a capture of which every promise is proved on these programs; raises ``Unsupported``."""
    ground = grounded(capture, traits, {}, 1, fuel)
    universe = ground.algebra.universe
    facts, assumed = dict(universe.facts), set(universe.assumed)
    _, runs, promises = evaluated(capture, found, ground)
    outcomes = tuple(promises.checked(promise, runs) for promise in capture.promises)
    if universe.facts != facts or universe.assumed != assumed or universe.late:
        raise Unsupported("the ranks rest on more than the specification does")
    return proved(capture, outcomes, universe.facts, universe.assumed, started)
