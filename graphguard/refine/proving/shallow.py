"""A deep program that is not proved, by one with fewer of the layers that are alike: what is open in it, and where, is open there.

Nothing is proved that way.  Of what holds in the shorter program, only what is proved of the whole one, stage by stage, is said to hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from graphguard.ir import Capture, Promise
from graphguard.ir.fuel import Fuel
from graphguard.ir.joining import Joined
from graphguard.refine.found.frontiers import cautions_of
from graphguard.refine.found.promises import needed_by
from graphguard.refine.outcome import SPECIFICATION, Location, Outcome, PromiseOutcome
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.regions import Failed
from graphguard.refine.proving.segments import Work
from graphguard.refine.stages.calls import Unspelt
from graphguard.refine.stages.cuts import Division
from graphguard.refine.stages.shorter import Shorter
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Exhausted
from graphguard.rules import Trait


def told(capture: Capture, shorter: Shorter, outcome: Outcome, fuel: float) -> Outcome:
    """What was found of the shorter program, said of all of a capture."""
    found = {promise.name: promise for promise in outcome.promises}
    for name, others in shorter.stands_for.items():
        mine = found[name]
        for other in others:
            relation, layout = (text.replace(name, other) for text in (mine.found, mine.layout))
            found[other] = replace(mine, name=other, found=relation, layout=layout)
    promises = tuple(_as_promised(capture, promise, found[promise.name]) for promise in capture.promises)
    gaps = [replace(gap, where=where) for gap in outcome.gaps for where in _everywhere(shorter, [gap.where])]
    return replace(
        outcome,
        promises=promises,
        specification_frontier=tuple(sorted(_everywhere(shorter, outcome.specification_frontier))),
        implementation_frontier=tuple(sorted(_everywhere(shorter, outcome.implementation_frontier))),
        gaps=tuple(sorted(gaps, key=lambda gap: gap.where)),
        cautions=cautions_of(capture),
        fuel=fuel,
    )


def _as_promised(capture: Capture, promise: Promise, found: PromiseOutcome) -> PromiseOutcome:
    return replace(found, needed=needed_by(promise, capture)) if found.needed else found


def _everywhere(shorter: Shorter, where: Iterable[Location]) -> list[Location]:
    """Places of the shorter program in the whole one, with those that they stand for."""
    places = [(one.graph, shorter.places[one.graph - SPECIFICATION][one.node]) for one in where]
    return [Location(graph, node) for graph, nodes in places for node in nodes]


def proves(
    capture: Capture,
    names: Collection[str],
    traits: Mapping[str, Trait],
    joined: Joined,
    memo: Memo,
    division: Division,
    fuel: Fuel,
) -> bool:
    """Whether promises of a program, of which others do not hold, are proved stage by stage."""
    promises = tuple(promise for promise in capture.promises if promise.name in names)
    stages = [
        replace(stage, promises=tuple(one for one in stage.promises if one.name in names)) for stage in division.stages
    ]
    work = Work(replace(capture, promises=promises), joined, traits, memo, replace(division, stages=tuple(stages)))
    with suppress(Failed, Unspelt, Unsupported, Exhausted):  # what came before is proved
        work.prove(fuel)
    return work.settled.issuperset(names)
