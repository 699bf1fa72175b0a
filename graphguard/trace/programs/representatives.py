"""The ranks of a large mesh: some recorded, the others as these foretell, or all recorded where that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from graphguard.ir import Leaf, TensorType
from graphguard.ir.graph import Graph
from graphguard.ir.ranks import some_recorded
from graphguard.trace.calls.lockstep import Answers, rounds
from graphguard.trace.classes.plan import Foretold, Plan, Sounded
from graphguard.trace.classes.predictions import Mapped
from graphguard.trace.classes.templates import Template
from graphguard.trace.programs.job import Job, Recorded


class Programs(Protocol):
    """Runs the programs of a check."""

    @property
    def job(self) -> Job:
        """The check."""
        ...

    @property
    def specification(self) -> Recorded:
        """The specification; recorded with the first ranks."""
        ...

    def run(self, ranks: list[int], answers: Answers, sound: Sequence[int] = ()) -> list[Recorded]:
        """Record ranks, then sound others."""
        ...


def is_for_some(job: Job, world_size: int) -> bool:
    """Whether a few ranks may be recorded for all of them: not where each has a device of its own number, nor where a script asks the environment who it is."""
    return (
        job.ranks is not None
        and world_size > job.ranks
        and job.script is None
        and job.machines == 1
        and job.device == "cpu"
    )


def representatives(programs: Programs, world_size: int) -> tuple[list[Recorded], tuple[str, ...]]:
    """Every rank, recorded or foretold, and what a verdict then rests on.

    Where the ranks that were recorded say that the check is to be recorded again, or what is wrong with them, these alone.
    """
    mesh = Mapped(tuple(programs.job.mesh.values()))

    def run(
        ranks: list[int], sound: list[int]
    ) -> tuple[dict[int, Recorded], dict[int, tuple[Sounded, Template | None]]]:
        found = programs.run(ranks, {}, sound)
        heard = {rank: _heard(rank, one) for rank, one in zip(sound, found[len(ranks) :], strict=True)}
        return dict(zip(ranks, found, strict=False)), heard

    plan = Plan(mesh, programs.job.seed, run, _template)
    foretold = plan.carried_out()
    if any(_is_enough(one) for one in (programs.specification, *plan.recorded.values())):
        return list(plan.recorded.values()), ()
    if foretold is not None:
        ranks = _together(programs.specification, plan, foretold)
        if ranks is not None:
            return ranks, (some_recorded(len(plan.recorded), world_size),) if foretold else ()
    return rounds(lambda left, answers: programs.run(left, answers), world_size, plan.recorded), ()


def _heard(rank: int, one: Recorded) -> tuple[Sounded, Template | None]:
    """What sounding a rank gave; nothing where it went wrong."""
    if one.sounded is None or one.troubles or one.trace is None or one.trace.graph is None:
        return one.sounded or Sounded((rank,)), None
    return one.sounded, Template.of(one.trace.graph, one.trace.stops)


def _template(one: Recorded) -> Template | None:
    """A rank that others may follow: one that was recorded to its end, and asked nothing of others, nor what processes do not share."""
    trace = one.trace
    if (
        trace is None
        or trace.graph is None
        or one.claims is None
        or one.troubles
        or one.unshared
        or _is_to_be_again(one)
    ):
        return None
    return Template.of(trace.graph, trace.stops)


def _is_enough(one: Recorded) -> bool:
    return _is_to_be_again(one) or (bool(one.troubles) and not one.waiting)


def _is_to_be_again(one: Recorded) -> bool:
    return one.wants_cuda or one.reads_draws or one.gave_up


def _together(specification: Recorded, plan: Plan[Recorded], foretold: Foretold) -> list[Recorded] | None:
    """All ranks; None where what one says beside its graph does not hold for those that it stands for."""
    if specification.claims is None:
        return None
    leaves = {
        leaf.name: leaf
        for one in (specification, *plan.recorded.values())
        if one.claims is not None
        for leaf in one.claims.leaves
    }
    ranks = dict(plan.recorded)
    alike = {rank: one.alike for one in plan.sounded.values() for rank in one.alike}
    for base in {base for base, _, _ in foretold.values()}:
        if not all(
            _says_the_same(plan.recorded[base], plan.recorded[each]) for each in alike[base] if each in plan.recorded
        ):
            return None
    for rank, (base, graph, stops) in foretold.items():
        told = plan.recorded[base]
        if not _has_leaves(graph, leaves) or told.trace is None or told.claims is None:
            return None
        trace = replace(told.trace, graph=graph, stops=stops, published=())
        ranks[rank] = replace(told, trace=trace, claims=replace(told.claims, leaves=()), unseen=())
    return [ranks[rank] for rank in range(plan.mesh.count)]


def _says_the_same(one: Recorded, other: Recorded) -> bool:
    """Whether two ranks say the same beside their graphs."""
    if one.claims is None or other.claims is None or one.trace is None or other.trace is None:
        return False
    groups = [[formed.ranks for formed in each.groups] for each in (one.trace, other.trace)]
    return (
        groups[0] == groups[1]
        and replace(one.claims, leaves=()) == replace(other.claims, leaves=())
        and one.same == other.same
    )


def _has_leaves(graph: Graph, leaves: dict[str, Leaf]) -> bool:
    types: dict[str, TensorType] = {name: graph.types[var] for var, name in graph.inputs.items()}
    return all(name in leaves and leaves[name].type == kind for name, kind in types.items())
