"""The command line's side of the other processes, the tracing worker and provers: starts one and calls it, from any thread."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self

import graphguard
from graphguard.checks.project.configuration import Configuration
from graphguard.trace.process import wire
from graphguard.trace.source.sources import SOURCES

NO_FORK: Final = "programs are recorded in forked processes, which this system does not have: use Linux, macOS or WSL"
_STDERR_LINES = 30


class WorkerError(Exception):
    """The worker cannot serve: it could not be started, it died, or it refused; the message is for the user."""


def worker_command(python: Sequence[str], sources: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The command that starts the worker in an interpreter (empty: this one), and its environment; ``sources`` are installed packages that count as the user's own.

    The worker is started by its place, so that the interpreter need not have GraphGuard installed.
    """
    script = Path(graphguard.__file__).resolve().parent / "trace" / "__main__.py"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment[SOURCES] = ",".join(sources)
    return [*(python or (sys.executable,)), str(script)], environment


class ProcessClient:
    """One process that answers framed calls, started with the first of them in a ``folder`` (None: this one's).

    Messages call it by its ``title``, and what is started for it by ``program``.
    """

    title = "the process"
    program = "Python"

    def __init__(self, folder: Path | None = None, on_log: Callable[[str], None] | None = None) -> None:
        self._folder = folder
        self._on_log = on_log or (lambda _: None)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._closed = False

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and wait for its result; raises ``WorkerError``."""
        return self.start_call(method, params).result()

    def start_call(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """Send a request; the future gives its result or raises ``WorkerError``."""
        future: Future[Any] = Future()
        with self._lock:
            process = self._started()
            number = next(self._numbers)
            self._pending[number] = future
            try:
                assert process.stdin is not None
                wire.write(process.stdin, {"id": number, "method": method, "params": params})  # type: ignore[arg-type]
            except OSError as error:
                del self._pending[number]
                raise WorkerError(self._died(process)) from error
        return future

    def command(self) -> tuple[list[str], dict[str, str]]:
        """What starts the process, and its environment."""
        raise NotImplementedError

    def told(self, error: dict[str, Any]) -> str:
        """What an error of the process means to the user."""
        return str(error["message"])

    def start(self) -> None:
        """Start the process before it is called; raises ``WorkerError``."""
        with self._lock:
            self._started()

    def close(self) -> None:
        """End the process; calls that are still waiting raise ``WorkerError``."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is None:
            return
        self._abandon(f"{self.title} was closed")
        process.kill()
        process.wait()
        _close_streams(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise WorkerError(f"{self.title} was closed")
        if self._process is not None and self._process.poll() is not None:
            _close_streams(self._process)
            self._process = None
        if self._process is None:
            argv, environment = self.command()
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as error:
                raise WorkerError(f"{self.program} cannot be started: {argv[0]}: {error.strerror}") from error
            self._process = process
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()
            threading.Thread(target=self._collect, args=(process,), daemon=True).start()
        return self._process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            while (message := wire.read(process.stdout)) is not None:  # type: ignore[arg-type]
                self._receive(message)
        except (wire.WireError, OSError, ValueError):
            process.kill()
        process.wait()
        self._abandon(self._died(process))

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("method") == "log":
            self._on_log(message["params"]["text"])
        future = self._pending.pop(message.get("id", 0), None)
        if future is None:
            return
        if "error" in message:
            future.set_exception(WorkerError(self.told(message["error"])))
        else:
            future.set_result(message["result"])

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            text = line.decode(errors="replace")
            self._stderr.append(text)
            self._on_log(text)

    def _abandon(self, reason: str) -> None:
        while self._pending:
            try:
                _, future = self._pending.popitem()
            except KeyError:  # another thread was quicker
                return
            if not future.done():
                future.set_exception(WorkerError(reason))

    def _died(self, process: subprocess.Popen[bytes]) -> str:
        status = process.wait()
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        said = "".join(self._stderr).strip()
        return f"{self.title} ended ({ended})" + (f":\n{said}" if said else "")


class WorkerClient(ProcessClient):
    """The tracing worker of a project."""

    title = "the tracing worker"
    program = "the project's Python"

    def __init__(self, configuration: Configuration, on_log: Callable[[str], None] | None = None) -> None:
        super().__init__(configuration.root, on_log)
        self._configuration = configuration

    def command(self) -> tuple[list[str], dict[str, str]]:
        """The project's interpreter runs it."""
        if not hasattr(os, "fork"):
            raise WorkerError(NO_FORK)
        return worker_command(self._configuration.python, self._configuration.sources)

    def start_call(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """As of any process; what records is bounded as the project says."""
        if method in ("capture", "list"):
            params = {"memory": self._configuration.memory, "timeout": self._configuration.timeout, **params}
        return super().start_call(method, params)


class ProverClient(ProcessClient):
    """A prover in a process of its own, which works while others do; ``cache``: whether it knows what others proved."""

    title = "a prover"

    def __init__(self, cache: bool) -> None:
        super().__init__()
        self._cache = cache

    def command(self) -> tuple[list[str], dict[str, str]]:
        """This interpreter runs it, with this copy of GraphGuard and nothing of the folder it runs in."""
        home = str(Path(graphguard.__file__).resolve().parents[1])
        path = os.pathsep.join((home, *filter(None, (os.environ.get("PYTHONPATH"),))))
        bare = () if self._cache else ("--no-cache",)
        return [sys.executable, "-P", "-m", "graphguard.checks.proving.prover", *bare], {
            **os.environ,
            "PYTHONPATH": path,
        }

    def told(self, error: dict[str, Any]) -> str:
        """A prover says what is wrong with programs in its answers: an error is one of ours."""
        return f"a defect of GraphGuard stopped this check: {error['code']}\nplease report it: {error['message']}"

    def prepare(self) -> None:
        """Start it, so that it is there when the first recording is."""
        self.start()


def _close_streams(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # what was still to be written has no reader any more
                continue
