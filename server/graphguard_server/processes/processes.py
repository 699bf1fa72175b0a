"""Child processes that answer framed requests: started when needed, watched, restarted with back-off, never left behind.

One :class:`Process` stands for the tracing worker or the prover.  A call awaits its answer; whatever ends the process in the
meantime (a kill, a crash, a hang, nonsense on its standard output) fails the pending calls with :class:`ProcessDiedError`, and the next call starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from graphguard.trace.process import parentage, wire

log = logging.getLogger(__name__)

ProcessState = Literal["stopped", "starting", "ready", "waiting", "failed"]

_LENGTHS: Final = struct.Struct(">II")
MAX_PAYLOAD: Final = 2 << 30
FRAMES_PER_TURN: Final = 16
KEPT_LINES: Final = 40


class ProcessDiedError(RuntimeError):
    """The process ended before it answered; a new one may."""


class CallFailedError(RuntimeError):
    """The process answered with an error."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience with a process, in seconds."""

    start: float = 180.0
    heartbeat: float = 2.0
    silence: float = 10.0
    cancelled: float = 10.0
    first_delay: float = 0.2
    longest_delay: float = 20.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process: the command, variables added to the environment, and the folder."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None = None


class Process:
    """A restartable child that answers requests; not safe to use from several threads.

    ``busy_is_silent`` says that the child cannot answer a heartbeat while it works on a request.
    """

    def __init__(
        self,
        name: str,
        launch: Callable[[], Launch],
        changed: Callable[[], None],
        *,
        busy_is_silent: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.state: ProcessState = "stopped"
        self.message = ""
        self.restarts = 0
        self.notified: Callable[[str, dict[str, Any]], None] = lambda _method, _params: None
        self._launch = launch
        self._changed = changed
        self._busy_is_silent = busy_is_silent
        self._limits = limits or Limits()
        self._child: asyncio.subprocess.Process | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stderr: deque[str] = deque(maxlen=KEPT_LINES)
        self._starting = asyncio.Lock()
        self._next_id = 1
        self._heard = 0.0
        self._failures = 0
        self._not_before = 0.0
        self._closed = False
        self._killed_for = ""

    @property
    def pid(self) -> int | None:
        """The process id while the child lives."""
        return None if self._child is None else self._child.pid

    @property
    def last_words(self) -> str:
        """The end of what the child wrote to standard error."""
        return "\n".join(self._stderr)

    async def call(self, method: str, params: dict[str, Any], limit: float | None = None) -> Any:
        """Send a request and await its answer; raises ``ProcessDiedError`` or ``CallFailedError``.

        Beyond ``limit`` seconds the child counts as hung and is killed.  A cancelled call tells the child to stop working on it.
        """
        child = await self._started()
        number, self._next_id = self._next_id, self._next_id + 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self._send(child, {"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(future)
        except TimeoutError:
            reason = f"did not answer {method!r} within {limit:.0f} s"
            self.kill(reason)
            raise ProcessDiedError(f"the {self.name} {reason}") from None
        except asyncio.CancelledError:
            self._abandon(child, number, future)
            raise

    def kill(self, reason: str) -> None:
        """End the child and its descendants at once."""
        child = self._child
        if child is not None and child.returncode is None:
            self._killed_for = reason
            log.warning("%s: %s; killed", self.name, reason)
            _kill_group(child.pid)

    async def restart(self) -> None:
        """End the child; the next call starts a new one without delay."""
        await self._end()
        self._failures, self._not_before = 0, 0.0
        self._become("stopped", "")

    async def close(self) -> None:
        """End the child for good."""
        self._closed = True
        await self._end()

    async def _end(self) -> None:
        child = self._child
        if child is not None:
            if child.stdin is not None:
                child.stdin.close()
            _kill_group(child.pid)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await child.wait()
            self._lost(child, "stopped")

    async def _started(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._child is not None and self._child.returncode is None:
                return self._child
            if self._closed:
                raise ProcessDiedError("the server is shutting down")
            delay = self._not_before - time.monotonic()
            if delay > 0:
                self._become("waiting", self.message)
                await asyncio.sleep(delay)
            return await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        launch = self._launch()
        self._become("starting", "")
        try:
            child = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=launch.folder,
                env={**os.environ, **launch.environment, parentage.VARIABLE: str(os.getpid())},
                limit=1 << 22,
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            self._back_off()
            self._become("failed", f"cannot start {launch.command[0]}: {error.strerror or error}")
            raise ProcessDiedError(self.message) from error
        self._child, self._heard, self._killed_for = child, time.monotonic(), ""
        for work in (self._read(child), self._read_errors(child), self._watch(child)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._send(child, {"id": 0, "method": "ping", "params": {}})
        return child

    def _send(self, child: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        if child.stdin is not None and not child.stdin.is_closing():
            child.stdin.write(wire.encode(message))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        nonsense = ""
        try:
            assert child.stdout is not None
            frames = 0
            while True:
                message = await _message(child.stdout)
                self._heard = time.monotonic()
                self._take(message)
                frames += 1
                if frames % FRAMES_PER_TURN == 0:
                    await asyncio.sleep(0)  # a flood of frames must not keep the loop from its other work
        except (asyncio.IncompleteReadError, ConnectionError):
            log.debug("%s: end of output", self.name)
        except (ValueError, KeyError, TypeError) as error:
            nonsense = f"sent something that is not a message ({error})"
        _kill_group(child.pid)  # without output it is of no use, and its children must not outlive it
        code = await child.wait()
        self._lost(child, nonsense or self._killed_for or _ending(code, self._stderr))

    async def _read_errors(self, child: asyncio.subprocess.Process) -> None:
        assert child.stderr is not None
        while chunk := await child.stderr.read(1 << 16):
            lines = chunk.decode("utf-8", "replace").splitlines()
            self._stderr.extend(lines[-KEPT_LINES:])
            for line in lines[:KEPT_LINES]:
                log.debug("%s: %s", self.name, line)

    async def _watch(self, child: asyncio.subprocess.Process) -> None:
        """Heartbeat: a child that stays silent although it should answer, and does not compute either, is hung."""
        asked = worked = time.monotonic()
        used = cpu_seconds(child.pid)
        while child.returncode is None and self._child is child:
            await asyncio.sleep(self._limits.heartbeat)
            now, used_now = time.monotonic(), cpu_seconds(child.pid)
            if used_now is None or used is None or used_now > used or wants_processor(child.pid):
                worked, used = now, used_now
            silent = now - asked
            if self._heard < asked and silent > self._patience(silent, now - worked):
                self.kill(f"did not answer for {silent:.0f} s")
                return
            if self._heard >= asked:
                asked = now
                self._send(child, {"id": 0, "method": "ping", "params": {}})

    def _patience(self, silent: float, idle: float) -> float:
        """How long a child may be silent that has not computed for ``idle`` seconds.

        One that computes cannot answer: it works on a request, or loads its libraries, which takes long on a busy machine.
        """
        if self.state == "starting":  # slow disks: it may wait for a while before it computes
            return self._limits.start if idle <= 3 * self._limits.silence else 3 * self._limits.silence
        if idle > self._limits.silence:
            return self._limits.silence
        return silent if self._busy_is_silent and self._pending else self._limits.start

    def _take(self, message: dict[str, Any]) -> None:
        if self.state != "ready":
            self._become("ready", "")
        if "method" in message:
            self.notified(str(message["method"]), dict(message.get("params") or {}))
            return
        future = self._pending.pop(message["id"], None)
        if future is None or future.done():
            return
        self._failures = 0
        if "error" in message:
            error = message["error"]
            future.set_exception(
                CallFailedError(str(error.get("message", error) if isinstance(error, dict) else error))
            )
        else:
            future.set_result(message.get("result"))

    def _abandon(self, child: asyncio.subprocess.Process, number: int, future: asyncio.Future[Any]) -> None:
        """Tell the child to stop; one that goes on regardless is killed, for it would block what comes next.

        One that has said nothing since may not have read it yet, because it still loads its libraries: the heartbeat looks after it.
        """
        if future.done():
            future.cancelled() or future.exception()
            return
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._send(child, {"method": "cancel", "params": {"id": number}})

        loop, told = asyncio.get_running_loop(), time.monotonic()

        def insist() -> None:
            if self._child is not child or number not in self._pending:
                return
            if self._busy_is_silent or self._heard > told + 2 * self._limits.heartbeat:
                self.kill("did not stop working on a cancelled request")
            else:
                loop.call_later(self._limits.cancelled, insist)

        loop.call_later(self._limits.cancelled, insist)

    def _lost(self, child: asyncio.subprocess.Process, reason: str) -> None:
        if self._child is not child:
            return
        self._child = None
        transport = getattr(child, "_transport", None)
        if transport is not None:
            transport.close()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ProcessDiedError(f"the {self.name} {reason}"))
                future.exception()  # an abandoned call has nobody left to look at it
        if self._closed:
            return
        self.restarts += 1
        self._back_off()
        self._become("waiting", reason)

    def _back_off(self) -> None:
        delay = min(self._limits.first_delay * 2**self._failures, self._limits.longest_delay)
        self._failures += 1
        self._not_before = time.monotonic() + delay

    def _become(self, state: ProcessState, message: str) -> None:
        if (self.state, self.message) != (state, message):
            self.state, self.message = state, message
            self._changed()


async def _message(stream: asyncio.StreamReader) -> dict[str, Any]:
    header_length, payload_length = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    if header_length > wire.MAX_HEADER or payload_length > MAX_PAYLOAD:
        raise ValueError(f"a frame of {header_length} + {payload_length} bytes")
    header = await stream.readexactly(header_length)
    return wire.decode(header, await stream.readexactly(payload_length))


def cpu_seconds(pid: int) -> float | None:
    """Processor time that a process has used so far; None where the system does not tell."""
    fields = _fields(pid)
    return None if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wants_processor(pid: int) -> bool:
    """Whether a process would go on if the machine let it: it waits for a processor, or for the disk, but not for us."""
    fields = _fields(pid)
    return fields is not None and fields[0] in ("R", "D")


def _fields(pid: int) -> list[str] | None:
    """What the system says of a process, from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)


def _ending(code: int, words: Sequence[str]) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    last = next((line.strip() for line in reversed(words) if line.strip()), "")
    return f"ended with status {code}" + (f": {last[:200]}" if last and code else "")
