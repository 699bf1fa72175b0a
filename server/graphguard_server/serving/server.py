"""The language server: connects a session to a client; what it answers is in ``features``."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Protocol

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.lsp.server import LanguageServer

from graphguard.report.diagnostics import Fix
from graphguard_server.processes.engine import Engine
from graphguard_server.serving.connection import Connection, plain_converter
from graphguard_server.state.checks import Run
from graphguard_server.state.execution import Execution
from graphguard_server.state.pictures import Pictures
from graphguard_server.state.session import Session
from graphguard_server.state.watching import Watcher

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Told:
    """What the client was last told, so that it is told again only when that changes."""

    listening: bool = False
    revision: int = 0
    checks: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)

    def next_revision(self) -> int:
        """The number of the next notification."""
        self.revision += 1
        return self.revision


class Teller(Protocol):
    """Tells the client what became of files and of the whole (see ``assembly``)."""

    def files(self, paths: Iterable[str]) -> None:
        """Publish what is found in these files."""

    def whole(self) -> None:
        """Send the checks, the status and the progress, and ask for what the client shows to be asked for anew."""

    def diagnostics(self, path: str) -> list[types.Diagnostic]:
        """What is found in a file."""

    def ask_for_diagnostics(self) -> None:
        """Ask the client to ask for diagnostics."""


class GraphGuardServer(LanguageServer):
    """One client's server."""

    teller: Teller

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            "graphguard", _version(), protocol_cls=Connection, converter_factory=plain_converter, max_workers=8
        )
        self.session = Session(engine, self.changed, Execution)
        self.watcher = Watcher(self.session)
        self.told = Told()
        self.pictures = Pictures()
        self._dirty: set[str] = set()
        self._refresh = False
        self._flush: asyncio.Handle | None = None

    @property
    def connection(self) -> Connection:
        """The protocol layer, which takes the client's messages."""
        connection = self.protocol
        assert isinstance(connection, Connection)
        return connection

    def supports(self, capability: str) -> bool:
        """Whether the client has declared a capability, named by its path such as ``text_document.code_action``."""
        return bool(get_capability(self.client_capabilities, capability, default=False))

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics: it chose to, or it cannot be told."""
        text_document = self.client_capabilities.text_document
        if text_document is None or text_document.diagnostic is None:
            return False
        return self.session.pull or text_document.publish_diagnostics is None

    @property
    def resolvable(self) -> tuple[str, ...]:
        """The properties of a code action that the client asks for when they are needed."""
        support = get_capability(self.client_capabilities, "text_document.code_action.resolve_support", default=None)
        return tuple(support.properties) if support is not None else ()

    def edit_of(self, run: Run, fix: Fix) -> types.WorkspaceEdit:
        """A fix as the client can apply it."""
        converter = self.session.converter
        versioned = self.supports("workspace.workspace_edit.document_changes")
        return converter.edit(run, fix) if versioned else converter.plain_edit(run, fix)

    def changed(self, paths: Iterable[str]) -> None:
        """Tell the client at the end of this turn of the event loop what became of these files, and of the whole."""
        self._dirty.update(paths)
        self._refresh = True
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self._tell)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log what went wrong in a handler; pygls would open a message box for each."""
        log.error("%s: %s", getattr(source, "__name__", source), error)

    async def close(self) -> None:
        """Stop everything that runs."""
        self.watcher.stop()
        await self.session.close()
        if self._flush is not None:
            self._flush.cancel()

    def _tell(self) -> None:
        self._flush = None
        if not self.told.listening:
            return
        paths, self._dirty = self._dirty, set()
        self.teller.files(sorted(paths))
        if self._refresh:
            self._refresh = False
            self.teller.whole()

    def register(self, module: ModuleType) -> None:
        """Answer a method as a module of ``features`` does."""
        bound = _bound(module.handle, self)
        self.feature(module.METHOD, getattr(module, "OPTIONS", None))(bound)
        if hasattr(module, "COMMAND"):
            self.command(module.COMMAND)(_of_arguments(bound))


def _bound(handle: Callable[[GraphGuardServer, Any], Any], server: GraphGuardServer) -> Callable[[Any], Any]:
    """A handler of this server; pygls asks the function itself whether it is a coroutine function."""
    if inspect.iscoroutinefunction(handle):

        async def waiting(params: Any) -> Any:
            return await handle(server, params)

        return waiting

    def immediate(params: Any) -> Any:
        return handle(server, params)

    return immediate


def _of_arguments(handler: Callable[[Any], Any]) -> Callable[..., Any]:
    """A command that passes its only argument on."""
    if inspect.iscoroutinefunction(handler):

        async def waiting(*arguments: Any) -> Any:
            return await handler(arguments[0] if arguments else {})

        return waiting

    def immediate(*arguments: Any) -> Any:
        return handler(arguments[0] if arguments else {})

    return immediate


def _version() -> str:
    try:
        return version("graphguard")
    except PackageNotFoundError:
        return "0"
