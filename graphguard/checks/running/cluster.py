"""Checks on many machines: every check on every mesh is a task of dask.distributed, which gives the tasks of a lost worker to others.

Tasks and their answers are JSON, read field by field (:mod:`graphguard.ir.plain`).  Every worker must have the GraphGuard, Python and torch of the caller and, under the
same paths, the same files.  Both are compared by digest, and a worker where they differ is told by its name.  Reports are looked up and kept where the command was called.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final

import graphguard
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.project.discovery import python_files
from graphguard.checks.running.driver import (
    Listener,
    Options,
    Provers,
    Unit,
    Work,
    known_report,
    not_run,
    request_of,
    run_unit,
)
from graphguard.checks.running.worker_client import WorkerClient, WorkerError
from graphguard.ir.plain import from_plain, to_plain
from graphguard.report.diagnostics import Report
from graphguard.trace.depends.footprint import text_digest

# Seconds until a scheduler must have answered, and until a worker must have joined it.
ANSWERS: Final = 5.0
JOINS: Final = 30.0
_PACKAGES: Final = "packages"  # these may differ; what was recorded with others is not kept


class ClusterError(Exception):
    """Checks cannot run on this cluster; the message is for the user."""


@contextmanager
def cluster(address: str, workers: int) -> Iterator[Cluster]:
    """The workers of the scheduler at an address; without one so many on this machine, or one for every processor.  Raises ``ClusterError``."""
    try:
        import distributed
    except ImportError as error:
        raise ClusterError(f"dask.distributed is not installed ({error}): pip install 'graphguard[dask]'") from error
    if not address:
        count = workers or os.cpu_count()
        with _deaf_to_interrupts():
            # Port 0 is a free one: the default is the same for all clusters, and dask warns that it is taken.
            local = distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
            )
        with local, distributed.Client(local, set_as_default=False) as client:
            yield Cluster(client)
        return
    try:
        _ask_who(address)
        client = distributed.Client(address, timeout=ANSWERS, set_as_default=False)
    except TimeoutError as error:
        raise ClusterError(f"there is no dask scheduler at {address}: no answer within {ANSWERS:.0f} s") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClusterError(f"there is no dask scheduler at {address}: {why}") from error
    with client:
        yield Cluster(client)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Threads and processes that are started meanwhile do not hear Ctrl-C, which a terminal sends to all of them: they are ended from here."""
    resource_tracker.ensure_running()  # which would unblock what is blocked
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _ask_who(address: str) -> None:
    """Raises ``OSError`` or ``ValueError`` where no scheduler answers; a client would try again and again, or wait for ever."""
    from distributed import comm, rpc
    from distributed.security import Security

    async def identity() -> dict[str, Any]:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as there:
            found: dict[str, Any] = await there.identity()
            return found

    socket.create_connection(comm.get_address_host_port(address), timeout=ANSWERS).close()
    kind = asyncio.run(asyncio.wait_for(identity(), ANSWERS))["type"]
    if kind != "Scheduler":
        raise ValueError(f"it is a {kind.lower()}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of a scheduler; ``client`` is dask's."""

    client: Any

    def reports(self, units: Sequence[Unit], work: Work) -> Iterator[Report]:
        """As of any executor; raises ``ClusterError``."""
        run, here = secrets.token_hex(8), installation(work.configuration.python)
        self._await_a_worker()
        self._inspect(here, work.configuration)
        self.client.subscribe_topic(run, lambda event: _heard(event[1], units, work.listener))
        asked: list[Report | Any] = []
        try:
            for index, unit in enumerate(units):
                asked.append(known_report(unit, work) or self._submit(run, index, unit, here, work))
            for unit, one in zip(units, asked, strict=True):
                yield one if isinstance(one, Report) else self._report(unit, one, here, work)
        finally:
            self._leave(run, [one for one in asked if not isinstance(one, Report)])

    def _submit(self, run: str, index: int, unit: Unit, here: Mapping[str, str], work: Work) -> Any:
        parts = {"unit": unit, "configuration": work.configuration, "options": work.options}
        texts = digests([request_of(unit, work).file])
        task = {"run": run, "index": index, "installation": here, "texts": texts, **to_plain(parts)}
        return self.client.submit(answer, json.dumps(task), pure=False, priority=-index)

    def _report(self, unit: Unit, future: Any, here: Mapping[str, str], work: Work) -> Report:
        from distributed import KilledWorker

        try:
            told = json.loads(self._result(future, here, work.configuration))
        except KilledWorker as error:
            why = f"every worker that ran this check was lost, the last of them {error.last_worker.address}"
            return not_run(unit, why, work.configuration)
        _compare_installations(told["worker"], told["installation"], here)
        report = from_plain(Report, told["report"]) if told["report"] is not None else None
        files = {*told["texts"], *_to_compare(report, request_of(unit, work).file, work.configuration)}
        _compare_texts(told["worker"], told["texts"], digests(files))
        assert report is not None, "a worker that has the same GraphGuard and files runs the check"
        if work.kept is not None and told["installation"] == here:
            work.kept.keep(request_of(unit, work), report)
        return report

    def _result(self, future: Any, here: Mapping[str, str], configuration: Configuration) -> bytes:
        from distributed import KilledWorker

        while True:
            try:
                found: bytes = future.result(timeout=JOINS)
            except KilledWorker:
                raise
            except CancelledError as error:
                raise ClusterError(f"the dask scheduler is gone: {error}") from error
            except Exception as error:
                if isinstance(error, TimeoutError) and not future.done():
                    self._await_a_worker()
                    continue
                self._inspect(here, configuration)  # a worker without GraphGuard may have joined
                raise ClusterError(f"a worker could not run its task: {error!r}") from error
            else:
                return found

    def _await_a_worker(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=JOINS)
        except TimeoutError as error:
            raise ClusterError(f"no worker joined the dask scheduler within {JOINS:.0f} s") from error

    def _inspect(self, here: Mapping[str, str], configuration: Configuration) -> None:
        """Whether every worker has what this machine has."""
        own = version("graphguard")
        for worker, found in self._asked(version, "graphguard"):
            if found != own:
                there = "no GraphGuard" if isinstance(found, PackageNotFoundError) else f"GraphGuard {found}"
                raise ClusterError(f"worker {worker} has {there}: pip install graphguard=={own} there, as here")
        for worker, found in self._asked(installation, configuration.python):
            if isinstance(found, Exception):
                raise ClusterError(f"worker {worker} cannot run GraphGuard: {found!r}")
            _compare_installations(worker, found, here)

    def _asked(self, function: Callable[..., Any], *arguments: Any) -> Iterator[tuple[str, Any]]:
        """What each worker says, an exception included; one that is lost meanwhile says nothing."""
        for worker, found in self.client.run(function, *arguments, on_error="return").items():
            if not isinstance(found, OSError):
                yield worker, found

    def _leave(self, run: str, futures: Sequence[Any]) -> None:
        with suppress(OSError):  # of a scheduler that is gone, with all that it ran
            self.client.unsubscribe_topic(run)
            self.client.cancel(futures)
            self.client.run(leave, run, on_error="ignore")


def _heard(event: Mapping[str, Any], units: Sequence[Unit], listener: Listener) -> None:
    if "started" in event:
        listener.started(units[event["started"]])
    else:
        listener.printed(event["printed"])


def _compare_installations(worker: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    for part, own in here.items():
        if there[part] != own and part != _PACKAGES:
            raise ClusterError(
                f"worker {worker} has {part} {there[part]}, this machine {own}: install the same on both, as their verdicts might differ"
            )


def _compare_texts(worker: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    for file in sorted({*there, *here}):
        if there.get(file) != here.get(file):
            says = (
                "has no"
                if not there.get(file)
                else "has, and this machine does not,"
                if not here.get(file)
                else "has another text of"
            )
            raise ClusterError(
                f"worker {worker} {says} {file}: all machines must see the same files under the same paths, as on a shared file system"
            )


# -- on a worker -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Station:
    """What a run has on one worker of dask, kept from check to check; ``users`` run checks with it just now."""

    worker: WorkerClient
    provers: Provers
    users: int = 0

    def close(self) -> None:
        """End its processes; checks that still run with it end."""
        self.worker.close()
        self.provers.close()


_stations: dict[str, Station | None] = {}  # by run; None where the run has ended
_lock = threading.Lock()


class Reporter(Listener):
    """Sends what happens to the caller."""

    def __init__(self, run: str, index: int = 0) -> None:
        from distributed import get_worker

        self._log, self._run, self._index = get_worker().log_event, run, index

    def started(self, unit: Unit) -> None:  # noqa: ARG002 - the caller knows it by its index
        """Which check begins."""
        self._log(self._run, {"started": self._index})

    def printed(self, line: str) -> None:
        """What programs print."""
        self._log(self._run, {"printed": line})


def answer(task: str) -> bytes:
    """Run one check on one mesh, where this worker has what the caller has; its report as plain data, with what it was made from."""
    from distributed import get_worker

    asked = json.loads(task)
    unit, options = from_plain(Unit, asked["unit"]), from_plain(Options, asked["options"])
    configuration = from_plain(Configuration, asked["configuration"])
    told = {
        "worker": get_worker().address,
        "installation": installation(configuration.python),
        "texts": digests(asked["texts"]),
        "report": None,
    }
    alike = all(told["installation"][part] == text for part, text in asked["installation"].items() if part != _PACKAGES)
    if alike and told["texts"] == asked["texts"]:
        report = _run(asked["run"], unit, configuration, options, Reporter(asked["run"], asked["index"]))
        (file,) = asked["texts"]
        told["report"], told["texts"] = to_plain(report), digests(_to_compare(report, file, configuration))
    return json.dumps(told).encode()


def _run(run: str, unit: Unit, configuration: Configuration, options: Options, listener: Listener) -> Report:
    with _at_station(run, configuration, options) as station, station.provers.lent() as prover:
        report = run_unit(unit, Work(configuration, options, listener, station.worker, None), prover)
    relations = {name: str(relation) for name, relation in report.relations.items()}
    return replace(report, relations=relations, proof="")


@contextmanager
def _at_station(run: str, configuration: Configuration, options: Options) -> Iterator[Station]:
    with _lock:
        station = _stations.get(run)
        if station is None:
            if run in _stations:
                raise WorkerError("the run has ended")
            _close_idle()
            station = Station(WorkerClient(configuration, Reporter(run).printed), Provers(options.cache))
            _stations[run] = station
        station.users += 1
    try:
        yield station
    finally:
        with _lock:
            station.users -= 1


def _close_idle() -> None:
    """End what runs left behind whose callers were lost."""
    for run, station in list(_stations.items()):
        if station is not None and not station.users:
            del _stations[run]
            station.close()


def leave(run: str) -> None:
    """A run has ended, whatever of it is still at work."""
    with _lock:
        station, _stations[run] = _stations.get(run), None
    if station is not None:
        station.close()


# -- on both -----------------------------------------------------------------------------------------------------------
def _to_compare(report: Report | None, file: str, configuration: Configuration) -> set[str]:
    """The files that a report rests on; of a check that could not run all of the project, as one may have been missing."""
    if report is None:
        return {file}
    project = map(str, python_files(configuration.root)) if report.verdict is None else ()
    return {file, *report.sources, *project}


def digests(files: Iterable[str]) -> dict[str, str]:
    """A digest of the text of each file; empty where there is none."""
    return {file: text_digest(Path(file).read_bytes()) if os.path.isfile(file) else "" for file in files}


@cache
def installation(python: tuple[str, ...]) -> dict[str, str]:
    """What the verdicts of a machine rest on, torch as the interpreter of the project sees it."""
    home, sources = Path(graphguard.__file__).parent, hashlib.sha256()
    for source in sorted(home.rglob("*.py")):
        sources.update(f"{source.relative_to(home)} {text_digest(source.read_bytes())}\n".encode())
    installed = {
        name
        for folder in sys.path
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.endswith((".dist-info", ".egg-info", ".pth"))
    }
    return {
        "Python": ".".join(map(str, sys.version_info[:2])),
        "GraphGuard": f"{version('graphguard')} ({sources.hexdigest()[:8]})",
        "torch": _release_of_torch(python or (sys.executable,)),
        _PACKAGES: hashlib.sha256(repr((sys.version, sys.platform, sorted(installed))).encode()).hexdigest(),
    }


def _release_of_torch(python: tuple[str, ...]) -> str:
    asked = [*python, "-c", "from importlib.metadata import version; print(version('torch'))"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
    except OSError as error:
        return f"none ({python[0]}: {error.strerror})"
    except subprocess.CalledProcessError:
        return f"none (in {python[0]})"
    return found.stdout.strip().partition("+")[0]
