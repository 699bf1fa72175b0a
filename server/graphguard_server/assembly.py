"""A server with all that it answers and tells: every module of ``features`` that handles a method, found and not listed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType

from lsprotocol import types

from graphguard_server import features
from graphguard_server.features.checking import checks, status
from graphguard_server.features.language.publish_diagnostics import Publisher
from graphguard_server.features.workspace.progress import Progress
from graphguard_server.features.workspace.refresh import Refresher
from graphguard_server.processes.engine import Engine
from graphguard_server.serving.server import GraphGuardServer


class _Telling:
    """What a client is told unasked."""

    def __init__(self, server: GraphGuardServer) -> None:
        self._server = server
        self._publisher = Publisher(server)
        self._progress = Progress(server)
        self._refresher = Refresher(server)

    def files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._publisher.publish(path)

    def whole(self) -> None:
        checks.send(self._server)
        status.send(self._server)
        self._progress.update(self._server.told.status["message"], busy=self._server.told.status["busy"])
        self._refresher.update()

    def diagnostics(self, path: str) -> list[types.Diagnostic]:
        return self._publisher.diagnostics(path)

    def ask_for_diagnostics(self) -> None:
        self._refresher.diagnostics()


def assembled(engine: Engine) -> GraphGuardServer:
    """A server that answers every method."""
    server = GraphGuardServer(engine)
    server.teller = _Telling(server)
    for module in handlers():
        server.register(module)
    return server


def handlers() -> Iterator[ModuleType]:
    """The modules of ``features`` that handle a method, in order of their names."""
    for found in pkgutil.walk_packages(features.__path__, "graphguard_server.features."):
        module = importlib.import_module(found.name)
        if hasattr(module, "handle"):
            yield module
