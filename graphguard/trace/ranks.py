"""All programs of one check: the specification and every rank, each recorded in a forked child of its own, put together as a capture."""

from __future__ import annotations

import os
import pickle
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from graphguard.checks.api import Refinement
from graphguard.checks.outputs import OutputType
from graphguard.checks.placements import Mesh
from graphguard.checks.program import Claims, as_refinement, record_rank, record_specification
from graphguard.ir import Capture, CheckRef, Leaf, Promise, Trouble
from graphguard.ir.capture import Wanted
from graphguard.ir.graph import COLLECTIVES, Graph, Var
from graphguard.ir.joining import join, prune_alone, prune_prelude, span_of
from graphguard.trace.capture import RankTrace, Recording
from graphguard.trace.children import Child, Ending, Family, Link
from graphguard.trace.cuda import wants_cuda
from graphguard.trace.errors import TracingError
from graphguard.trace.footprint import Footprint, Watch
from graphguard.trace.hints import indivisible
from graphguard.trace.limits import Limits
from graphguard.trace.lockstep import Answers, NeedsAnswers, Offer, rounds
from graphguard.trace.troubles import trouble_of, trouble_of_ending
from graphguard.trace.world import World

SPECIFICATION = -1
# The specification, which ranks wait for, and a rank for every core.
_AT_ONCE = max(2, os.cpu_count() or 2) + 1
Build = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One check on one mesh: ``build(device mesh)`` gives the refinement; ``root`` is the project's folder.

    ``started`` (on the monotonic clock) is when the time of ``limits`` began.  ``watch`` notes what the check's processes read.
    ``device`` is ``cuda`` for programs that hardcode it: they are recorded in a world that has it, on any machine.
    """

    build: Build
    mesh: dict[str, int]
    check: CheckRef
    root: str
    limits: Limits
    started: float
    watch: Watch | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One program as its child recorded it; ``claims`` are missing where it did not get to the end."""

    trace: RankTrace | None
    claims: Claims | None
    troubles: tuple[Trouble, ...]
    footprint: Footprint = field(default_factory=Footprint)

    @property
    def published(self) -> tuple[Offer, ...]:
        """The constants that the rank put into collectives."""
        return () if self.trace is None else self.trace.published

    @property
    def wants_cuda(self) -> bool:
        """Whether the program hardcodes CUDA and was recorded without."""
        return self.trace is not None and self.trace.wants_cuda

    @property
    def waiting(self) -> bool:
        """Whether the recording ended for want of another rank's constant."""
        return self.trace is not None and self.trace.waiting


def settle() -> None:
    """Make a forked copy of a process that has used torch safe to record in: its thread pools did not come along."""
    torch.set_num_threads(1)


def record(job: Job, log: Callable[[str], None]) -> tuple[Capture, Footprint]:
    """Record the specification and every rank of a check, and what they read; what goes wrong is among the capture's troubles."""
    started = time.perf_counter()
    world_size = Mesh.of_rank(job.mesh, 0).world_size
    programs = _Programs(job, log)
    ranks = rounds(programs.run, world_size)
    if job.device == "cpu" and any(program.wants_cuda for program in (programs.specification, *ranks)):
        return record(replace(job, device="cuda"), log)
    capture = _assembled(job, programs.specification, ranks)
    footprint = Footprint()
    for program in (programs.specification, *ranks):
        footprint.merge(program.footprint)
    return replace(capture, sources=footprint.digests(), seconds={"trace": time.perf_counter() - started}), footprint


class _Programs:
    """Runs children, at most a few at a time, and passes the specification's outputs on to the ranks that ask for them."""

    def __init__(self, job: Job, log: Callable[[str], None]) -> None:
        self._job = job
        self._log = log
        self._family = Family()
        self._deadline = job.started + job.limits.seconds
        self._outputs: bytes | None = None
        self._asking: list[Child] = []
        self._done: dict[int, Recorded] = {}

    @property
    def specification(self) -> Recorded:
        """The specification; recorded in the first round."""
        return self._done[SPECIFICATION]

    def run(self, ranks: list[int], answers: Answers) -> list[Recorded]:
        """Record these ranks, and the specification where that is not done yet."""
        # a rank may wait for the specification, so that one is never queued behind it
        queue = deque(ranks if SPECIFICATION in self._done else [SPECIFICATION, *ranks])
        for program in queue:
            self._done.pop(program, None)
        while queue or len(self._family):
            while queue and len(self._family) < _AT_ONCE:
                self._start(queue.popleft(), answers)
            self._family.step()
        return [self._done[rank] for rank in ranks]

    def _start(self, program: int, answers: Answers) -> None:
        limits = self._job.limits.share(_AT_ONCE, max(0.0, self._deadline - time.monotonic()))

        def ended(ending: Ending) -> None:
            self._done[program] = self._recorded(program, ending)
            if program == SPECIFICATION and self._outputs is None:
                self._pass_on(pickle.dumps(None))

        self._family.start(
            lambda link: _record_in_child(self._job, program, answers, link),
            limits,
            on_message=self._hear,
            on_output=self._log,
            on_end=ended,
        )

    def _recorded(self, program: int, ending: Ending) -> Recorded:
        if ending.kind == "answered":
            answer = pickle.loads(ending.answer)  # noqa: S301 - from our own child, through a socket nobody else has
            assert isinstance(answer, Recorded)
            return answer
        doing = f"recording {_title(program)}"
        rank = None if program == SPECIFICATION else program
        job = self._job
        return Recorded(None, None, (trouble_of_ending(ending, doing, job.root, job.check.span, job.limits, rank),))

    def _hear(self, child: Child, message: dict[str, Any]) -> None:
        if "outputs" in message:
            self._pass_on(message["outputs"])
        elif self._outputs is not None:
            child.send({"outputs": self._outputs})
        else:
            self._asking.append(child)

    def _pass_on(self, outputs: bytes) -> None:
        self._outputs = outputs
        for child in self._asking:
            child.send({"outputs": outputs})
        self._asking.clear()


def _title(program: int) -> str:
    return "the specification" if program == SPECIFICATION else f"rank {program} of the implementation"


class _NoSpecificationError(Exception):
    """The specification failed, and its trouble says why: the ranks that wait for it have nothing to add."""


def _record_in_child(job: Job, program: int, answers: Answers, link: Link) -> bytes:
    recorded = _record(job, program, answers, link)
    if job.watch is not None:
        recorded = replace(recorded, footprint=job.watch.found())
    return pickle.dumps(recorded, pickle.HIGHEST_PROTOCOL)


def _record(job: Job, program: int, answers: Answers, link: Link) -> Recorded:
    claims: Claims | None = None
    troubles: list[Trouble] = []
    recording: Recording | None = None
    rank = max(program, 0)
    refinement: Refinement | None = None
    try:
        with World(rank, job.mesh, job.device) as world, Recording(world, answers=answers) as recording:
            try:
                refinement = as_refinement(job.build(world.mesh))
                claims = _claims(recording, refinement, program, Mesh.of_rank(job.mesh, rank), world.mesh, link)
            except NeedsAnswers:
                raise  # the recording notes that it waits
            except _NoSpecificationError:
                pass  # the specification's own trouble says why
            except BaseException as error:
                if wants_cuda(error):
                    raise  # the recording notes it
                trouble = _trouble(error, job, program, recording.phase if refinement is not None else "check")
                troubles.append(_with_hints(trouble, error, job, refinement))
    except TracingError as error:
        troubles.append(_trouble(error, job, program, "check"))
    if recording is None or troubles:
        return Recorded(None, None, tuple(troubles))
    try:
        trace = recording.finish()
    except TracingError as error:
        return Recorded(None, None, (_trouble(error, job, program, recording.phase),))
    return Recorded(trace, claims, trace.troubles)


def _claims(
    recording: Recording, refinement: Refinement, program: int, mesh: Mesh, device_mesh: Any, link: Link
) -> Claims:
    if program == SPECIFICATION:
        return record_specification(
            recording, refinement, mesh, lambda outputs: link.tell({"outputs": pickle.dumps(outputs)})
        )

    def ask() -> tuple[OutputType, ...]:
        outputs: tuple[OutputType, ...] | None = pickle.loads(link.ask({"ask": "outputs"})["outputs"])  # noqa: S301 - from our parent
        if outputs is None:
            raise _NoSpecificationError
        return outputs

    return record_rank(recording, refinement, mesh, device_mesh, ask)


_DOING = {"prelude": "building", "forward": "running", "backward": "differentiating", "step": "running"}


def _trouble(error: BaseException, job: Job, program: int, phase: str) -> Trouble:
    rank = None if program == SPECIFICATION else program
    doing = f"running check '{job.check.name}'" if phase == "check" else f"{_DOING[phase]} {_title(program)}"
    return trouble_of(error, doing, job.root, job.check.span, rank)


def _with_hints(trouble: Trouble, error: BaseException, job: Job, refinement: Refinement | None) -> Trouble:
    """The trouble with what may explain it: sizes that the mesh does not divide."""
    if trouble.rank is None and refinement is not None:
        return trouble  # the specification knows no mesh
    modules = () if refinement is None else (refinement.impl,)
    hints = [f"note: {text}" for text in indivisible(error, job.mesh, modules)]
    return replace(trouble, message="\n".join((trouble.message, *hints)))


def _assembled(job: Job, specification: Recorded, ranks: list[Recorded]) -> Capture:
    # where the specification failed, what the ranks say may only follow from that
    failed = (specification,) if specification.troubles else ranks
    troubles = _distinct([trouble for program in failed for trouble in program.troubles])
    troubles += [_unanswered(job, rank) for rank, program in enumerate(ranks) if program.waiting][:1]
    bare = Capture(job.check, job.mesh, (), None, (), (), tuple(troubles))
    traces = [program.trace for program in ranks]
    if troubles or specification.trace is None or specification.trace.graph is None or specification.claims is None:
        return bare
    graphs = prune_prelude(tuple(trace.graph for trace in traces if trace is not None and trace.graph is not None))
    spec = prune_alone(specification.trace.graph)
    promises, missing = _promises(job, specification.claims, [program.claims for program in ranks])
    assumed = [line for program in (specification.trace, *traces) if program is not None for line in program.assumed]
    return replace(
        bare,
        leaves=_leaves([specification.claims, *(program.claims for program in ranks)]),
        spec=spec,
        ranks=graphs,
        promises=promises,
        troubles=(
            *missing,
            *_collectives_in(spec),
            *_not_loaded(job, graphs, [program.claims for program in ranks]),
            *join(graphs).mismatches,
        ),
        assumed=tuple(dict.fromkeys(assumed)),
    )


def _collectives_in(spec: Graph) -> tuple[Trouble, ...]:
    """A specification is one process's program."""
    for index, node in enumerate(spec.nodes):
        if node.op in COLLECTIVES:
            message = f"the specification calls {node.op.removeprefix('gg.')}; it is the sequential program, without collectives"
            return (Trouble("trace-error", message, span_of(spec, index)),)
    return ()


def _not_loaded(job: Job, graphs: tuple[Graph, ...], claims: list[Claims | None]) -> tuple[Trouble, ...]:
    """A parameter that still holds its random initial value after ``load``: nothing can be said about it."""
    for rank, (graph, one) in enumerate(zip(graphs, claims, strict=True)):
        labelled = {name: var for var, name in graph.labels.items()}
        for name in () if one is None else one.loaded:
            if name in labelled and _is_initial(graph, labelled[name]):
                message = (
                    f"load does not write parameter '{name}' of the implementation: it still has its initial value\n"
                    "fix: copy into it what the specification's state_dict holds for it"
                )
                return (Trouble("ambiguous-parameter", message, job.check.span, rank),)
    return ()


def _is_initial(graph: Graph, var: Var) -> bool:
    """Whether a value comes from random draws or memory that nobody wrote, and from no leaf."""
    producers = graph.producers()
    pending, seen, drawn = [var], set(), False
    while pending:
        current = pending.pop()
        if current in graph.inputs:
            return False
        if current in seen or current not in producers:
            continue
        seen.add(current)
        node = graph.nodes[producers[current]]
        drawn = drawn or node.draw is not None or node.op.startswith("aten.empty")
        pending.extend(node.operands())
    return drawn


def _distinct(troubles: list[Trouble]) -> list[Trouble]:
    """The same trouble of many ranks once, as the first of them has it."""
    first: dict[Any, Trouble] = {}
    for trouble in troubles:
        first.setdefault((trouble.rule, trouble.message.partition("\n")[0], trouble.span), trouble)
    return list(first.values())


def _unanswered(job: Job, rank: int) -> Trouble:
    message = (
        "the program branches on a value that other ranks send and that is not constant on all of them\n"
        f"while recording {_title(rank)}"
    )
    return Trouble("trace-error", message, job.check.span, rank)


def _leaves(claims: list[Claims | None]) -> tuple[Leaf, ...]:
    leaves: dict[str, Leaf] = {}
    for one in claims:
        for leaf in () if one is None else one.leaves:
            leaves.setdefault(leaf.name, leaf)
    return tuple(leaves.values())


def _promises(
    job: Job, specification: Claims, ranks: list[Claims | None]
) -> tuple[tuple[Promise, ...], tuple[Trouble, ...]]:
    """What must hold: every output of the specification, every gradient; and a trouble where no rank returns an output."""
    wanted: dict[str, Wanted] = dict(specification.wanted)
    recorded = [claims for claims in ranks if claims is not None]
    for claims in recorded:
        wanted.update(claims.wanted)
    held = {name for claims in recorded for name in claims.results}
    absent = [one.name for one in specification.outputs if one.name not in held]
    troubles = tuple(_absent(job, name, sorted(held)) for name in absent)
    return tuple(Promise(name, relation) for name, relation in wanted.items() if name not in absent), troubles


def _absent(job: Job, name: str, held: list[str]) -> Trouble:
    returned = ", ".join(held) or "nothing"
    message = f"the specification returns '{name}' and no rank of the implementation does; the ranks return {returned}"
    return Trouble("trace-error", message, job.check.span)
