"""A script in place of a check's programs: run in the world of one of them, and what is said where it fails."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from graphguard.ir import Trouble
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.program import Claims
from graphguard.trace.programs.asking import Asked, NoSpecificationError, answer
from graphguard.trace.programs.drawn import needed
from graphguard.trace.programs.job import SPECIFICATION, Job, Recorded
from graphguard.trace.programs.troubles import trouble_of
from graphguard.trace.record.capture import RankTrace, Recording
from graphguard.trace.scripts.program import AgainError, Channel, Run, record_script, refused
from graphguard.trace.scripts.samples import marked
from graphguard.trace.source.errors import TracingError

__all__ = ["AgainError", "Run", "as_used", "at_step", "decided_apart", "script_run", "script_trouble", "stopped_script"]


def script_run(recording: Recording, job: Job, program: int, link: Asked) -> tuple[Claims, Run]:
    """Run the job's script in the world of a program; raises what it raises."""

    def tell(topic: str, value: Any) -> None:
        link.tell({"tell": topic, "value": pickle.dumps(value)})

    def ask(topic: str) -> Any:
        found = answer(link, topic)
        if found is None:
            raise NoSpecificationError
        return found

    assert job.script is not None
    rank, mesh = max(program, 0), Mesh.of_rank(job.axes(program), max(program, 0))
    return record_script(
        recording, job.script, job.files, mesh, rank, Channel(tell, ask), alone=program == SPECIFICATION
    )


_ONE_RANK = (
    "note: one rank alone is what the others are compared with; where a script refuses one rank, give it other arguments there (--reference-args), or check its "
    "model with gg.Same"
)


def script_trouble(error: BaseException, job: Job, program: int) -> Trouble:
    """What a script raised, as a diagnostic at its own line."""
    rank = None if program == SPECIFICATION else program
    doing = f"running {job.check.name} on {'one rank alone' if rank is None else f'rank {rank}'}"
    said = refused(error)
    trouble = trouble_of(said or error, doing, job.root, job.check.span, rank)
    if rank is None and said is None and not isinstance(error, TracingError):
        trouble = replace(trouble, message=f"{trouble.message}\n{_ONE_RANK}")
    return replace(trouble, message=trouble.message.replace("the check ", f"{job.check.name} ", 1))


def stopped_script(trouble: Trouble, kind: str) -> Trouble:
    """What ended a script's process, with what to do."""
    if kind != "timeout":
        return trouble
    return replace(trouble, message=f"{trouble.message}\nfix: give it a smaller run; --timeout SECONDS gives it longer")


def as_used(trace: RankTrace, run: Run) -> tuple[RankTrace, Run]:
    """A recording without what notes its samples, and its run with those of which something is made: what loaders read ahead is of a later step."""
    graph = trace.graph
    if graph is None:
        return trace, run
    marks = {name: place for name in graph.outputs if (place := marked(name)) is not None}
    outputs = {name: var for name, var in graph.outputs.items() if name not in marks}
    values = needed(replace(graph, outputs=outputs))
    noted = set(marks.values())
    used = {marks[name] for name in marks if graph.outputs[name] in values}
    readings = [
        replace(
            one, items=tuple(item for row, item in enumerate(one.items) if (at, row) in used or (at, row) not in noted)
        )
        for at, one in enumerate(run.readings)
    ]
    kept = tuple(one for one in readings if one.items)
    return replace(trace, graph=replace(graph, outputs=outputs)), replace(run, readings=kept)


def decided_apart(specification: Recorded, ranks: Sequence[Recorded]) -> Iterator[Trouble]:
    """Branches on numbers that a rank takes and one rank alone does not, or the other way round: nothing says what would decide them."""
    alone = {} if specification.run is None else {one.output: one for one in specification.run.decisions}
    for rank, program in enumerate(ranks):
        own = {} if program.run is None else {one.output: one for one in program.run.decisions}
        for name in (*own, *alone):
            if (name in own) is not (name in alone):
                has, lacks = (f"rank {rank}", "one rank alone") if name in own else ("one rank alone", f"rank {rank}")
                message = f"{name} is taken by {has}, and not by {lacks}\nnote: a script is recorded one way of a branch that numbers decide, where all ranks ask for it"
                yield Trouble("trace-error", message, (own.get(name) or alone[name]).span, None)


def at_step(job: Job, specification: Recorded) -> Job:
    """The job, placed where its script makes the step after which everything is compared."""
    run = specification.run
    if run is None or run.stepped is None:
        return job
    return replace(job, check=replace(job.check, span=run.stepped))
