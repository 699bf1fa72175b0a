"""Forked children that run user code, watched from one thread: what they say, when they end, and how.

A child may crash, hang, print without end, leave through ``os._exit`` or fork: whatever it does, it ends alone, and its
:class:`Ending` says what happened and where it was.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import re
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphguard.ir import Span
from graphguard.trace.process import wire
from graphguard.trace.process.limits import (
    MAX_FORKS,
    Limits,
    adopt_orphans,
    confine,
    end_orphans,
    first_to_go,
    fork_child,
)
from graphguard.trace.process.parentage import die_with

_CHUNK = 1 << 18
_STACK_SIGNAL = signal.SIGUSR2
# Wall-clock that the kernel gets to write the stack of a child that is about to be killed.
_STACK_SECONDS = 0.5
_LOGGED = 256 * 1024
# Exit status of a child in which our own code failed.
_INTERNAL = 70
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended.

    ``kind``: ``answered`` (``answer`` holds what it returned), ``exited`` or ``killed`` without an answer (``status`` is the exit status or signal),
    ``failed`` (a defect of ours; the log has it), ``timeout``, ``output`` (it printed too much), ``cancelled``.  ``stack`` is where it was, innermost first, as far as that is known.
    """

    kind: Literal["answered", "exited", "killed", "failed", "timeout", "output", "cancelled"]
    answer: Any = None
    status: int = 0
    stack: tuple[tuple[Span, str], ...] = ()


class Link:
    """A child's side of the connection to the process that forked it."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rwb")
        self._owner = os.getpid()
        self._stays = False

    def tell(self, message: dict[str, Any]) -> None:
        """Send one message; a copy of the child that user code forked stays silent."""
        if os.getpid() == self._owner:
            wire.write(self._stream, message)  # type: ignore[arg-type]

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message and wait for the answer."""
        self.tell(message)
        answer = wire.read(self._stream)  # type: ignore[arg-type]
        if answer is None:
            os._exit(1)
        return answer

    def stay(self) -> None:
        """Once it has answered, this process ends when its parent does or lets it go: the kernel takes milliseconds for it, which others may need just then."""
        self._stays = True

    def end(self) -> None:
        """Wait until this process may end."""
        while self._stays and wire.read(self._stream) is not None:  # type: ignore[arg-type]
            pass


@dataclass(slots=True)
class Child:
    """A child that has not ended, seen from its parent.

    One that ``answered`` is on its way out, or there until its parent ends where it is one that ``stays``; one that is ``idle`` waits for its work, once it is ``ready``.
    """

    pid: int
    connection: socket.socket
    stack_file: int
    output: int
    leader: bool
    stays: bool = False
    limits: Limits = field(default_factory=Limits)
    on_message: Callable[[Child, dict[str, Any]], None] = lambda *_: None
    on_output: Callable[[str], None] = lambda _: None
    on_end: Callable[[Ending], None] = lambda _: None
    deadline: float = math.inf
    idle: bool = False
    ready: bool = False
    decoder: wire.Decoder = field(default_factory=wire.Decoder)
    answered: bool = False
    printed: int = 0
    open: int = 2

    def send(self, message: dict[str, Any]) -> None:
        """Answer a question of the child; one that is gone does not mind."""
        with contextlib.suppress(OSError):
            self.connection.sendall(wire.encode(message))


class Family:
    """The children of this process, and the one selector through which it listens to them."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self.selector = selector or selectors.DefaultSelector()
        self._children: dict[int, Child] = {}

    def __len__(self) -> int:
        """How many children there are that are not idle."""
        return sum(not child.idle for child in self._children.values())

    @property
    def at_work(self) -> int:
        """How many children have not answered yet, idle ones apart."""
        return sum(not (child.answered or child.idle) for child in self._children.values())

    def start(
        self,
        run: Callable[[Link], Any],
        limits: Limits,
        *,
        on_message: Callable[[Child, dict[str, Any]], None],
        on_output: Callable[[str], None],
        on_end: Callable[[Ending], None],
        leader: bool = False,
    ) -> Child:
        """Fork a child that runs ``run`` and answers with what it returns; ``leader`` gives it a process group of its own.

        ``on_end`` is called as soon as the answer is there: until the kernel has taken a process of this size apart, milliseconds go by.
        """

        def live(link: Link) -> Any:
            confine(limits)
            return run(link)

        child = self._fork(live, leader=leader)
        _give(child, limits, on_message, on_output, on_end)
        return child

    def start_idle(
        self,
        live: Callable[[Link], Any],
        *,
        on_end: Callable[[Ending], None],
        leader: bool = False,
        stays: bool = False,
    ) -> Child:
        """Fork a child that prepares itself, calls :func:`wait_for_work` and answers with what ``live`` returns.

        ``on_end`` is called where it ends before it has work.  One that ``stays`` is there until this process ends.
        """
        child = self._fork(live, leader=leader)
        child.stays = stays
        child.idle, child.on_message, child.on_end = True, _note_ready, on_end
        return child

    def begin(
        self,
        child: Child,
        work: dict[str, Any],
        limits: Limits,
        *,
        on_message: Callable[[Child, dict[str, Any]], None],
        on_output: Callable[[str], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        """Give an idle child its work."""
        child.idle = False
        _give(child, limits, on_message, on_output, on_end)
        child.send({"limits": asdict(limits), "work": work})

    def _fork(self, live: Callable[[Link], Any], *, leader: bool) -> Child:
        ours, theirs = socket.socketpair()
        output, write_end = os.pipe()
        stack_file = os.memfd_create("graphguard-stack") if hasattr(os, "memfd_create") else _unnamed_file()
        parent = os.getpid()
        pid = fork_child()
        if pid == 0:
            ours.close()
            os.close(output)
            _live(live, Link(theirs), parent, write_end, stack_file, leader)
        theirs.close()
        os.close(write_end)
        ours.setblocking(True)
        child = Child(pid, ours, stack_file, output, leader)
        self._children[pid] = child
        self.selector.register(ours, selectors.EVENT_READ, lambda: self._hear(child))
        self.selector.register(output, selectors.EVENT_READ, lambda: self._print(child))
        return child

    def step(self, seconds: float | None = None) -> None:
        """Wait for the next event of a child, at most ``seconds``, and handle what there is."""
        for key, _ in self.selector.select(self._patience(seconds)):
            if key.fileobj in self.selector.get_map():  # an earlier event may have closed it
                key.data()
        now = time.monotonic()
        for child in [child for child in self._children.values() if child.deadline <= now]:
            self.stop(child, "timeout")

    def stop(self, child: Child, kind: Literal["timeout", "output", "cancelled"]) -> None:
        """End a child; where one that has not answered was is noted."""
        if child.pid not in self._children:
            return
        stack = () if kind == "cancelled" or child.answered else _ask_stack(child)
        self._end(child, Ending(kind, stack=stack))

    def stop_all(self) -> None:
        """End every child."""
        for child in list(self._children.values()):
            self.stop(child, "cancelled")

    def _patience(self, seconds: float | None) -> float | None:
        if not self._children:
            return seconds
        left = max(0.0, min(child.deadline for child in self._children.values()) - time.monotonic())
        return seconds if left == math.inf else left if seconds is None else min(seconds, left)

    def _hear(self, child: Child) -> None:
        try:
            data = child.connection.recv(_CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            self._close(child, child.connection)
            return
        for message in child.decoder.feed(data):
            if "result" in message:
                child.answered = True
                _drain(child)
                child.on_end(Ending("answered", message["result"]))
                if child.pid in self._children and not child.stays:
                    _let_go(child)
                return
            child.on_message(child, message)

    def _print(self, child: Child) -> None:
        data = os.read(child.output, _CHUNK)
        if not data:
            self._close(child, child.output)
            return
        if child.printed < _LOGGED:
            child.on_output(data[: _LOGGED - child.printed].decode(errors="replace"))
        child.printed += len(data)
        if child.printed > child.limits.output:
            self.stop(child, "output")

    def _close(self, child: Child, end: Any) -> None:
        """The child closed its connection or its output: it has ended when the connection is closed."""
        self.selector.unregister(end)
        child.open -= 1
        if end is child.connection:
            self._end(child, None)

    def _end(self, child: Child, ending: Ending | None) -> None:
        for end in (child.connection, child.output):
            if end in self.selector.get_map():
                if end is child.output:
                    _drain(child)
                self.selector.unregister(end)
        if ending is not None:
            _kill(child.pid)
        _, status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        if child.leader:
            _kill_group(child.pid)
            end_orphans(self._children)
        ending = ending or _ending(child, status)
        child.connection.close()
        os.close(child.output)
        os.close(child.stack_file)
        if not child.answered:
            child.on_end(ending)


def wait_for_work(link: Link, forks: int = MAX_FORKS) -> dict[str, Any]:
    """In an idle child: wait for the work, and be bounded from then on; it may start so many ``forks``."""
    link.stay()
    with first_to_go():
        begun = link.ask({"ready": True})
    confine(Limits(**begun["limits"]), forks)
    work: dict[str, Any] = begun["work"]
    return work


def _let_go(child: Child) -> None:
    """Tell a child that has answered that nobody needs it; one that is gone does not mind."""
    with contextlib.suppress(OSError):
        child.connection.shutdown(socket.SHUT_WR)


def _note_ready(child: Child, message: dict[str, Any]) -> None:
    child.ready = bool(message.get("ready"))


def _give(
    child: Child,
    limits: Limits,
    on_message: Callable[[Child, dict[str, Any]], None],
    on_output: Callable[[str], None],
    on_end: Callable[[Ending], None],
) -> None:
    """Say what bounds a child from now on, and who hears of it."""
    child.limits, child.deadline = limits, time.monotonic() + limits.seconds
    child.on_message, child.on_output, child.on_end = on_message, on_output, on_end


def _live(
    live: Callable[[Link], Any],
    link: Link,
    parent: int,
    output: int,
    stack_file: int,
    leader: bool,
) -> None:
    """The life of a child: bounded, with its printing in a pipe, and never back into the code that forked it."""
    status = _INTERNAL
    try:
        die_with(parent)
        if leader:
            os.setpgid(0, 0)
            adopt_orphans()
        _redirect(output)
        faulthandler.enable(file=stack_file, all_threads=False)
        faulthandler.register(_STACK_SIGNAL, file=stack_file, all_threads=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        link.tell({"result": live(link)})
        link.end()
        status = 0
    except BaseException:  # noqa: BLE001 - a defect of ours: it goes to the log, and the parent says that the child ended
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _redirect(output: int) -> None:
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # whatever stood in their place, such as pytest's capture, belongs to the process that forked this one
    streams: Any = sys
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115 - for the rest of this process's life
        setattr(streams, name, stream)
        setattr(streams, f"__{name}__", stream)


def _unnamed_file() -> int:
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _ending(child: Child, status: int) -> Ending:
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _INTERNAL:
        return Ending("failed")
    stack = _read_stack(child.stack_file)
    if os.WIFSIGNALED(status):
        return Ending("killed", status=os.WTERMSIG(status), stack=stack)
    return Ending("exited", status=os.WEXITSTATUS(status), stack=stack)


def _ask_stack(child: Child) -> tuple[tuple[Span, str], ...]:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, _STACK_SIGNAL)
    give_up = time.monotonic() + _STACK_SECONDS
    while not (stack := _read_stack(child.stack_file)) and time.monotonic() < give_up:
        time.sleep(0.005)
    return stack


def _read_stack(file: int) -> tuple[tuple[Span, str], ...]:
    """The frames that faulthandler wrote, innermost first."""
    text = os.pread(file, 1 << 20, 0).decode(errors="replace")
    return tuple(
        (Span(match["file"], int(match["line"])), match["function"].strip()) for match in _FRAME.finditer(text)
    )


def _drain(child: Child) -> None:
    """Hand over what the child had printed before it ended."""
    os.set_blocking(child.output, False)
    with contextlib.suppress(BlockingIOError):
        while child.printed < _LOGGED and (data := os.read(child.output, _CHUNK)):
            child.printed += len(data)
            child.on_output(data.decode(errors="replace"))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """End what the child started; only a leader's pid names a group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
