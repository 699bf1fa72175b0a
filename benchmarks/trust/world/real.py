"""Programs on real processes: what gloo's ranks return, whether they hang, what they raise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.trust.programs import ROOT
from benchmarks.trust.world.jobs import Answer, Job
from benchmarks.trust.world.program import loaded
from benchmarks.trust.world.results import combined, differ

_LOOK = 0.05  # seconds between two looks at ranks that have not answered
_STILL = 0.7  # of sleep without a single wake-up of any rank that has not answered: nothing will come
_PATIENCE = 120.0
_ORDERED = 1e-4  # of lateness: collectives of one group run one after the other, at once
_WORDS = ("async_op=True", "isend", "irecv")


@dataclass(frozen=True, slots=True)
class Care:
    """How carefully a program is run: on how many inputs, how long ranks must sleep to be called hanging, how late what is asynchronous may be."""

    trials: int = 2
    still: float = _STILL
    late: float = 0.1


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happens.

    ``kind``: ``equal``, ``differs``, ``hangs``, ``raises``, or ``no specification`` where that one raises; ``lazily`` where it takes an asynchronous
    collective that is late; ``unordered`` where it takes two collectives of one group that overtake each other; ``not_dense`` where a collective got memory with gaps, which NCCL refuses.
    """

    kind: str
    text: str = ""
    lazily: bool = False
    unordered: bool = False
    not_dense: bool = False


class DefectError(Exception):
    """This machine went wrong, not a program."""


@dataclass(slots=True)
class _Server:
    process: subprocess.Popen[bytes]
    connection: Connection
    port: int
    pid: int = 0
    busy: bool = False
    answer: Answer | None = None


@dataclass(slots=True)
class Ranks:
    """Fork servers, one a rank; ``seed`` makes their hash seeds."""

    size: int
    seed: int = 0
    _servers: list[_Server] = field(default_factory=list)

    def start(self) -> None:
        """Start them."""
        started = [self._start(rank) for rank in range(self.size)]
        self._servers = [_Server(process, ours, ours.recv()) for process, ours in started]

    def close(self) -> None:
        """End them."""
        for server in self._servers:
            self._kill(server)
            server.connection.close()
            server.process.kill()
            server.process.wait()

    def truth(self, path: Path, care: Care) -> Truth:
        """What happens; where something is asynchronous, in the laziest schedule as well.

        Gloo works on two collectives of one group at a time; where that alone refutes a program, it is ``unordered``.
        """
        truth = self._truth(path, care, 0.0)
        if not any(word in path.read_text() for word in _WORDS):
            return truth
        unordered = truth.kind != "equal"
        if unordered and self._truth(path, care, _ORDERED).kind != "equal":
            return truth
        late = self._truth(path, care, care.late)
        return replace(late, lazily=late.kind != "equal", unordered=unordered, not_dense=truth.not_dense)

    def _start(self, rank: int) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = Pipe()
        environment = dict(os.environ, PYTHONHASHSEED=str(1 + 100 * self.seed + rank), OMP_NUM_THREADS="1")
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.trust.world.rank", str(theirs.fileno()), str(rank)],
            env={**environment, "GLOO_SOCKET_IFNAME": "lo"},
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        return process, ours

    def _truth(self, path: Path, care: Care, late: float) -> Truth:
        names = loaded(path)
        servers = self._servers[: _size(names)]
        answers, hangs = self._answers(servers, Job(path, len(servers), self._servers[0].port, care.trials, late), care)
        not_dense = any(answer.not_dense for answer in answers)
        for answer in answers:
            if answer.raised:
                kind = "raises" if answer.by == "impl" else "no specification"
                return Truth(kind, answer.raised, not_dense=not_dense)
        if hangs:
            return Truth("hangs", hangs)
        texts = (_compared(each, answers, trial, names) for trial in range(care.trials) for each in answers)
        text = next(filter(None, texts), "")
        return Truth("differs" if text else "equal", text, not_dense=not_dense)

    def _answers(self, servers: list[_Server], job: Job, care: Care) -> tuple[list[Answer], str]:
        """All answers, or those before one that raised; and which ranks hang."""
        for server in servers:
            server.answer, server.busy = None, True
            server.connection.send(job)
        try:
            hangs = self._wait(servers, care)
        finally:
            for server in servers:
                self._kill(server)
        return [server.answer for server in servers if server.answer is not None], hangs

    def _wait(self, servers: list[_Server], care: Care) -> str:
        began = still_since = time.monotonic()
        seen: Any = None
        while left := [server for server in servers if server.answer is None]:
            ready = wait([server.connection for server in left], _LOOK)
            for server in left:
                if server.connection in ready:
                    self._hear(server)
            if any(server.answer is not None and server.answer.raised for server in servers):
                return ""
            now = time.monotonic()
            moves = None if ready else _moves([server.pid for server in left])
            if moves is None or moves != seen:
                seen, still_since = moves, now
            if now - still_since > care.still or now - began > _PATIENCE:
                return "rank " + ", ".join(str(servers.index(server)) for server in left)
        return ""

    def _hear(self, server: _Server) -> None:
        kind, value = server.connection.recv()
        if kind == "defect":
            raise DefectError(value)
        if kind == "started":
            server.pid = value
        elif kind == "answer":
            server.answer = value
        else:
            server.pid, server.busy = 0, False
            server.answer = Answer(raised=f"the process ended with status {value}", by="impl")

    def _kill(self, server: _Server) -> None:
        """End the child that runs a program; whatever it still says is passed over."""
        while server.busy:
            if server.pid:
                with suppress(ProcessLookupError):
                    os.kill(server.pid, signal.SIGKILL)
            kind, value = server.connection.recv()
            if kind == "started":
                server.pid = value
            elif kind == "ended":
                server.pid, server.busy = 0, False


def _size(names: dict[str, Any]) -> int:
    size = 1
    for count in names["MESH"].values():
        size *= count
    return size


def _moves(pids: list[int]) -> Any:
    """How often the main threads of these processes went to sleep; None where one of them is awake, or not there yet.

    Gloo's own threads wake up a hundred times a second, whatever there is to do.
    """
    rows = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
        except OSError:
            return None
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if not lines["State"].startswith("S"):
            return None
        rows.append((lines["voluntary_ctxt_switches"], lines["nonvoluntary_ctxt_switches"]))
    return rows


def _compared(specified: Answer, answers: list[Answer], trial: int, names: dict[str, Any]) -> str:
    """How the ranks' results differ under the promise from what the specification gave in one of the processes; nothing where they do not.

    The specification runs in a process of its own, which may be any: a result that only rank 0's set order gives is no result of the specification.
    """
    wanted, found = specified.wanted[trial], [answer.found[trial] for answer in answers]
    promised = names["OUT"]
    promises = list(promised) if isinstance(promised, tuple) else None
    if promises is None or wanted[0] != "row":
        relation = None if promised == "replicate" else promised
        return _held(wanted, found, relation, names["MESH"])
    if any(each[0] != "row" or len(each[1]) != len(wanted[1]) for each in found):
        return "another number of results"
    rows = [
        _held(wanted[1][index], [each[1][index] for each in found], None if one == "replicate" else one, names["MESH"])
        for index, one in enumerate(promises)
    ]
    return next((text for text in rows if text), "")


def _held(wanted: Any, found: list[Any], relation: Any, mesh: dict[str, int]) -> str:
    whole, problem = combined(found, relation, mesh)
    return problem or differ(wanted, whole)
