"""A client for tests of the server, in the words of somebody who edits files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from graphguard_server.serving.connection import plain_converter
from lsprotocol import types
from pygls.uris import from_fs_path
from pytest_lsp import LanguageClient, client_capabilities
from pytest_lsp.client import register_lsp_features

STAND_IN = [sys.executable, str(Path(__file__).parent / "stand_in" / "serve.py")]

MODEL = """\
from toy import all_reduce, partial, shard


def forward(x):
    a = shard(x)
    h = partial(a)
    return h
"""

CHECK = """\
import graphguard as gg
import model


@gg.check(mesh={"tp": 2})
def mlp(mesh):
    return gg.Refinement(model.forward)
"""


class Editor:
    """A client with a workspace, in the words of somebody who edits files."""

    def __init__(self, client: LanguageClient, folder: Path, log: Path) -> None:
        self.client = client
        self.folder = folder
        self.log = log
        self.versions: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.published: dict[str, list[types.PublishDiagnosticsParams]] = {}
        self.statuses: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.refreshed = 0
        self.initialized: types.InitializeResult | None = None
        self._news = asyncio.Event()

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self.client._server is not None
        return self.client._server.pid

    def hear(self) -> None:
        """Record what the server pushes."""
        features = self.client.protocol.fm.features

        def diagnostics(params: types.PublishDiagnosticsParams) -> None:
            self.client.diagnostics[params.uri] = params.diagnostics
            self.published.setdefault(params.uri, []).append(params)
            self._news.set()

        features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = diagnostics
        for method in (
            types.CLIENT_REGISTER_CAPABILITY,
            types.WORKSPACE_CODE_LENS_REFRESH,
            types.WORKSPACE_INLAY_HINT_REFRESH,
        ):
            self.client.feature(method)(lambda _params: None)

        def refresh(_params: Any) -> None:
            self.refreshed += 1
            self._news.set()

        features[types.WORKSPACE_DIAGNOSTIC_REFRESH] = refresh
        for method, kept in (("status", self.statuses), ("checks", self.checks), ("marks", self.marks)):

            def note(params: Any, kept: list[dict[str, Any]] = kept) -> None:
                kept.append(params)
                self._news.set()

            self.client.feature(f"graphguard/{method}")(note)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def uri(self, name: str) -> str:
        return from_fs_path(str(self.folder / name)) or ""

    def open(self, name: str, text: str | None = None, language: str = "python") -> str:
        uri = name if re.match(r"[\w-]{2,}:", name) else self.uri(name)
        self.texts[uri] = (self.folder / name).read_bytes().decode() if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, language, 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str) -> int:
        """Replace the whole text."""
        return self.edit(uri, types.TextDocumentContentChangeWholeDocument(text), text)

    def edit(self, uri: str, change: types.TextDocumentContentChangeEvent, result: str = "") -> int:
        self.versions[uri] += 1
        self.texts[uri] = result
        identifier = types.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))
        return self.versions[uri]

    def save(self, uri: str) -> None:
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def close(self, uri: str) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def diagnostics(self, uri: str) -> list[types.Diagnostic]:
        return list(self.client.diagnostics.get(uri, []))

    def status(self) -> dict[str, Any]:
        return self.statuses[-1] if self.statuses else {}

    def runs(self) -> list[dict[str, Any]]:
        return [run for check in (self.checks[-1]["checks"] if self.checks else []) for run in check["runs"]]

    def traces(self) -> int:
        """How many captures the worker was asked for so far."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    async def until(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Wait for something that the server pushes."""
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.5)
        return value

    async def settled(self, seconds: float = 20.0) -> None:
        """Wait until every check has a fresh result with its hover data, and nothing is under way."""

        def done() -> bool:
            runs = self.runs()
            return bool(runs) and all(
                not run["stale"] and run["described"] and run["state"] not in ("idle", "queued", "tracing", "proving")
                for run in runs
            )

        await self.until(done, seconds)


def position_of(text: str, needle: str, offset: int = 0) -> types.Position:
    """The position of a needle in an ASCII text."""
    before = text[: text.index(needle) + offset]
    return types.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


@contextlib.asynccontextmanager
async def editing(
    folder: Path,
    log: Path,
    *,
    command: list[str] = STAND_IN,
    options: dict[str, Any] | None = None,
    encodings: list[types.PositionEncodingKind] | None = None,
    capabilities: types.ClientCapabilities | None = None,
    environment: dict[str, str] | None = None,
) -> AsyncIterator[Editor]:
    client = LanguageClient(converter_factory=plain_converter)
    register_lsp_features(client)
    editor = Editor(client, folder, log)
    editor.hear()
    await client.start_io(*command, env={**os.environ, "STAND_IN_LOG": str(log), **(environment or {})})
    capabilities = capabilities or client_capabilities("visual-studio-code")
    if encodings is not None:
        capabilities.general = types.GeneralClientCapabilities(position_encodings=list(encodings))
    root = from_fs_path(str(folder)) or ""
    try:
        editor.initialized = await client.initialize_session(
            types.InitializeParams(
                capabilities=capabilities,
                workspace_folders=[types.WorkspaceFolder(uri=root, name="project")],
                root_uri=root,
                initialization_options=options,
            )
        )
        yield editor
        await client.shutdown_session()
    finally:
        if client._server is not None and client._server.returncode is None:
            client._server.kill()  # a failed test leaves a server that nobody has told to exit
        await client.stop()
