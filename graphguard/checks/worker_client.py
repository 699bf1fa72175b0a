"""The command line's side of the tracing worker: starts it in the project's interpreter and calls it, from any thread."""

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
from typing import Any

from graphguard.checks.configuration import Configuration
from graphguard.trace.process import wire

_STDERR_LINES = 30


class WorkerError(Exception):
    """The worker cannot serve: it could not be started, it died, or it refused; the message is for the user."""


def worker_command(python: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command that starts the worker in an interpreter (empty: this one), and its environment.

    The worker is started by its place, so that the interpreter need not have GraphGuard installed.
    """
    script = Path(__file__).resolve().parents[1] / "trace" / "__main__.py"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return [*(python or (sys.executable,)), str(script)], environment


class WorkerClient:
    """One worker, started with the first call."""

    def __init__(self, configuration: Configuration, on_log: Callable[[str], None] | None = None) -> None:
        self._configuration = configuration
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
        if method in ("capture", "list"):
            params = {"memory": self._configuration.memory, "timeout": self._configuration.timeout, **params}
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

    def close(self) -> None:
        """End the worker; calls that are still waiting raise ``WorkerError``."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is None:
            return
        self._abandon("the worker was closed")
        process.kill()
        process.wait()
        _close_streams(process)

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise WorkerError("the worker was closed")
        if self._process is not None and self._process.poll() is not None:
            _close_streams(self._process)
            self._process = None
        if self._process is None:
            argv, environment = worker_command(self._configuration.python)
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=self._configuration.root,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as error:
                raise WorkerError(f"the project's Python cannot be started: {argv[0]}: {error.strerror}") from error
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
            future.set_exception(WorkerError(message["error"]["message"]))
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
        return f"the tracing worker ended ({ended})" + (f":\n{said}" if said else "")


def _close_streams(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # what was still to be written has no reader any more
                continue
