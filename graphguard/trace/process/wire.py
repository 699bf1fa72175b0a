"""Framed messages between a process of ours and its parent: a JSON header and, after it, bytes as they are.

A frame is two unsigned 32-bit big-endian lengths, the header and the payload.  Headers are requests
``{"id", "method", "params"}``, answers ``{"id", "result"}`` or ``{"id", "error": {"code", "message"}}``, and notifications without an id.
One ``bytes`` value of ``params`` or ``result`` travels as the payload; ``{"$payload": true}`` stands in its place.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from graphguard.ir.codec import dumps, loads
from graphguard.ir.plain import CodecError

_LENGTHS = struct.Struct(">II")
_PLACE = "$payload"
# A header that announces more than this is not ours: something else was written to the stream.
MAX_HEADER = 256 * 2**20


class WireError(ValueError):
    """The stream does not hold frames, or a message cannot be put into one."""


def encode(message: dict[str, Any]) -> bytes:
    """One message as a frame; raises ``WireError`` where it holds more than one ``bytes`` value."""
    payload: list[bytes] = []
    header = dumps(_without_payload(message, payload))
    if len(payload) > 1:
        raise WireError("a message carries at most one value of bytes")
    body = payload[0] if payload else b""
    return b"".join((_LENGTHS.pack(len(header), len(body)), header, body))


class Decoder:
    """Turns the chunks of a stream back into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that ``data`` completes, in order; raises ``WireError``."""
        self._pending += data
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> dict[str, Any] | None:
        if len(self._pending) < _LENGTHS.size:
            return None
        header, payload = _LENGTHS.unpack_from(self._pending)
        if header > MAX_HEADER:
            raise WireError("not a frame: the stream holds something else")
        start, end = _LENGTHS.size, _LENGTHS.size + header + payload
        if len(self._pending) < end:
            return None
        message = decode(bytes(self._pending[start : start + header]), bytes(self._pending[start + header : end]))
        del self._pending[:end]
        return message


def decode(header: bytes, payload: bytes) -> dict[str, Any]:
    """The message of a frame's two parts; raises ``WireError``."""
    try:
        message = loads(header)
    except CodecError as error:
        raise WireError(f"not a frame: {error}") from error
    if not isinstance(message, dict):
        raise WireError("a message is a JSON object")
    return {key: _with_payload(value, payload) for key, value in message.items()}


def write(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one message and flush."""
    stream.write(encode(message))
    stream.flush()


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream; raises ``WireError`` where it ends inside a frame."""
    lengths = _exactly(stream, _LENGTHS.size)
    if lengths is None:
        return None
    header_length, payload_length = _LENGTHS.unpack(lengths)
    if header_length > MAX_HEADER:
        raise WireError("not a frame: the stream holds something else")
    body = _exactly(stream, header_length + payload_length)
    if body is None:
        raise WireError("the stream ended inside a frame")
    return decode(body[:header_length], body[header_length:])


def _exactly(stream: BinaryIO, count: int) -> bytes | None:
    data = stream.read(count)
    if not data and count:
        return None
    if len(data) < count:
        raise WireError("the stream ended inside a frame")
    return data


def _without_payload(value: Any, payload: list[bytes]) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        payload.append(bytes(value))
        return {_PLACE: True}
    if isinstance(value, dict):
        return {key: _without_payload(item, payload) for key, item in value.items()}
    return value


def _with_payload(value: Any, payload: bytes) -> Any:
    if isinstance(value, dict):
        if value.get(_PLACE) is True:
            return payload
        return {key: _with_payload(item, payload) for key, item in value.items()}
    return value
