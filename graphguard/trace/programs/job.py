"""One check on one mesh as it is recorded, and what recording one of its programs gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphguard.ir import CheckRef, Trouble
from graphguard.trace.calls.lockstep import Offer
from graphguard.trace.claims.program import Claims
from graphguard.trace.classes.plan import Sounded
from graphguard.trace.depends.chance import Generators, generators
from graphguard.trace.depends.footprint import Footprint, Watch
from graphguard.trace.depends.unshared import Processes
from graphguard.trace.process.limits import Limits
from graphguard.trace.record.capture import RankTrace
from graphguard.trace.scripts.program import Run
from graphguard.trace.scripts.script import Script
from graphguard.trace.source.probes import Observed, Probes
from graphguard.trace.source.sources import ProjectFiles

SPECIFICATION = -1
Build = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One check on one mesh: ``build(device mesh)`` gives the refinement; ``root`` is the project's folder.

    ``alone`` builds the specification where that is a program on one rank: it is called in a world of one rank, every axis of the mesh being 1
    (None: ``build`` gives it beside each rank's program; where that gives a :class:`Same`, recording notes it here).
    ``script`` is run in place of ``build``, with the texts that ``files`` has.
    ``started`` (on the monotonic clock) is when the time of ``limits`` began.  ``watch`` notes what the check's processes read.
    ``learn`` is told which operator calls were new (see :mod:`graphguard.trace.record.operators`).
    ``meanwhile`` is worked through while the programs are recorded elsewhere.
    ``closed`` are the operators of which a comment says what they are, anywhere in the check.
    ``load`` is called before a process is forked that is to ``build``.
    ``copies``: layers that are alike are recorded once (see :mod:`graphguard.trace.elide.repeats`).
    ``draws``: numbers that are drawn from a seed are known (see :mod:`graphguard.trace.record.seeded`).
    ``machines``: on how many the ranks are (see :mod:`graphguard.trace.worlds.machines`).
    ``generators`` are those of random numbers that all programs find (see :mod:`graphguard.trace.depends.chance`).
    ``processes``: how these differ in what those of a job do not share (see :mod:`graphguard.trace.depends.unshared`).
    ``ranks``: up to how many ranks all are recorded, and not those alone that tell what the others are (see :mod:`graphguard.trace.classes.plan`); None: however many there are.
    ``seed`` stands for the texts that the check is made of.
    ``probes`` are told what the programs hold at places of their files.
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
    machines: int = 1
    copies: bool = True
    draws: bool = False
    learn: Callable[[tuple[str, ...]], None] | None = None
    closed: frozenset[str] = frozenset()
    meanwhile: Iterator[object] = field(default_factory=lambda: iter(()))
    load: Callable[[], None] = lambda: None
    generators: Generators = field(default_factory=generators)
    processes: Processes = "apart"
    alone: Build | None = None
    script: Script | None = None
    files: ProjectFiles = field(default_factory=lambda: ProjectFiles({}))
    ranks: int | None = None
    seed: str = ""
    probes: Probes | None = None

    def axes(self, program: int) -> dict[str, int]:
        """The mesh of the world that a program is built and run in."""
        return dict.fromkeys(self.mesh, 1) if self.is_alone(program) else self.mesh

    def title(self, program: int) -> str:
        """A program in words."""
        if program == SPECIFICATION:
            return "the specification" if self.alone is None else "the program on one rank"
        return f"rank {program} of the implementation" if self.alone is None else f"rank {program}"

    def is_alone(self, program: int) -> bool:
        """Whether it is the specification, in a world of its own."""
        return program == SPECIFICATION and self.alone is not None

    def built(self, program: int, device_mesh: Any) -> Any:
        """What the check's function gives in the world of a program."""
        return (
            self.alone(device_mesh) if program == SPECIFICATION and self.alone is not None else self.build(device_mesh)
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """One program as its child recorded it; ``claims`` are missing where it did not get to the end.

    ``drawn`` are the generators that it drew from without having seeded them, by their numbers; ``unshared`` is what it asked that differs between processes.
    ``same``: the check gave one program (:class:`Same`).
    ``run`` is what a script says beside that; ``again`` the mesh on which it must be recorded instead.
    ``sounded``: it was recorded to learn this, and for nothing else.
    ``observed`` is what it held at places of its files.
    """

    trace: RankTrace | None
    claims: Claims | None
    troubles: tuple[Trouble, ...]
    footprint: Footprint = field(default_factory=Footprint)
    unseen: tuple[str, ...] = ()
    drawn: frozenset[int] = frozenset()
    unshared: tuple[Trouble, ...] = ()
    same: bool = False
    run: Run | None = None
    again: dict[str, int] | None = None
    sounded: Sounded | None = None
    observed: tuple[Observed, ...] = ()

    @property
    def published(self) -> tuple[Offer, ...]:
        """The constants that the rank put into collectives."""
        return () if self.trace is None else self.trace.published

    @property
    def wants_cuda(self) -> bool:
        """Whether the program hardcodes CUDA and was recorded without."""
        return self.trace is not None and self.trace.wants_cuda

    @property
    def reads_draws(self) -> bool:
        """Whether the program reads what it draws, and was recorded without."""
        return self.trace is not None and self.trace.reads_draws

    @property
    def gave_up(self) -> bool:
        """Whether layers were copied, and must not be."""
        return self.trace is not None and bool(self.trace.gave_up)

    @property
    def declared(self) -> tuple[str, ...]:
        """The operators that stayed closed because a comment says what they are."""
        return () if self.trace is None else self.trace.declared

    @property
    def opened(self) -> tuple[str, ...]:
        """The operators whose own code was recorded."""
        return () if self.trace is None else self.trace.opened

    @property
    def waiting(self) -> bool:
        """Whether the recording ended for want of another rank's constant."""
        return self.trace is not None and self.trace.waiting
