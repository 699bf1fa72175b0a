"""The protocol layer: pygls' own, with its document store replaced by ours and its rough edges closed.

Each override says what it closes; the figures behind them are measured on pygls 2.1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, Final, Protocol

from cattrs import Converter
from lsprotocol import converters, types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage

from graphguard_server.serving import protocol

log = logging.getLogger(__name__)

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_INVALID_PARAMS: Final = -32602
_NOT_INITIALIZED: Final = -32002


def plain_converter() -> Converter:
    """The protocol's converter; parameters of our own messages stay plain data, where pygls' makes named tuples of them."""
    converter = converters.get_converter()
    for kind, fields in (
        (JsonRPCRequestMessage, ("id", "method", "jsonrpc", "params")),
        (JsonRPCResponseMessage, ("id", "jsonrpc", "result")),
        (JsonRPCNotification, ("method", "jsonrpc", "params")),
    ):
        converter.register_structure_hook(kind, _reader(fields))
    return converter


def _reader(fields: tuple[str, ...]) -> Any:
    return lambda row, kind: kind(**{name: row.get(name) for name in fields})


class Closing(Protocol):
    """What the connection asks of its server."""

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics."""
        ...

    async def close(self) -> None:
        """Stop everything that runs."""
        ...


class Connection(LanguageServerProtocol):
    """Takes messages as plain data and answers every request, whatever it looks like."""

    exit_status: int | None = None
    _server: Closing  # type: ignore[assignment]  # which pygls says is any server

    def receive(self, message: object) -> None:
        """Take one decoded message; a request that cannot be understood is answered with an error."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self.garbled("not a message of JSON-RPC 2.0")
            return
        number = message.get("id")
        asked = "method" in message and "id" in message
        refusal = self._refusal(message)
        if refusal is not None:
            if asked:
                self._refuse(number, *refusal)
            return
        try:
            structured = self.structure_message(message)
        except JsonRpcException as error:
            log.info("%s: parameters that do not fit", message.get("method"))
            if asked:
                self._refuse(number, _INVALID_PARAMS, f"parameters of {message.get('method')} do not fit: {error}")
            return
        try:
            self.handle_message(structured)
        except Exception as error:
            log.exception("a message could not be handled")
            if asked:
                self._refuse(number, types.ErrorCodes.InternalError.value, repr(error))

    def garbled(self, reason: str) -> None:
        """The stream held something that is no message: say so as JSON-RPC wants it."""
        log.warning("not a message: %s", reason)
        self._send_data({"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": reason}})

    async def close(self) -> None:
        """The connection ends: stop everything."""
        await self._server.close()

    def _refusal(self, message: dict[str, Any]) -> tuple[int, str] | None:
        """Why a message comes at the wrong time; None where it does not."""
        method = message.get("method")
        if method is None or method == types.EXIT:
            return None
        if not isinstance(method, str):
            return _INVALID_REQUEST, "a method that is not text"
        if self._shutdown:
            return _INVALID_REQUEST, "the server is shutting down"
        if (method == types.INITIALIZE) is (self._workspace is not None):
            return (_INVALID_REQUEST, "initialized twice") if self._workspace else (_NOT_INITIALIZED, "not initialized")
        return None

    def _refuse(self, number: Any, code: int, reason: str) -> None:
        known = number if isinstance(number, str | int) and not isinstance(number, bool) else None
        self._send_data({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": reason}})

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """Add the version of our own messages to the capabilities; findings are pushed or pulled, never shown twice."""
        result = yield from super().lsp_initialize(params)
        if not self._server.pulls:
            result.capabilities.diagnostic_provider = None
        result.capabilities.experimental = {"graphguard": {"version": protocol.VERSION}}
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """Cancel what is pending from a copy: the original changes its dictionary while it iterates over it."""
        self._shutdown = True  # before anything is awaited: a client may send exit without waiting for the answer
        handler = self.fm.features.get(types.SHUTDOWN)
        if handler is not None:
            yield handler, args, None
        current = self.msg_id
        for number, future in tuple(self._request_futures.items()):
            if number != current and not future.done():
                future.cancel()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_args: Any) -> Generator[Any, Any, None]:
        """Set the exit status instead of raising out of the event loop, which loses it."""
        self.exit_status = 0 if self._shutdown else 1
        yield from ()

    # pygls' documents split lines at form feeds and Unicode separators, which editors do not: edits behind one would go astray

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        """Leave the text to our own documents."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        """Leave the text to our own documents."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        """Leave the text to our own documents."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None
