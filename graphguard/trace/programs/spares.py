"""Spare processes: forked before the next check comes, with pages of their own, each for one of its programs and for nothing after it.

A forked process copies every page that it looks at, which takes a third of the time of a program of one layer; a spare one has done that while nobody waited.
The user's files, which are not known in advance, are imported by each of them.  Where that may differ from importing them once and forking
(:mod:`graphguard.trace.depends.effects`), no spare process records anything.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch

from graphguard.ir import Capture, CheckRef
from graphguard.trace.depends import effects
from graphguard.trace.depends.chance import load_generators, watched
from graphguard.trace.depends.footprint import Footprint, Watch
from graphguard.trace.depends.unshared import asked_while_imported, importing
from graphguard.trace.process.children import Child, Ending, Family, Link, wait_for_work
from graphguard.trace.process.limits import Limits, bound_memory
from graphguard.trace.programs.importing import Found, Target, find, reference
from graphguard.trace.programs.job import SPECIFICATION, Job
from graphguard.trace.programs.ranks import AT_ONCE, record, record_in_child
from graphguard.trace.programs.rehearsal import rehearse_assembly, rehearse_program
from graphguard.trace.source.assumptions import assuming
from graphguard.trace.source.sources import (
    Compiled,
    ProjectFiles,
    compile_for_others,
    compile_in_advance,
    take_compiled,
)

# Wall-clock that all imports get together, which many programs of others may slow down.
_PATIENCE = 2.0
# CPU time in which files are compiled in advance.
_COMPILING = 0.1


class UnlikeError(Exception):
    """The programs of a check cannot be recorded in spare processes; says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """A check to record: what a spare process is told of it, apart from the program.

    ``check`` is its reference, ``ranks`` up to how many all are recorded, and ``compiled`` are files that have changed since the process was forked.
    """

    target: Target
    name: str
    mesh: dict[str, int] | None
    limits: Limits
    started: float
    check: CheckRef | None = None
    ranks: int | None = None
    compiled: Mapping[str, Compiled] = field(default_factory=dict)

    @property
    def share(self) -> Limits:
        """The bounds of one of its processes."""
        return self.limits.share(AT_ONCE, max(0.0, self.started + self.limits.seconds - time.monotonic()))


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made of the user's files; equal where it did the same."""

    mesh: dict[str, int]
    check: CheckRef
    sources: dict[str, bytes]
    state: str


def imported(found: Found, files: ProjectFiles) -> Imported:
    """What this process's import made."""
    state = hashlib.sha256(torch.random.default_generator.get_state().numpy().tobytes())
    state.update(repr((torch.get_default_dtype(), torch.get_default_device(), sys.path, os.getcwd())).encode())
    return Imported(found.mesh, found.check, dict(files.read), state.hexdigest())


@dataclass(slots=True)
class Spare:
    """A spare process that has its work, seen from its parent; what it said before anybody cared is kept."""

    child: Child
    imported: Imported | None = None
    unlike: str = ""
    _events: list[tuple[str, Any]] = field(default_factory=list)

    def attach(
        self,
        on_message: Callable[[Child, dict[str, Any]], None],
        on_output: Callable[[str], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        """From now on these hear of it, and of what was before."""
        child = self.child
        child.on_message, child.on_output, child.on_end = on_message, on_output, on_end
        for kind, what in self._events:
            if kind == "message":
                on_message(child, what)
            elif kind == "output":
                on_output(what)
            else:
                on_end(what)
        self._events.clear()

    def hear(self, _: Child, message: dict[str, Any]) -> None:
        """Take a message of a process to which nobody is attached."""
        if "imported" in message:
            self.imported = pickle.loads(message["imported"])  # noqa: S301 - from our own child, through a socket nobody else has
        elif "unlike" in message:
            self.unlike = message["unlike"]
        else:
            self._events.append(("message", message))

    def keep_output(self, text: str) -> None:
        """Take what it printed."""
        self._events.append(("output", text))

    def note_end(self, ending: Ending) -> None:
        """Take how it ended; before its import is through, that is for another process to find out about."""
        if self.imported is None:
            self.unlike = self.unlike or f"its process ended: {ending.kind}"
        self._events.append(("end", ending))


class Spares:
    """The spare processes of this one, in which a check will be coordinated; made before it is known.  It may import the ``sources`` that the last one imported."""

    def __init__(self, count: int, sources: Iterable[str] = ()) -> None:
        self._sources = tuple(sources)
        compile_in_advance(self._sources, _COMPILING)
        self.family = Family()
        self._lost = False
        self._idle = [self.family.start_idle(_live, on_end=self._note_loss, stays=True) for _ in range(count)]
        self._at_work: dict[int, Spare] = {}
        rehearse_assembly()
        while not all(child.ready for child in self._idle):
            self.family.step()
            if self._lost:
                raise RuntimeError("a spare process ended while it prepared itself")

    def _note_loss(self, _: Ending) -> None:
        self._lost = True

    def begin(self, order: Order) -> Imported:
        """Have the programs recorded, and say what importing the files made; raises ``UnlikeError`` where they must be recorded in another way."""
        files, file = ProjectFiles(order.target.overlay), order.target.file
        before = _text_of(files, file)
        compiled = compile_for_others(files, self._sources, _COMPILING)
        order = replace(order, check=reference(order.target, order.name), compiled=compiled)
        for program, child in enumerate(self._idle, SPECIFICATION):
            self._at_work[program] = spare = Spare(child)
            work = {"order": pickle.dumps((order, program))}
            self.family.begin(
                child, work, order.share, on_message=spare.hear, on_output=spare.keep_output, on_end=spare.note_end
            )
        self._idle.clear()
        first = self._first_imports()
        if first.sources.get(file) != before:
            raise UnlikeError("the file has changed meanwhile")
        size = math.prod(first.mesh.values())
        if order.ranks is not None and size > order.ranks:
            raise UnlikeError("not all ranks are recorded")
        for program in [program for program in self._at_work if program >= size]:
            self.family.stop(self._at_work.pop(program).child, "cancelled")
        return first

    def _first_imports(self) -> Imported:
        until = time.monotonic() + _PATIENCE
        while any(spare.imported is None for spare in self._at_work.values()):
            for spare in self._at_work.values():
                if spare.unlike:
                    raise UnlikeError(spare.unlike)
            if time.monotonic() > until:
                raise UnlikeError("it takes long")
            self.family.step(until - time.monotonic())
        found = [spare.imported for spare in self._at_work.values()]
        first = found[0]
        if first is None or any(one != first for one in found):
            raise UnlikeError("processes that imported the same file made different things of it")
        return first

    def take(self, program: int) -> Spare | None:
        """The process that records this program, once."""
        return self._at_work.pop(program, None)


def _text_of(files: ProjectFiles, file: str) -> bytes | None:
    """What a file says now; None where it cannot be read."""
    try:
        return files.text(file)
    except OSError:
        return None


def _live(link: Link) -> bytes:
    """A spare process: get pages of one's own, wait, import, record."""
    effects.rehearse()
    rehearse_program()
    order, program = pickle.loads(wait_for_work(link, forks=0)["order"])  # noqa: S301 - from our parent
    assert isinstance(order, Order)

    def unlike(why: str) -> NoReturn:
        link.tell({"unlike": why})
        os._exit(0)

    take_compiled(order.compiled)
    files = ProjectFiles(order.target.overlay)
    watch = Watch(files)
    watch.install()
    with effects.Effects(unlike), importing(), watched():
        found = find(order.target, files, order.name, order.mesh, order.check)
    if watch.rank_dependent:
        unlike("it asks for its rank")
    if asked_while_imported():
        unlike("it asks for what differs between processes")
    load_generators(files.read.values())
    link.tell({"imported": pickle.dumps(imported(found, files))})
    bound_memory(order.share)
    job = Job(
        found.function,
        found.mesh,
        found.check,
        order.target.root,
        order.limits,
        order.started,
        watch,
        learn=lambda _: None,
    )
    return record_in_child(job, program, {}, link)


def capture_by_spares(
    order: Order, spares: Spares, link: Link, log: Callable[[str], None]
) -> tuple[Capture, Footprint]:
    """As :func:`graphguard.trace.programs.session.capture_check`, in spare processes; raises ``UnlikeError``, after which this process is no good for a check."""
    link.tell({"progress": {"stage": "import"}})
    first = spares.begin(order)
    link.tell({"progress": {"stage": "trace"}})
    late = _Late(order, first)
    job = Job(
        late.build,
        first.mesh,
        first.check,
        order.target.root,
        order.limits,
        order.started,
        late.watch,
        learn=lambda calls: link.tell({"unseen": list(calls)}),
        meanwhile=late.files.meanings(),
        load=late.load,
    )
    capture, footprint = record(job, log, spares)
    return assuming(capture, footprint.sources), footprint


class _Late:
    """The import in the process that coordinates: only where programs must be forked from it, being more than there were spare processes, or once more than once."""

    def __init__(self, order: Order, first: Imported) -> None:
        self.files = ProjectFiles(order.target.overlay)
        self.files.adopt(first.sources)
        self.watch = Watch(self.files)
        self._order = order
        self._first = first
        self._found: Found | None = None

    def load(self) -> None:
        """Import the files, as they were for the spare processes; raises ``UnlikeError`` where they are not."""
        if self._found is not None:
            return
        order = self._order
        self.watch.install()
        self.files.read.clear()
        try:
            found = find(order.target, self.files, order.name, order.mesh)
        except BaseException as error:
            raise UnlikeError("the file has changed meanwhile") from error
        if self.watch.rank_dependent or imported(found, self.files) != self._first:
            raise UnlikeError("the file has changed meanwhile")
        self._found = found

    def build(self, device_mesh: Any) -> Any:
        """Run the check's function."""
        assert self._found is not None
        return self._found.function(device_mesh)
