"""All programs of one check: the specification and every rank, each recorded in a forked child of its own, put together as a capture."""

from __future__ import annotations

import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from graphguard.ir import Capture, Trouble
from graphguard.ir.collection import without_collection
from graphguard.ir.graph import Constant
from graphguard.trace.calls.lockstep import Answers, Ask, Meeting, NeedsAnswers, Stand, rounds
from graphguard.trace.claims.api import Refinement, Same
from graphguard.trace.claims.inputs import declared_inputs
from graphguard.trace.claims.misnamed import misnamed
from graphguard.trace.claims.outputs import OutputType
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.program import Claims, as_refinement, record_rank, record_specification
from graphguard.trace.claims.same import Original, unlike_claims
from graphguard.trace.classes.sounding import Plain, Soundings
from graphguard.trace.depends.chance import own_chance
from graphguard.trace.depends.footprint import Footprint
from graphguard.trace.depends.unshared import Process, memory_in_use, standing_for
from graphguard.trace.gpu.cuda import wants_cuda
from graphguard.trace.process.children import Child, Ending, Family, Link
from graphguard.trace.process.lines import Lines
from graphguard.trace.programs.asking import Asked, NoSpecificationError, answer
from graphguard.trace.programs.assembly import assembled
from graphguard.trace.programs.job import SPECIFICATION, Job, Recorded
from graphguard.trace.programs.representatives import is_for_some, representatives
from graphguard.trace.programs.sampling import replanned
from graphguard.trace.programs.script_runs import (
    AgainError,
    Run,
    as_used,
    at_step,
    script_run,
    script_trouble,
    stopped_script,
)
from graphguard.trace.programs.troubles import trouble_of, trouble_of_ending
from graphguard.trace.record.capture import Recording
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.hints import indivisible
from graphguard.trace.source.probes import begin, observed
from graphguard.trace.worlds.world import World

# What the specification tells the ranks: what it is, where it has a world of its own, and what it returns.
TOPICS = ("original", "outputs")
NOTHING = pickle.dumps(None)
# The specification, which ranks wait for, and a rank for every core.
AT_ONCE = max(2, os.cpu_count() or 2) + 1
# Programs from here on are ranks that are sounded.
SOUNDED = 1 << 40


class Begun(Protocol):
    """A process that records a program already."""

    def attach(
        self,
        on_message: Callable[[Child, dict[str, Any]], None],
        on_output: Callable[[str], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        """From now on these hear of it, and of what was before."""
        ...


class Beforehand(Protocol):
    """Processes that were forked before the check was known."""

    @property
    def family(self) -> Family:
        """All of them."""
        ...

    def take(self, program: int) -> Begun | None:
        """The process that records this program, once."""
        ...


def settle() -> None:
    """Make a forked copy of a process that has used torch safe to record in: its thread pools did not come along."""
    torch.set_num_threads(1)


@without_collection()
def record(job: Job, log: Callable[[str], None], spares: Beforehand | None = None) -> tuple[Capture, Footprint]:
    """Record the specification and every rank of a check, and what they read; what goes wrong is among the capture's troubles.

    ``spares`` are processes that are at it already.
    """
    started = time.perf_counter()
    world_size = Mesh.of_rank(job.mesh, 0).world_size
    programs = _Programs(job, log, spares)
    ranks, told = (
        representatives(programs, world_size)
        if is_for_some(job, world_size)
        else (rounds(programs.run, world_size), ())
    )
    job = programs.job
    if job.device == "cpu" and any(program.wants_cuda for program in (programs.specification, *ranks)):
        return record(replace(job, device="cuda"), log)
    if not job.draws and any(program.reads_draws for program in (programs.specification, *ranks)):
        return record(replace(job, draws=True), log)
    if job.copies and any(program.gave_up for program in (programs.specification, *ranks)):
        return record(replace(job, copies=False), log)
    drawn = [number for program in (programs.specification, *ranks) for number in program.drawn]
    if seeded := job.generators.seeded_of(drawn):
        return record(replace(job, generators=replace(job.generators, seeded=job.generators.seeded | seeded)), log)
    declared = frozenset(name for program in (programs.specification, *ranks) for name in program.declared)
    if any(not declared.isdisjoint(program.opened) for program in (programs.specification, *ranks)):
        return record(replace(job, closed=declared), log)  # what a comment says of an operator holds in the whole check
    planned = replanned(job, programs.specification, ranks)
    if planned is not None:
        return record(planned, log)
    recorded = time.perf_counter()
    capture = assembled(at_step(job, programs.specification), programs.specification, ranks)
    if not capture.troubles:
        capture = replace(capture, assumed=(*told, *capture.assumed))
    footprint = Footprint()
    for program in (programs.specification, *ranks):
        footprint.merge(program.footprint)
    unseen = tuple(dict.fromkeys(call for program in (programs.specification, *ranks) for call in program.unseen))
    if job.learn is not None and unseen:
        job.learn(unseen)
    if job.probes is not None:
        job.probes.observed = [row for program in (programs.specification, *ranks) for row in program.observed]
    joining = time.perf_counter() - recorded - capture.seconds.get("relate", 0.0)
    seconds = {"trace": recorded - started, **capture.seconds, "join": joining}
    return replace(capture, sources=footprint.digests(), seconds=seconds), footprint


class _Programs:
    """Runs children, at most a few at a time, and passes the specification's outputs on to the ranks that ask for them."""

    def __init__(self, job: Job, log: Callable[[str], None], spares: Beforehand | None) -> None:
        self._job = job
        self._log = log
        self._spares = spares
        self._family = Family() if spares is None else spares.family
        self._deadline = job.started + job.limits.seconds
        self._told: dict[str, bytes] = {}
        self._asking: list[tuple[Child, str]] = []
        self._answers: Answers = {}
        self._meeting: Meeting[Child] = Meeting()
        self._begin_alone = False
        self._done: dict[int, Recorded] = {}

    @property
    def job(self) -> Job:
        """The job, with what recording it has shown."""
        return self._job

    @property
    def specification(self) -> Recorded:
        """The specification; recorded in the first round."""
        return self._done[SPECIFICATION]

    def run(self, ranks: list[int], answers: Answers, sound: Sequence[int] = ()) -> list[Recorded]:
        """Record these ranks, and the specification where that is not done yet; and ``sound`` others, whose results come after theirs."""
        # a rank may wait for the specification, so that one is never queued behind it
        programs = [*ranks, *(SOUNDED + rank for rank in sound)]
        queue = deque(programs)
        self._answers = answers
        if not self._specified():
            queue.appendleft(SPECIFICATION)
            self._told.clear()
        for program in queue:
            self._done.pop(program, None)
        queue = deque(program for program in queue if not self._attach(program))
        while queue or self._family.at_work or self._begin_alone:
            if self._begin_alone:  # those that are at work wait for it
                self._begin_alone = False
                self._start(SPECIFICATION)
            while queue and self._family.at_work - len(self._meeting.standing) < AT_ONCE:
                self._start(queue.popleft())
            stuck = self._family.at_work == len(self._meeting.standing) + len(self._asking)
            for child, found in self._meeting.settled(stuck=stuck):
                child.send({"value": pickle.dumps(found)})
            self._family.step(None if next(self._job.meanwhile, None) is None else 0.0)
        return [self._done[program] for program in programs]

    def _specified(self) -> bool:
        """Whether the specification is recorded; what builds the ranks runs beside it, and may wait for their answers as they do."""
        done = self._done.get(SPECIFICATION)
        return done is not None and not (done.trace is not None and done.trace.waiting)

    def _attach(self, program: int) -> bool:
        """Listen to the spare process that records a program; False where there is none."""
        spare = None if self._spares is None or program >= SOUNDED else self._spares.take(program)
        if spare is None:
            return False
        spare.attach(self._hear, *self._followed(program))
        return True

    def _start(self, program: int) -> None:
        self._job.load()
        self._meeting.begin(program)
        on_output, on_end = self._followed(program)
        answers: Answers = {} if self._job.is_alone(program) else self._answers
        sounds, program = program >= SOUNDED, program - SOUNDED if program >= SOUNDED else program
        self._family.start(
            lambda link: record_in_child(self._job, program, answers, link, sounds=sounds),
            self._job.limits.share(AT_ONCE, max(0.0, self._deadline - time.monotonic())),
            on_message=self._hear,
            on_output=on_output,
            on_end=on_end,
        )

    def _followed(self, program: int) -> tuple[Callable[[str], None], Callable[[Ending], None]]:
        """What hears the output of a program, and its end."""
        sounds = program >= SOUNDED  # what it prints was printed when it was recorded
        lines = Lines(self._job.title(program), (lambda _: None) if sounds else self._log)

        def ended(ending: Ending) -> None:
            lines.end()
            self._note_end(program, ending)

        return lines.take, ended

    def _note_end(self, program: int, ending: Ending) -> None:
        recorded = self._done[program] = self._recorded(program, ending)
        self._meeting.leave(program, () if recorded.trace is None else recorded.trace.published)
        if program != SPECIFICATION:
            return
        if recorded.same and self._job.alone is None:
            self._job = replace(self._job, alone=self._job.build)
            self._begin_alone = True
            return
        for topic in TOPICS:
            if topic not in self._told:
                self._pass_on(topic, NOTHING)

    def _recorded(self, program: int, ending: Ending) -> Recorded:
        if ending.kind == "answered":
            answer = pickle.loads(ending.answer)  # noqa: S301 - from our own child, through a socket nobody else has
            assert isinstance(answer, Recorded)
            return answer
        doing = f"recording {self._job.title(program)}"
        rank = None if program == SPECIFICATION else program % SOUNDED
        job = self._job
        trouble = trouble_of_ending(ending, doing, job.root, job.check.span, job.limits, rank)
        return Recorded(None, None, (trouble if job.script is None else stopped_script(trouble, ending.kind),))

    def _hear(self, child: Child, message: dict[str, Any]) -> None:
        if "tell" in message:
            self._pass_on(message["tell"], message["value"])
        elif "stand" in message:
            stand: Stand = pickle.loads(message["stand"])  # noqa: S301 - from our own child
            self._meeting.come(child, stand)
        elif message["ask"] in self._told:
            child.send({"value": self._told[message["ask"]]})
        else:
            self._asking.append((child, message["ask"]))

    def _pass_on(self, topic: str, value: bytes) -> None:
        self._told[topic] = value
        for child, asked in self._asking:
            if asked == topic:
                child.send({"value": value})
        self._asking = [(child, asked) for child, asked in self._asking if asked != topic]


@without_collection()
def record_in_child(job: Job, program: int, answers: Answers, link: Link, *, sounds: bool = False) -> bytes:
    """Record one program of a check in a process of its own, of which nothing else comes; or sound it."""
    recorded = record_alone(job, program, answers, link, sounds=sounds)
    if job.watch is not None:
        recorded = replace(recorded, footprint=job.watch.found())
    return pickle.dumps(recorded, pickle.HIGHEST_PROTOCOL)


def record_alone(job: Job, program: int, answers: Answers, link: Asked, *, sounds: bool = False) -> Recorded:
    """Record one program of a check in this process; what goes wrong is among its troubles."""
    process = Process(program, job.processes)
    begin(program)
    with standing_for(process), own_chance(process, job.generators) as drawn:
        in_use = memory_in_use(process)
        telling = Soundings(program, job.mesh) if sounds else Plain(max(program, 0), job.mesh)
        recorded = _recorded(job, program, answers, link, telling)
        del in_use
    return replace(recorded, drawn=frozenset(drawn), unshared=tuple(process.asked.values()), observed=observed())


def _recorded(job: Job, program: int, answers: Answers, link: Asked, telling: Plain | Soundings) -> Recorded:
    claims: Claims | None = None
    troubles: list[Trouble] = []
    recording: Recording | None = None
    rank = max(program, 0)
    refinement: Refinement | None = None
    same = job.script is not None
    run: Run | None = None
    try:
        with (
            World(rank, job.axes(program), job.device, job.machines, joined=job.script is None) as world,
            Recording(
                world, answers, job.closed, copies=job.copies, draws=job.draws, ask=_standing(job, program, link)
            ) as recording,
            telling.begun(),
        ):
            try:
                if job.script is not None:
                    claims, run = script_run(recording, job, program, link)
                else:
                    refinement, same = _built(job, program, world.mesh)
                    job = replace(job, alone=job.alone or job.build) if same and program != SPECIFICATION else job
                if refinement is not None and (not same or job.is_alone(program) or program != SPECIFICATION):
                    claims = _claims(recording, refinement, program, telling.mesh, world.mesh, link, same=same)
            except NeedsAnswers:
                raise  # the recording notes that it waits
            except AgainError as error:
                return Recorded(None, None, (), again=error.mesh)
            except NoSpecificationError:
                pass  # the specification's own trouble says why
            except BaseException as error:
                if wants_cuda(error) or recording.gave_up or recording.reads_draws:
                    raise  # the recording notes it
                trouble = _trouble(error, job, program, recording.phase if refinement is not None else "check")
                trouble = _with_hints(trouble, error, job, refinement)
                if refinement is not None and recording.phase != "prelude" and not isinstance(error, TracingError):
                    trouble = _with_inputs(trouble, refinement, job)
                troubles.append(trouble)
    except TracingError as error:
        troubles.append(_trouble(error, job, program, "check"))
    if recording is None or troubles:
        return Recorded(None, None, tuple(troubles), same=same)
    if same and program == SPECIFICATION and not job.is_alone(program):
        return Recorded(None, None, (), same=True)  # it is to be built and run in a world of its own
    try:
        trace = recording.finish()
    except TracingError as error:
        return Recorded(None, None, (_trouble(error, job, program, recording.phase),))
    if run is not None:
        trace, run = as_used(trace, run)
    unseen = recording.unseen if job.learn is not None else ()
    return Recorded(trace, claims, trace.troubles, unseen=unseen, same=same, run=run, sounded=telling.found())


def _standing(job: Job, program: int, link: Asked) -> Ask | None:
    """How a rank of a script, which takes long to be run once more, stands at a call until others come; None for others."""
    if job.script is None or program == SPECIFICATION:
        return None

    def ask(stand: Stand) -> Mapping[int, tuple[Constant, ...]] | None:
        found: Mapping[int, tuple[Constant, ...]] | None = pickle.loads(  # noqa: S301 - from our parent
            link.ask({"stand": pickle.dumps(stand)})["value"]
        )
        return found

    return ask


def _built(job: Job, program: int, device_mesh: Any) -> tuple[Refinement, bool]:
    """What the check claims in the world of a program, and whether of one program; raises ``TracingError``."""
    built = job.built(program, device_mesh)
    refinement, same = as_refinement(built), isinstance(built, Same)
    if job.is_alone(program) and not same:
        raise unlike_claims("one rank alone")
    return refinement, same


def _claims(
    recording: Recording,
    refinement: Refinement,
    program: int,
    mesh: Mesh,
    device_mesh: Any,
    link: Asked,
    *,
    same: bool,
) -> Claims:
    def tell(topic: str) -> Callable[[Any], None]:
        return lambda value: link.tell({"tell": topic, "value": pickle.dumps(value)})

    if program == SPECIFICATION:
        return record_specification(recording, refinement, mesh, tell("outputs"), tell("original") if same else None)

    def ask() -> tuple[OutputType, ...]:
        outputs: tuple[OutputType, ...] | None = answer(link, "outputs")
        if outputs is None:
            raise NoSpecificationError
        return outputs

    def ask_original() -> Original:
        found: Original | None = answer(link, "original")
        if found is None:  # if the specification failed, its own trouble is told
            raise unlike_claims("rank 0")
        return found

    return record_rank(recording, refinement, mesh, device_mesh, ask, ask_original if same else None)


_SHOWN_INPUTS = 4
_DOING = {"prelude": "building", "forward": "running", "backward": "differentiating", "step": "running"}


def _trouble(error: BaseException, job: Job, program: int, phase: str) -> Trouble:
    rank = None if program == SPECIFICATION else program
    if job.script is not None:
        return script_trouble(error, job, program)
    doing = f"running check '{job.check.name}'" if phase == "check" else f"{_DOING[phase]} {job.title(program)}"
    trouble = trouble_of(error, doing, job.root, job.check.span, rank)
    named = misnamed(error, job.mesh)
    return trouble if named is None else replace(trouble, message=f"{named}\nwhile {doing}")


def _with_inputs(trouble: Trouble, refinement: Refinement, job: Job) -> Trouble:
    """The trouble of a program that failed when it was run, with what the check runs it on: the check may be what is wrong."""
    inputs = declared_inputs(refinement.spec, refinement.inputs, None, Mesh.of_rank(job.mesh, 0)).tensors()
    shapes = [f"{one.name} {list(one.shape())}" for one in inputs[:_SHOWN_INPUTS]]
    more = f" and {len(inputs) - _SHOWN_INPUTS} more" if len(inputs) > _SHOWN_INPUTS else ""
    if trouble.span == job.check.span or not shapes:
        return replace(
            trouble, message="\n".join((trouble.message, f"note: the inputs are {', '.join(shapes) or 'none'}{more}"))
        )
    told = f"the inputs of this check are {', '.join(shapes)}{more}"
    return replace(trouble, related=(*trouble.related, (job.check.span, told)))


def _with_hints(trouble: Trouble, error: BaseException, job: Job, refinement: Refinement | None) -> Trouble:
    """The trouble with what may explain it: sizes that the mesh does not divide."""
    if trouble.rank is None and refinement is not None:
        return trouble  # the specification knows no mesh
    modules = () if refinement is None else (refinement.impl,)
    hints = [f"note: {text}" for text in indivisible(error, job.mesh, modules)]
    return replace(trouble, message="\n".join((trouble.message, *hints)))
