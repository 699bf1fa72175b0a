"""The server's end of standard input and output.

Differences to what pygls does by itself, each measured: the reader has a thread of its own instead of a slot of the shared pool; a client that does not
read cannot stop the event loop; stray prints, of ours or of a child, cannot get into the stream; a message that does not fit its type is answered
instead of dropped; and the exit status says whether ``shutdown`` came before ``exit``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import queue
import sys
import threading
from typing import Any, BinaryIO, Final, Protocol

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.3
MAX_BODY: Final = 256 << 20
HEADER_LINES: Final = 16


class Receiver(Protocol):
    """What takes the messages; ``exit_status`` is set once the client has said ``exit``."""

    exit_status: int | None

    def receive(self, message: object) -> None:
        """Take one message, decoded from JSON; must not raise for any content."""

    def garbled(self, reason: str) -> None:
        """The stream held something that is not a message."""

    async def close(self) -> None:
        """The connection ends: stop everything."""


def guarded_streams() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of standard input and output; afterwards descriptor 0 is empty and 1 is standard error, for us and for children."""
    own_input = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    own_output = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return own_input, own_output


class Writer:
    """Writes in a thread, in order, without ever making the event loop wait."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queue bytes for the client."""
        self._queue.put(data)

    def close(self) -> None:
        """Write what is queued, within a moment."""
        self._queue.put(None)
        self._thread.join(FLUSH_SECONDS)

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            try:
                while view:
                    view = view[self._stream.write(view) :]
            except (OSError, ValueError):
                log.info("the client no longer reads")
                return


class _Reader:
    """Reads frames in a thread and hands them to the event loop one at a time."""

    def __init__(self, stream: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self.messages: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._stream = stream
        self._loop = loop
        threading.Thread(target=self._work, name="reader", daemon=True).start()

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            try:
                while (found := _read_body(self._stream)) is not None:
                    self._loop.call_soon_threadsafe(self.messages.put_nowait, found)
            except (OSError, ValueError) as error:
                log.info("reading stopped: %s", error)
            self._loop.call_soon_threadsafe(self.messages.put_nowait, None)


def _read_body(stream: BinaryIO) -> bytes | str | None:
    """The next body, a text that says what is wrong with the stream, or None at its end."""
    length: int | None = None
    lines = 0
    while True:
        line = stream.readline(1 << 16)
        if not line:
            return None
        lines += 1
        name, colon, value = line.partition(b":")
        if not line.strip():
            if length is not None:
                break
        elif colon and name.strip().lower() == b"content-length":
            try:
                length = int(value)
            except ValueError:
                return f"a length that is no number: {value[:40]!r}"
            if not 0 <= length <= MAX_BODY:
                return f"a length of {length} bytes"
        elif lines > HEADER_LINES:
            return f"a header that does not end: {line[:40]!r}"
    body = stream.read(length)
    return None if len(body) < length else body


async def serve(receiver: Receiver, stream: BinaryIO) -> int:
    """Receive messages until the client says ``exit`` or goes away; returns the exit status of the process."""
    reader = _Reader(stream, asyncio.get_running_loop())
    while receiver.exit_status is None:
        body = await reader.messages.get()
        if body is None:
            break
        if isinstance(body, str):
            receiver.garbled(body)
            continue
        try:
            message: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            receiver.garbled(str(error))
            continue
        receiver.receive(message)
        await asyncio.sleep(0)  # a burst of messages lets finished work through between two of them
    await receiver.close()
    return 1 if receiver.exit_status is None else receiver.exit_status
