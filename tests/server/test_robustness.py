"""Strange messages, strange documents, strange settings: every request is answered and the next one too."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from graphguard_server.serving.connection import plain_converter
from lsp_editor import CHECK, MODEL, STAND_IN, Editor, editing
from lsprotocol import types


class Raw:
    """A client that sends bytes."""

    def __init__(self, log: Path) -> None:
        self.process = subprocess.Popen(
            STAND_IN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "STAND_IN_LOG": str(log)},
        )  # fmt: skip

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode())

    def write(self, body: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return json.loads(self.process.stdout.read(length))

    def answer(self, number: Any) -> Any:
        """The answer to a request; notifications before it are passed over."""
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message

    def initialize(self) -> None:
        self.send(
            {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "initialize",
                "params": {"processId": None, "rootUri": None, "capabilities": {}},
            }
        )
        assert "result" in self.answer(0)

    def end(self) -> int:
        self.send({"jsonrpc": "2.0", "id": "end", "method": "shutdown"})
        self.answer("end")
        self.send({"jsonrpc": "2.0", "method": "exit"})
        return self.process.wait(5)


@pytest.fixture
def raw(log: Path) -> Any:
    client = Raw(log)
    yield client
    client.process.kill()
    client.process.wait()
    for stream in (client.process.stdin, client.process.stdout):
        assert stream is not None
        stream.close()


def test_a_request_before_initialize_is_refused_and_exit_without_shutdown_is_status_1(raw: Raw) -> None:
    raw.send({"jsonrpc": "2.0", "id": 1, "method": "textDocument/hover", "params": {}})
    assert raw.answer(1)["error"]["code"] == -32002
    raw.initialize()
    raw.send(
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "initialize",
            "params": {"processId": None, "rootUri": None, "capabilities": {}},
        }
    )
    assert raw.answer(2)["error"]["code"] == -32600
    raw.send({"jsonrpc": "2.0", "method": "exit"})
    assert raw.process.wait(5) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{not json", -32700),
        (b"[]", -32700),
        (b"null", -32700),
        (b'"text"', -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 50_000, -32700),
    ],
)
def test_what_is_no_message_is_answered_with_a_parse_error(raw: Raw, body: bytes, code: int) -> None:
    raw.initialize()
    raw.write(body)
    assert raw.answer(None)["error"]["code"] == code
    assert raw.end() == 0


@pytest.mark.parametrize(
    "message",
    [
        {"method": "textDocument/hover", "params": {"textDocument": 7}},
        {"method": "textDocument/hover", "params": None},
        {"method": "textDocument/hover"},
        {"method": "textDocument/codeAction", "params": {"textDocument": {"uri": None}}},
        {"method": "workspace/executeCommand", "params": {"command": "no.such", "arguments": [1]}},
        {"method": "no/such/method", "params": {}},
        {"method": 7, "params": {}},
        {
            "method": "textDocument/hover",
            "params": {"textDocument": {"uri": "x"}, "position": {"line": -1, "character": 0}},
        },
    ],
)
def test_a_request_that_does_not_fit_gets_an_error_and_the_next_one_its_answer(
    raw: Raw, message: dict[str, Any]
) -> None:
    raw.initialize()
    raw.send({"jsonrpc": "2.0", "id": 5, **message})
    assert "error" in raw.answer(5)
    assert raw.end() == 0


def test_a_hover_beyond_the_document_is_answered(raw: Raw) -> None:
    raw.initialize()
    position = {"line": 2**31 - 1, "character": 2**31 - 1}
    raw.send(
        {
            "jsonrpc": "2.0",
            "id": 6,
            "method": "textDocument/hover",
            "params": {"textDocument": {"uri": "file:///nowhere.py"}, "position": position},
        }
    )
    assert raw.answer(6)["result"] is None


@pytest.mark.parametrize(
    "uri",
    [
        "untitled:Untitled-1",
        "vscode-notebook-cell:/a.ipynb#W0",
        "git:/x/model.py",
        "file:///nowhere/at/all.py",
        "file://",
    ],
)
async def test_documents_that_are_no_project_files_do_no_harm(editor: Editor, uri: str) -> None:
    editor.open(uri, MODEL)
    editor.change(uri, CHECK)
    hover = await editor.client.text_document_hover_async(
        types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 0))
    )
    assert hover is None
    editor.close(uri)
    model = editor.open("model.py")
    await editor.settled()
    assert editor.diagnostics(model)


async def test_a_file_outside_the_workspace_is_a_project_of_its_own(editor: Editor, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "model.py").write_text(MODEL)
    (outside / "check_it.py").write_text(CHECK)
    uri = editor.open(str(outside / "check_it.py"))
    await editor.until(
        lambda: any(check["uri"] == uri for check in editor.checks[-1]["checks"]) if editor.checks else False
    )
    await editor.settled()
    assert len(editor.runs()) == 1


async def test_the_client_may_spell_a_uri_as_it_likes(editor: Editor) -> None:
    spelled = editor.uri("model.py").replace("model", "%6Dodel")
    editor.open(spelled, MODEL)
    await editor.settled()
    assert editor.diagnostics(spelled)


async def test_a_configuration_that_cannot_be_read_is_shown_and_mended(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    model = editor.uri("model.py")
    editor.write("pyproject.toml", "[tool.graphguard\n")
    await editor.until(lambda: editor.status()["health"] == "error")
    assert "pyproject.toml" in editor.status()["detail"]
    assert editor.diagnostics(model), "the last results stay"
    (found,) = editor.diagnostics(editor.uri("pyproject.toml"))
    assert found.range.start.line == 0
    assert found.message.startswith("Expected ']'")
    editor.write("pyproject.toml", "[tool.graphguard]\n")
    await editor.until(lambda: editor.status()["health"] == "ok")
    await editor.until(lambda: not editor.diagnostics(editor.uri("pyproject.toml")))
    await editor.settled()


async def test_settings_that_are_not_understood_are_named_and_change_nothing(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"settings": {"mode": "sometimes", "inlayHints": 3}}) as editor:
        await editor.until(lambda: editor.status().get("health") == "error")
        assert "graphguard.mode: 'sometimes' is none of change, save, manual" in editor.status()["detail"]
        editor.open("model.py")
        await editor.settled()


async def test_two_folders_are_two_projects(workspace: Path, log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("pyproject.toml", "model.py", "check_mlp.py"):
        (other / name).write_bytes((workspace / name).read_bytes())
    async with editing(workspace, log) as editor:
        first = editor.open("model.py")
        second = editor.open(str(other / "model.py"))
        await editor.until(lambda: len(editor.runs()) == 2)
        await editor.settled()
        assert editor.diagnostics(first)
        assert editor.diagnostics(second)
        editor.change(first, "x = 1\n")
        await editor.until(lambda: not editor.diagnostics(first))
        assert editor.diagnostics(second)


async def test_a_client_without_capabilities_gets_plain_answers(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, capabilities=types.ClientCapabilities()) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        (found,) = editor.diagnostics(uri)
        hover = await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), found.range.start)
        )
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        assert hover.contents.kind == types.MarkupKind.PlainText
        assert "**" not in hover.contents.value
        actions = await editor.client.text_document_code_action_async(
            types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
        )
        assert actions is not None
        edit = getattr(actions[0], "edit", None)
        assert isinstance(edit, types.WorkspaceEdit)
        assert edit.changes is not None
        assert list(edit.changes) == [uri]
        await asyncio.sleep(0)


def test_the_converter_keeps_parameters_of_our_messages_plain() -> None:
    from pygls.protocol.json_rpc import JsonRPCRequestMessage

    row = {"jsonrpc": "2.0", "id": 1, "method": "graphguard/run", "params": {"checks": [{"id": "a", "class": 1}]}}
    assert plain_converter().structure(row, JsonRPCRequestMessage).params == row["params"]
