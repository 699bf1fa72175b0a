"""A script in place of a check's programs: run in the world of one of them, and what is said where it fails."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

from graphguard.ir import Trouble
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.program import Claims
from graphguard.trace.programs.asking import Asked, NoSpecificationError, answer
from graphguard.trace.programs.job import SPECIFICATION, Job, Recorded
from graphguard.trace.programs.troubles import trouble_of
from graphguard.trace.record.capture import Recording
from graphguard.trace.scripts.program import AgainError, Channel, Run, record_script, refused

__all__ = ["AgainError", "Run", "at_step", "script_run", "script_trouble"]


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


def script_trouble(error: BaseException, job: Job, program: int) -> Trouble:
    """What a script raised, as a diagnostic at its own line."""
    rank = None if program == SPECIFICATION else program
    doing = f"running {job.check.name} on {'one rank alone' if rank is None else f'rank {rank}'}"
    trouble = trouble_of(refused(error) or error, doing, job.root, job.check.span, rank)
    return replace(trouble, message=trouble.message.replace("the check ", f"{job.check.name} ", 1))


def at_step(job: Job, specification: Recorded) -> Job:
    """The job, placed where its script makes the step after which everything is compared."""
    run = specification.run
    if run is None or run.stepped is None:
        return job
    return replace(job, check=replace(job.check, span=run.stepped))
