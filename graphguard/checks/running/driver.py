"""Runs checks for the command line: drives :func:`check_steps` with a tracing worker and a prover in this process, or one for each of several jobs."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from graphguard.checks.judging.requests import CheckRequest, Step, Steps
from graphguard.checks.judging.rewritten import places_of
from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import RANKS_WORDS, Configuration
from graphguard.checks.proving.shelf import user_shelf
from graphguard.checks.running.kept import KeptReports, kept_reports
from graphguard.checks.running.worker_client import ProverClient, WorkerClient, WorkerError
from graphguard.ir import CheckRef, Span, Trouble
from graphguard.ir.collection import without_collection
from graphguard.ir.plain import from_plain
from graphguard.report.diagnostics import Report, Verdict
from graphguard.report.registry import reported
from graphguard.trace.claims.declared import FoundCheck, function_name
from graphguard.trace.scripts.script import LOSS, UNSEEDED, Script

if TYPE_CHECKING:
    from graphguard.checks.proving.prover import Prover

Mesh = dict[str, int]
_BATCH: Final = re.compile(r"\bbatch \d+")


class Caller(Protocol):
    """A process, or a stand-in for one, that answers steps."""

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to one step."""
        ...


@runtime_checkable
class Background(Protocol):
    """A process that works on a step while others are answered."""

    def start_call(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """Begin a step; the future gives its answer."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A prover that takes a while to start, which it may do while something is recorded."""

    def prepare(self) -> None:
        """Be ready for a step."""
        ...


@dataclass(frozen=True, slots=True)
class Unit:
    """One check on one mesh; ``mesh`` is None where the file did not say it and ``trouble`` why nothing can be run."""

    check: CheckRef
    mesh: Mesh | None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How checks are run; ``meshes`` overrides the declared ones, ``overlay`` replaces the text of files; ``relations`` are those of all tensors of the specification, ``audit`` reads every step of a proof again, ``ranks`` overrides how many are recorded."""

    meshes: tuple[Mesh, ...] = ()
    jobs: int = 1
    cache: bool = True
    fixes: bool = True
    relations: bool = True
    audit: bool = False
    ranks: str | None = None
    overlay: Mapping[str, str] = field(default_factory=dict)


class Listener:
    """Told how a run goes on; this one does not care."""

    def planned(self, units: Sequence[Unit]) -> None:
        """What will run, before it does."""

    def started(self, unit: Unit) -> None:
        """A check begins; called from the thread that runs it."""

    def printed(self, line: str) -> None:
        """What the programs of a check print, a line at a time, with who does; called from a thread of its own."""

    def finished(self, report: Report) -> None:
        """A report is there, and those of all checks before it; called in order from the caller's thread."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the checks of one run have in common, wherever they run; ``kept`` are reports of earlier runs."""

    configuration: Configuration
    options: Options
    listener: Listener
    worker: Caller
    kept: KeptReports | None


class Executor(Protocol):
    """Where checks run: in turn, in processes of this machine, or on many machines."""

    def reports(self, units: Sequence[Unit], work: Work) -> Iterator[Report]:
        """The reports of all units, in their order, each as soon as it and those before it are there."""
        ...


def run_checks(
    found: Sequence[FoundCheck],
    configuration: Configuration,
    options: Options | None = None,
    listener: Listener | None = None,
    worker: Caller | None = None,
    prover: Caller | None = None,
    executor: Executor | None = None,
) -> list[Report]:
    """The reports of all checks on all their meshes, in order.

    A worker that is given is left running; one of its own is ended in any case, so that no user code runs on after an interrupt.
    A prover that is given keeps its proofs from run to run; it serves runs of one job only.
    Without an executor they run here, ``options.jobs`` at a time.
    """
    options, listener = options or Options(), listener or Listener()
    if worker is None:
        with closing(WorkerClient(configuration, listener.printed)) as own:
            return run_checks(found, configuration, options, listener, own, prover, executor)
    units = tuple(_units(found, configuration, options, worker))
    listener.planned(units)
    if executor is None:
        jobs = min(options.jobs, len(units))
        executor = Processes(jobs) if jobs > 1 else InTurn(prover or LoadedProver(options.cache))
    kept = kept_reports(configuration) if options.cache else None
    reports = []
    for report in executor.reports(units, Work(configuration, options, listener, worker, kept)):
        listener.finished(report)
        reports.append(report)
    return reports


@dataclass(frozen=True, slots=True)
class InTurn:
    """One check after the other, with one prover."""

    prover: Caller

    def reports(self, units: Sequence[Unit], work: Work) -> Iterator[Report]:
        """As of any executor."""
        return (run_unit(unit, work, self.prover) for unit in units)


@dataclass(frozen=True, slots=True)
class Processes:
    """So many ``jobs`` at the same time, on this machine."""

    jobs: int

    def reports(self, units: Sequence[Unit], work: Work) -> Iterator[Report]:
        """As of any executor."""
        provers = Provers(work.options.cache)

        def run(unit: Unit) -> Report:
            with provers.lent() as prover:
                return run_unit(unit, work, prover)

        executor = ThreadPoolExecutor(self.jobs)
        try:
            yield from executor.map(run, units)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            provers.close()


class Provers:
    """As many provers as are needed at once, each in a process of its own: several proofs in one share one core."""

    def __init__(self, cache: bool) -> None:
        self._cache = cache
        self._free: SimpleQueue[ProverClient] = SimpleQueue()
        self._all: list[ProverClient] = []

    @contextmanager
    def lent(self) -> Iterator[ProverClient]:
        """One that nobody else uses meanwhile."""
        try:
            prover = self._free.get_nowait()
        except Empty:
            prover = ProverClient(self._cache)
            self._all.append(prover)
        try:
            yield prover
        finally:
            self._free.put(prover)

    def close(self) -> None:
        """End them all."""
        for prover in self._all:
            prover.close()


@dataclass(slots=True)
class LoadedProver:
    """A prover in this process, loaded when it is first asked: reports that are kept are told without."""

    cache: bool
    _prover: Prover | None = None

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to one step."""
        return self._loaded().call(method, params)

    def prepare(self) -> None:
        """Load it."""
        self._loaded()

    def _loaded(self) -> Prover:
        if self._prover is None:
            from graphguard.checks.proving.prover import Prover

            self._prover = Prover(user_shelf() if self.cache else None)
        return self._prover


def run_unit(unit: Unit, work: Work, prover: Caller) -> Report:
    """The report of one check on one mesh, as it is kept where nothing has changed; whatever goes wrong is in the report."""
    work.listener.started(unit)
    request = request_of(unit, work)
    try:
        known = known_report(unit, work)
        if known is not None:
            return known
        report = drive(check_steps(request), work.worker, prover)
        if work.kept is not None:
            work.kept.keep(request, report)
        return report
    except WorkerError as error:
        return not_run(unit, str(error), work.configuration)
    except Exception as error:  # noqa: BLE001 - a defect of ours must not take the other checks with it, and is reported
        return not_run(unit, _defect(error), work.configuration)


def known_report(unit: Unit, work: Work) -> Report | None:
    """The report that needs no run: of what cannot be run, or of what was run and is as it was."""
    if unit.trouble is not None:
        return _not_run(unit, unit.trouble, work.configuration)
    return None if work.kept is None else work.kept.find(request_of(unit, work))


def request_of(unit: Unit, work: Work) -> CheckRequest:
    """What is asked of the processes for a unit."""
    configuration, options = work.configuration, work.options
    return CheckRequest(
        file=str(configuration.root / unit.check.span.file),
        name=unit.check.name,
        mesh=unit.mesh,
        root=str(configuration.root),
        overlay=options.overlay,
        levels=configuration.levels,
        fixes=options.fixes,
        relations=options.relations,
        audit=options.audit,
        cache=options.cache,
        timeout=configuration.timeout,
        ranks=configuration.ranks if options.ranks is None else RANKS_WORDS[options.ranks],
    )


def not_run(unit: Unit, why: str, configuration: Configuration) -> Report:
    """The report of a check that could not be run."""
    return _not_run(unit, Trouble("trace-error", why, unit.check.span), configuration)


def run_script(
    script: Script,
    mesh: Mesh,
    configuration: Configuration,
    worker: Caller,
    prover: Caller,
    timeout: float | None,
    *,
    fixes: bool = True,
) -> Report:
    """The report of a training script, recorded on one rank and on all of ``mesh``; whatever goes wrong is in it."""
    check = CheckRef(script.name, script.name, Span(script.path, 1))
    request = CheckRequest(
        script.path, script.name, mesh, str(configuration.root), levels=configuration.levels, cache=False, smallest=False,
        fixes=fixes, timeout=timeout or configuration.timeout, script=script.as_plain(),
    )  # fmt: skip
    try:
        report = drive(check_steps(request), worker, prover)
        if _may_be_of_the_loss_alone(report):
            # How ranks' losses make up the whole is nowhere written: what is differentiated from them tells, without them.
            plain = replace(script, loss=False).as_plain()
            without = drive(check_steps(replace(request, script=plain)), worker, prover)
            report = report if without.verdict is None else without
        return replace(report, assumed=_folded(report.assumed))
    except WorkerError as error:
        return not_run(Unit(check, mesh), str(error), configuration)


def _may_be_of_the_loss_alone(report: Report) -> bool:
    """Whether a script's ranks may differ in how their losses are put together alone, or in which of them have one at all."""
    if report.verdict is not Verdict.BROKEN:
        return False
    differs = report.counterexample
    if differs is None:
        return any(found.rule == "collective-mismatch" for found in report.diagnostics)
    return differs.promise == LOSS


def _folded(lines: Sequence[str]) -> tuple[str, ...]:
    """What is assumed of many batches alike, said once."""
    alike: dict[str, list[str]] = {}
    unseeded = f"numbers drawn with seed {UNSEEDED} are those that PyTorch draws on a CPU"
    for line in ("numbers that no seed decides are the same on all ranks" if one == unseeded else one for one in lines):
        alike.setdefault(_BATCH.sub("batch", line), []).append(line)
    return tuple(
        group[0] if len(group) == 1 else f"{_BATCH.sub('batch', group[0])} (so in {len(group)} batches)"
        for group in alike.values()
    )


@without_collection()
def drive(steps: Steps, worker: Caller, prover: Caller) -> Report:
    """Answer every step until the report is there; interim reports are passed over."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            report: Report = stop.value
            return report
        if isinstance(step, Report):
            answer = None
        elif isinstance(step, tuple):
            answer = _together(step, {"worker": worker, "prover": prover})
        elif step.process == "prover":
            answer = prover.call(step.method, step.params)
        elif isinstance(worker, Background) and isinstance(prover, Prepared):
            begun = worker.start_call(step.method, step.params)
            prover.prepare()
            answer = begun.result()
        else:
            answer = worker.call(step.method, step.params)


def _together(steps: Sequence[Step], processes: Mapping[str, Caller]) -> tuple[Any, ...]:
    """The answers of several steps: a process that works in the background is at it while others are called."""
    begun: dict[int, Future[Any]] = {}
    for index, step in enumerate(steps):
        process = processes[step.process]
        if isinstance(process, Background):
            begun[index] = process.start_call(step.method, step.params)
    called = {
        index: processes[step.process].call(step.method, step.params)
        for index, step in enumerate(steps)
        if index not in begun
    }
    return tuple(called[index] if index in called else begun[index].result() for index in range(len(steps)))


def _units(
    found: Sequence[FoundCheck], configuration: Configuration, options: Options, worker: Caller
) -> Iterator[Unit]:
    listed: dict[str, dict[str, Any]] = {}
    for check in found:
        if check.trouble is not None:
            yield Unit(check.ref, None, check.trouble)
            continue
        meshes = options.meshes or check.meshes
        if meshes is None:
            yield from _listed_units(check.ref, configuration, worker, listed)
            continue
        for mesh in meshes:
            yield Unit(check.ref, dict(mesh))


def _listed_units(
    check: CheckRef, configuration: Configuration, worker: Caller, listed: dict[str, dict[str, Any]]
) -> Iterator[Unit]:
    """Meshes that only running the file tells."""
    file = str(configuration.root / check.span.file)
    if file not in listed:
        params = {"file": file, "root": str(configuration.root), "overlay": {}, "timeout": configuration.timeout}
        try:
            listed[file] = worker.call("list", params)
        except WorkerError as error:
            yield Unit(check, None, Trouble("trace-error", str(error), check.span))
            return
    answer = listed[file]
    for row in answer["checks"]:
        if row["name"] == function_name(check.name):
            for mesh in row["meshes"]:
                yield Unit(check, dict(mesh))
            return
    troubles = [from_plain(Trouble, row) for row in answer["troubles"]]
    missing = Trouble("trace-error", f"'{check.name}' is not there when the file is imported", check.span)
    yield Unit(check, None, troubles[0] if troubles else missing)


def _not_run(unit: Unit, trouble: Trouble, configuration: Configuration) -> Report:
    told = reported(trouble.rule, trouble.message, configuration.levels, trouble.span, places_of(trouble))
    return Report(unit.check, unit.mesh or {}, None, (told,))


def _defect(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"a defect of GraphGuard stopped this check: {type(error).__name__} in {where}\nplease report it: {error}"
